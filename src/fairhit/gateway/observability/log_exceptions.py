"""A bug of ours in one part ends nothing else: it is said in one line, and the rest goes on."""

import logging
from collections.abc import Callable
from typing import ParamSpec

from fairhit.errors import FairhitError

_log = logging.getLogger(__name__)

Given = ParamSpec("Given")


def guarded(part: Callable[Given, object], *args: Given.args, **named: Given.kwargs) -> None:
    """Call `part`; what it raises is a bug of ours, is said in one line, and ends nothing else."""
    try:
        part(*args, **named)
    except Exception as error:  # noqa: BLE001 - all time limits end by this one clock
        name = getattr(part, "__qualname__", repr(part))
        _log.error("%s: %s: %s", name, type(error).__name__, error)


def told(error: Exception) -> FairhitError:
    """What a caller is told of `error`: of a bug of ours only that there is one, and 500.

    The log has its kind and its place, and not its words: they may be the prompt's.
    """
    if isinstance(error, FairhitError):
        return error
    place, trace = "somewhere", error.__traceback__
    while trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    _log.error("a request: %s at %s", type(error).__name__, place)
    return FairhitError("internal error")

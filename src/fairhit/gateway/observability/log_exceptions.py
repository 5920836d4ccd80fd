"""Bugs of one part end nothing else: each is logged in one line."""

import logging
from collections.abc import Callable
from typing import ParamSpec

from fairhit.errors import FairhitError

_log = logging.getLogger(__name__)

Given = ParamSpec("Given")


def log_exceptions(part: Callable[Given, object], *args: Given.args, **named: Given.kwargs) -> None:
    """Call `part`, and log every exception, which is a bug, in one line instead of raising it."""
    try:
        part(*args, **named)
    except Exception as error:  # noqa: BLE001 - one clock enforces all time limits
        name = getattr(part, "__qualname__", repr(part))
        _log.error("%s: %s: %s", name, type(error).__name__, error)


def as_client_error(error: Exception) -> FairhitError:
    """The error to respond with: `error` itself, or a plain 500 for a bug, which is logged.

    The log has the type and the line of a bug, and not its message, which may contain the prompt.
    """
    if isinstance(error, FairhitError):
        return error
    place, trace = "unknown", error.__traceback__
    while trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    _log.error("a request: %s at %s", type(error).__name__, place)
    return FairhitError("internal error")

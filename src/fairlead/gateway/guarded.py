"""What comes round every second must come round again, whatever one part of it did."""

import logging
from collections.abc import Callable
from typing import ParamSpec

_log = logging.getLogger(__name__)

Given = ParamSpec("Given")


def guarded(part: Callable[Given, object], *args: Given.args, **named: Given.kwargs) -> None:
    """Call `part`; what it raises is a bug of ours, is said in one line, and ends nothing else."""
    try:
        part(*args, **named)
    except Exception as error:  # noqa: BLE001 - all time limits end by this one clock
        name = getattr(part, "__qualname__", repr(part))
        _log.error("%s: %s: %s", name, type(error).__name__, error)

"""What this fairhit was built as: its hot modules compiled to C, or pure Python and why."""

from pathlib import Path

from fairhit.core import fair_queue as scheduler

# Written by the build of a wheel (scripts/compiled_wheel.py); an editable install and a checkout have none.
_RECORD = Path(__file__).with_name("built.txt")


def is_compiled() -> bool:
    """Whether the modules that schedule, route and simulate are compiled ones."""
    return not str(scheduler.__file__).endswith(".py")


def description() -> str:
    """`compiled`, or `pure Python` and the reason. Reads a file."""
    if is_compiled():
        return "compiled"
    try:
        reason = _RECORD.read_text(encoding="utf-8").strip()
    except OSError:
        reason = "run from its sources"
    return f"pure Python: {reason}"

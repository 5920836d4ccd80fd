"""The build of this fairhit: hot modules compiled to C, or pure Python, with the reason."""

from importlib.util import find_spec
from pathlib import Path

from fairhit.errors import ConfigError
from fairhit.installing import install_command

# Written by the build of a wheel (scripts/compiled_wheel.py); an editable install and a checkout have none.
RECORD = "built.txt"


def is_compiled() -> bool:
    """True if the modules that schedule and route are compiled ones."""
    found = find_spec("fairhit.core.fair_queue")
    return found is not None and not str(found.origin).endswith(".py")


def description() -> str:
    """`compiled`, or `pure Python` and the reason. Reads a file."""
    if is_compiled():
        return "compiled"
    return f"pure Python: {_record_of(Path(__file__).parent) or 'run from its sources'}"


def require_same_build(package: Path) -> None:
    """Refuse a package in another folder that was not built with this one. Raises ConfigError.

    Compiled modules of two packages share the layout of their objects: both are of one build, or pure Python.
    """
    ours, theirs = _record_of(Path(__file__).parent), _record_of(package)
    if ours != theirs and "compiled" in {ours.partition(" ")[0], theirs.partition(" ")[0]}:
        raise ConfigError(
            f"{package.name} was not built together with fairhit: {install_command('lab')}"
        )


def _record_of(package: Path) -> str:
    """The line that the build of a wheel left in a package; empty where there is none."""
    try:
        return (package / RECORD).read_text(encoding="utf-8").strip()
    except OSError:
        return ""

"""Outputs of a command: none replaces a file that the command reads, or another output."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from rich.console import Console

from fairhit.errors import ConfigError
from fairhit_lab.traces.files import STANDARD


def require_apart(sources: Iterable[str], outputs: Mapping[str, str | None]) -> None:
    """No output, by its flag, is a source or another output, under whatever name. Raises ConfigError.

    An output is written beside its name first (`written`), so that name must be free, too. Devices and
    pipes may be named twice: they are not overwritten.
    """
    taken = {Path(path).resolve(): path for path in sources if _is_plain(path)}
    for flag, path in outputs.items():
        if path is None or not _is_plain(path):
            continue
        target = Path(path).resolve()
        for place in (target, target.with_name(f"{target.name}.part")):
            if place in taken or any(_is_same(place, other) for other in taken):
                raise ConfigError(f"{flag}: expected a file of its own, got {path}")
        taken |= dict.fromkeys((target, target.with_name(f"{target.name}.part")), path)


def _is_plain(path: str) -> bool:
    return path != STANDARD and (Path(path).is_file() or not Path(path).exists())


def _is_same(first: Path, second: Path) -> bool:
    """True for one file under two names, as hard links are."""
    return first.exists() and second.exists() and first.samefile(second)


class OutputConsole(Console):
    """A console that raises BrokenPipeError when its reader ends, for `main` to handle."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def screen(*outputs: str | None) -> OutputConsole:
    """The console for tables: standard output, or standard error if an output is standard output."""
    return OutputConsole(file=sys.stderr) if STANDARD in outputs else OutputConsole()

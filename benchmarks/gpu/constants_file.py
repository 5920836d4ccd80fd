"""A fitted row put into a YAML file of constants, beside what people wrote there."""

import re
from dataclasses import fields
from pathlib import Path

from fairhit.errors import ConfigError, in_words
from fairhit_lab.sim.hardware.models import GPUS, Gpu
from fairhit_lab.sim.hardware.tables import read_constants
from fairhit_lab.traces.files import written

TOP = "gpus:"


def require_addable(path: Path, name: str) -> None:
    """Before an hour of measuring. Raises ConfigError: the file, and what is wrong with it."""
    if not path.parent.is_dir():
        raise ConfigError(f"--add: {path}: No such folder")
    # Any row will do: what is tried is the place.
    _with_row(path, name, next(iter(GPUS.values())), "")


def add_row(path: Path, name: str, gpu: Gpu, about: str) -> None:
    """The row goes first, under a comment that says what was measured when; the rest stays as it is.

    A file that is not there is made. Written whole or not at all. Raises ConfigError, also where
    there is a row of that name.
    """
    text = _with_row(path, name, gpu, about)
    with written(path) as file:
        file.write(text.encode())


def _with_row(path: Path, name: str, gpu: Gpu, about: str) -> str:
    text = _text(path)
    lines = text.splitlines()
    if any(re.match(rf"""\s+["']?{re.escape(name)}["']?\s*:""", line) for line in lines):
        raise ConfigError(f"--add: {path} has a row {name!r}; --name gives it another name")
    places = [number for number, line in enumerate(lines) if line.rstrip() == TOP]
    if not places and any(line.startswith("gpus") for line in lines):
        raise ConfigError(f"--add: {path}: expected a line that is {TOP!r}, with the rows below")
    place = places[0] if places else len(lines)
    before, after = (lines[:place], lines[place + 1 :])
    pad = next((line[: len(line) - len(line.lstrip())] for line in after if _is_row(line)), "  ")
    row = {item.name: getattr(gpu, item.name) for item in fields(Gpu)}
    made = [
        TOP,
        f"{pad}# {about}",
        f"{pad}{name}:",
        *(f"{pad * 2}{key}: {value}" for key, value in row.items() if value is not None),
    ]
    return "\n".join([*before, *made, *after, ""])


def _is_row(line: str) -> bool:
    return line.startswith(" ") and not line.lstrip().startswith("#")


def _text(path: Path) -> str:
    """Load the constants; none if there is no file. Raises ConfigError for another file."""
    if not path.exists():
        return ""
    read_constants(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"--add: {in_words(error)}") from None

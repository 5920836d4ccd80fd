"""The Containerfile, instruction by instruction."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "deploy" / "Containerfile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """An instruction and the number of its stage, from 0."""

    name: str
    text: str
    stage: int

    def words(self) -> list[str]:
        """The arguments of one in the form of a JSON list, after its options."""
        listed: list[str] = json.loads(self.text[self.text.index("[") :])
        return listed


def instructions() -> list[Instruction]:
    """Instructions in order, continued lines joined; those before the first stage have stage -1."""
    lines = [line for line in FILE.read_text().splitlines() if not line.startswith("#")]
    found: list[Instruction] = []
    stage = -1
    for text in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if text.strip():
            name, _, rest = text.strip().partition(" ")
            stage += name == "FROM"
            found.append(Instruction(name=name, text=rest, stage=stage))
    return found


def named(name: str) -> list[Instruction]:
    """Instructions with this name."""
    return [one for one in instructions() if one.name == name]


def copied() -> list[str]:
    """Paths that the build copies from the repository."""
    return [
        path
        for one in named("COPY")
        if not one.text.startswith("--from=")
        for path in one.text.split()[:-1]
    ]


def arguments() -> dict[str, str]:
    """Defaults of the build arguments."""
    return dict(one.text.split("=", 1) for one in named("ARG"))


def variables() -> dict[str, str]:
    """Environment variables of the image."""
    return dict(pair.split("=", 1) for one in named("ENV") for pair in one.text.split())

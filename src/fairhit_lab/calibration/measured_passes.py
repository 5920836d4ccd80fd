"""Reads measured forward passes from CSV: this project's columns, or the VTC artifact's cost profile."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairhit.errors import ConfigError, in_words
from fairhit_lab.sim.engines.interface import Pass

# `prefill`: each of `batch` sequences computes `tokens` tokens behind `context` that are in memory.
# `decode`: each computes one token and reads `context`; `tokens` is ignored.
COLUMNS = ("phase", "batch", "tokens", "context", "seconds")
# Seconds of a whole prefill and of a whole run of decode passes, both divided by the batch.
PROFILE = ("input_tokens", "output_tokens", "batch_size", "prefill_s_per_request",
           "decode_s_per_request")  # fmt: skip
PHASES = ("prefill", "decode")


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPass:
    """The measured time of a forward pass whose sequences are all alike."""

    phase: str
    work: Pass
    seconds: float


def read_passes(path: Path) -> list[MeasuredPass]:
    """Read all passes of a file. Raises ConfigError with file, line and reason."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            columns = tuple(reader.fieldnames or ())
            if set(COLUMNS) <= set(columns):
                parse = _own
            elif set(PROFILE) <= set(columns):
                parse = _profile
            else:
                raise ConfigError(f"{path}:1: expected the columns {','.join(COLUMNS)}")
            found = [each for line in reader for each in parse(line, f"{path}:{reader.line_num}")]
    except OSError as error:
        raise ConfigError(in_words(error)) from None
    except (UnicodeDecodeError, csv.Error):
        raise ConfigError(f"{path}: expected CSV in UTF-8") from None
    if not found:
        raise ConfigError(f"{path}: no measured passes in it")
    return found


def prefill(batch: int, tokens: int, context: float, seconds: float) -> MeasuredPass:
    """A pass that computes `batch` prompts of `tokens` tokens each, after `context` cached tokens each."""
    work = Pass(
        chunks=batch,
        extend_len=batch * tokens,
        attention=round(batch * tokens * (2 * context + tokens)),
    )
    return MeasuredPass(phase="prefill", work=work, seconds=seconds)


def decode(batch: int, context: float, seconds: float) -> MeasuredPass:
    """A decode pass of `batch` sequences, each with `context` tokens in memory."""
    work = Pass(decodes=batch, context=round(batch * context))
    return MeasuredPass(phase="decode", work=work, seconds=seconds)


def _own(line: Mapping[str, str | None], where: str) -> list[MeasuredPass]:
    phase = line["phase"]
    if phase not in PHASES:
        raise ConfigError(f"{where}: phase: expected prefill or decode, got {phase!r}")
    batch = _whole(line, "batch", where)
    context = _number(line, "context", where, least=0)
    seconds = _number(line, "seconds", where)
    if phase == "decode":
        return [decode(batch, context, seconds)]
    return [prefill(batch, _whole(line, "tokens", where), context, seconds)]


def _profile(line: Mapping[str, str | None], where: str) -> list[MeasuredPass]:
    """A prefill, and the mean of the decode passes that follow; the first output needs no decode pass."""
    tokens, outputs, batch = (_whole(line, name, where) for name in PROFILE[:3])
    prefill_s, decode_s = (batch * _number(line, name, where) for name in PROFILE[3:])
    found = [prefill(batch, tokens, 0, prefill_s)]
    if outputs > 1:  # a single pass is mostly noise of the clock
        found.append(decode(batch, tokens + (outputs + 1) / 2, decode_s / outputs))
    return found


def _whole(line: Mapping[str, str | None], name: str, where: str) -> int:
    text = line[name]
    if text is None or not text.strip().isdecimal() or not 1 <= int(text) <= 10**9:
        raise ConfigError(f"{where}: {name}: expected a whole number above 0, got {text!r}")
    return int(text)


def _number(
    line: Mapping[str, str | None], name: str, where: str, least: float | None = None
) -> float:
    text = line[name]
    try:
        number = float(text or "")
    except ValueError:
        number = float("nan")
    if not (number > 0 or number == least) or number > 10**9:
        raise ConfigError(f"{where}: {name}: expected a positive number, got {text!r}")
    return number

"""Kinds of values a setting may have: each reads a text or a parsed value, or names the expected form.

A reader takes what a flag, the environment, YAML or JSON gives, and raises ValueError with one line that
begins with what was expected. The line of a kind that may be secret never repeats the value.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from fairhit.core.costs import parse_cost
from fairhit.core.service import parse_weight
from fairhit.errors import ConfigError

# Characters of a wrong value that an error line repeats.
MOST_REPEATED = 100


@dataclass(frozen=True)
class Kind:
    """A kind of value: its description, and its reader, which raises ValueError for any other value.

    A reader takes its own results, too, unless it `reads_text` only.
    """

    words: str
    read: Callable[[object], Any]
    choices: tuple[str, ...] = ()
    reads_text: bool = False


def refused(words: str, value: object) -> ValueError:
    """The error for a value that is not `words`."""
    return ValueError(f"expected {words}, got {value!r:.{MOST_REPEATED}}")


def whole(least: int | None = None, most: int | None = None, *, words: str = "") -> Kind:
    """Whole numbers from `least` to `most`."""
    words = words or _bounded("a whole number", least, most)

    def read(value: object) -> int:
        try:
            if isinstance(value, bool) or not isinstance(value, int | str | float):
                raise ValueError
            number = int(value)
            if isinstance(value, float) and number != value:
                raise ValueError
        except (ValueError, OverflowError):  # int of an infinity overflows
            raise refused(words, value) from None
        if (least is not None and number < least) or (most is not None and number > most):
            raise refused(words, value)
        return number

    return Kind(words, read)


def real(
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    words: str = "",
) -> Kind:
    """Numbers from `least`, or `above` a bound that is excluded, to `most`."""
    if not words:
        is_open = above is not None
        words = f"a number above {above:g}" if is_open else _bounded("a number", least, most)

    def read(value: object) -> float:
        try:
            if isinstance(value, bool) or not isinstance(value, int | str | float):
                raise ValueError
            number = float(value)
        except (ValueError, OverflowError):
            raise refused(words, value) from None
        below = (least is not None and number < least) or (above is not None and number <= above)
        if math.isnan(number) or below or (most is not None and number > most):
            raise refused(words, value)
        return number

    return Kind(words, read)


def _bounded(words: str, least: float | None, most: float | None) -> str:
    if least is None or (least == 1 and most is None):
        return words if least is None else f"{words} above 0"
    return f"{words} from {least:,}" if most is None else f"{words} from {least:,} to {most:,}"


def one_of(*choices: str) -> Kind:
    """The kind of value that is one of `choices`."""
    words = f"one of {', '.join(choices)}"

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in choices:
            raise refused(words, value)
        return value

    return Kind(words, read, choices)


_SWITCH_WORDS = {
    **dict.fromkeys(("true", "yes", "on", "1", "t", "y"), True),
    **dict.fromkeys(("false", "no", "off", "0", "f", "n"), False),
}


def _read_cost(value: object) -> str:
    """Return the text of a cost that can be parsed."""
    try:
        parse_cost(str(value))
    except ConfigError as error:
        raise ValueError(str(error).removeprefix("cost: ")) from None
    return str(value)


def _read_switch(value: object) -> bool:
    if isinstance(value, int) and value in {0, 1}:
        return bool(value)
    if isinstance(value, str) and value.lower() in _SWITCH_WORDS:
        return _SWITCH_WORDS[value.lower()]
    raise refused("true or false", value)


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a text")
    return value


def _read_filled(value: object) -> str:
    """A variable that is set to nothing, or `--flag "$UNSET"`, gives no value."""
    if not _read_text(value).strip():
        raise ValueError("expected a value, got an empty one")
    return _read_text(value)


def _read_path(value: object) -> Path:
    if not isinstance(value, str | Path):
        raise ValueError("expected a path")
    return Path(value)


def _read_microseconds(value: object) -> int:
    try:
        scaled = Decimal(str(value)) * 10**6
        if not scaled.is_finite() or scaled < 0 or scaled % 1:
            raise InvalidOperation
    except InvalidOperation:
        raise refused("seconds from 0 on, with at most six decimals", value) from None
    return int(scaled)


def list_of(read: Callable[[Any], Any]) -> Kind:
    """A list, or one text with commas or blanks between; texts within a list are split, too."""

    def read_list(value: object) -> tuple[Any, ...]:
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, Sequence):
            raise ValueError("expected a list")
        parts: list[object] = []
        for item in items:
            parts += item.replace(",", " ").split() if isinstance(item, str) else [item]
        return tuple(read(part) for part in parts)

    return Kind("a list", read_list)


def _read_weights(value: object) -> dict[str, str]:
    """Weights by client, each checked, and kept as text for exactness."""
    if isinstance(value, str):
        weights: dict[str, object] = {}
        parts = [part.strip() for part in value.split(",") if part.strip()]
        for part in parts or [value]:
            client, equals, weight = (text.strip() for text in part.rpartition("="))
            if not equals or not client:
                raise refused("CLIENT=WEIGHT,...", part)
            if client in weights:
                raise ValueError(f"client {client!r} is there twice")
            weights[client] = weight
        value = weights
    if not isinstance(value, Mapping) or not all(isinstance(client, str) for client in value):
        raise refused("CLIENT=WEIGHT,... or a mapping of them", value)
    for client, weight in value.items():
        try:
            parse_weight(weight, where=f"weight of client {client!r}")
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return {client: str(weight) for client, weight in value.items()}


SWITCH = Kind("true or false", _read_switch)
TEXT = Kind("a text", _read_text)
FILLED = Kind("a text that is not empty", _read_filled)
PATH = Kind("a path", _read_path)
MICROSECONDS = Kind("seconds, with at most six decimals", _read_microseconds, reads_text=True)
COST = Kind("a cost", _read_cost)
WEIGHTS = Kind("CLIENT=WEIGHT,...", _read_weights)

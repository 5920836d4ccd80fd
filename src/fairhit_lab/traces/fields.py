"""Checks and conversions of single fields of a line; errors are one line of words.

Everything that is read line by line stands on this: traces and the importers' sources. A number
with a fraction stays the text it was written as (`Number`), so that nothing is rounded twice.
"""

import codecs
import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from sys import intern
from typing import Any, cast

from fairhit.core.cache.token_runs import Run, Runs
from fairhit.core.service import parse_weight
from fairhit.errors import ConfigError

MICROSECONDS = 10**6  # in a second
# Above these a number is a mistake in units, not a workload: 3,000 years; a prompt of a terabyte.
MAX_SECONDS = 10**11
MAX_TOKENS = 10**9
MAX_TOKEN_ID = 2**63 - 1


class Number(str):
    """A number as it was written: `0.5`, `1e-3`, `NaN`. Never a string of the file."""

    __slots__ = ()


class WrongField(ConfigError):
    """A field is not what it should be; who reads the file puts its name and line in front."""

    def __init__(self, field: str, expected: str, got: object) -> None:
        super().__init__(f'field "{field}": expected {expected}, got {shown(got)}')


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def number(text: str) -> object:
    """Convert a cell of a CSV file as JSON would: to a number or a string."""
    text = text.strip()
    if text.isdecimal() and text.isascii() and len(text) < 20:
        return int(text)
    return Number(text) if NUMBER.fullmatch(text, endpos=400) else text


def shown(value: object) -> str:
    """A value as the file has it, cut to what a line of an error can carry."""
    try:
        return _cut(str(value) if isinstance(value, Number) else json.dumps(_plain(value)))
    except (TypeError, ValueError, RecursionError):
        return _cut(repr(type(value).__name__))


def _plain(value: object) -> object:
    """Numbers inside lists and objects as numbers again: what is shown should not gain quotes."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return float(value) if isinstance(value, Number) else value


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f'field "{_cut(twice)}": expected once, got twice')
    return record


_DECODER = json.JSONDecoder(parse_float=Number, parse_constant=Number, object_pairs_hook=_unique)
# What its `decode` does, without a search for white space at both ends.
_SCAN: Callable[[str, int], tuple[Any, int]] = cast("Any", _DECODER).scan_once


def parse_json(line: bytes) -> Any:
    """Parse a line of JSON. Raises ConfigError, without file and line."""
    try:
        text = line.strip().decode("utf-8")
        found, end = _SCAN(text, 0)
        if end != len(text):
            raise json.JSONDecodeError("Extra data", text, end)
        if "\\u" in text:
            _require_text(found)
        return found
    except StopIteration as error:
        if line.startswith(codecs.BOM_UTF8):
            raise ConfigError("expected UTF-8 without a byte-order mark, got one") from None
        raise ConfigError(f"malformed JSON: expected a value at column {error.value + 1}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"expected UTF-8, got byte 0x{line[error.start]:02x} at column {error.start + 1}"
        ) from None
    except json.JSONDecodeError as error:
        raise ConfigError(
            f"malformed JSON: {error.msg} at column {error.pos + 1}, got "
            + shown(error.doc[error.pos : error.pos + 30])
        ) from None
    except RecursionError:
        raise ConfigError("malformed JSON: nested too deeply") from None
    except ValueError:
        raise ConfigError("malformed JSON: a number with thousands of digits") from None


def _require_text(value: object, field: str = "") -> None:
    """Refuse text with half of a surrogate pair: an escape can write it, but a UTF-8 file cannot hold it."""
    if isinstance(value, str) and not isinstance(value, Number):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise WrongField(field, "text", value) from None
    elif isinstance(value, list):
        for at, item in enumerate(value):
            _require_text(item, f"{field}[{at}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            name = json.dumps(key)[1:-1]
            _require_text(key, name)
            _require_text(item, f"{field}.{name}" if field else name)


def parse_object(line: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises ConfigError, without file and line."""
    record = parse_json(line)
    if not isinstance(record, dict):
        raise ConfigError(f"expected a JSON object, got {shown(record)}")
    return record


def seconds(us: int) -> str:
    """Microseconds as exact seconds, in as few digits as it takes; also millionths as a weight."""
    whole_s, fraction = divmod(us, MICROSECONDS)
    return f"{whole_s}.{fraction:06d}".rstrip("0") if fraction else str(whole_s)


def microseconds(value: object, field: str) -> int:
    """Seconds as whole microseconds, rounded half up once; whatever was written, to the digit."""
    us = MAX_SECONDS * MICROSECONDS + 1
    if type(value) is int:
        us = value * MICROSECONDS
    elif type(value) is Number:
        whole, _, fraction = value.partition(".")
        if whole.isdecimal() and fraction.isdecimal():
            us = int(whole) * MICROSECONDS + int((fraction + "00000")[:6])
            us += fraction[6:7] >= "5"
        else:
            us = _scaled(value, us)
    if not 0 <= us <= MAX_SECONDS * MICROSECONDS:
        raise WrongField(field, f"seconds from 0 to {MAX_SECONDS}", value)
    return us


def _scaled(text: str, otherwise: int) -> int:
    """As `microseconds`, for what has a sign or an exponent, or is no number at all."""
    number = Decimal(text)
    if not number.is_finite() or number.adjusted() > 12:
        return otherwise
    if (
        number.adjusted() < -7
    ):  # under half a microsecond; also keeps 1e-999999999 from being spelled out
        return 0 if number >= 0 else -1
    exact = Fraction(number) * MICROSECONDS
    return -1 if exact < 0 else int(exact + Fraction(1, 2))


def whole(value: object, field: str, *, least: int = 0, most: int = MAX_TOKENS) -> int:
    """A whole number. True is not 1, and 1.0 is not 1."""
    if type(value) is not int or not least <= value <= most:
        raise WrongField(field, f"a whole number from {least} to {most}", value)
    return value


def name(value: object, field: str) -> str:
    """A string that is not empty."""
    if type(value) is not str or not value:
        raise WrongField(field, "a string that is not empty", value)
    return value


def weight(value: object, field: str = "weight") -> int:
    """A client's weight in millionths."""
    expected = "a positive number under 10^9 with at most six decimals"
    try:
        if type(value) not in {int, Number} or not 0 < Decimal(str(value)) < 10**9:
            raise WrongField(field, expected, value)
        return parse_weight(value)
    except (ConfigError, InvalidOperation):
        raise WrongField(field, expected, value) from None


def tokens(value: object, field: str) -> Runs:
    """Parse a prompt, [token ids] or [[segment, length], ...], not empty, not mixed. O(items)."""
    if type(value) is not list or not value:
        raise WrongField(field, "token ids or [segment, length] pairs, at least one", value)
    return Runs([_ids(value, field)] if type(value[0]) is int else _pairs(value, field))


def _ids(value: list[Any], field: str) -> Run:
    if set(map(type, value)) != {int} or min(value) < 0 or max(value) > MAX_TOKEN_ID:
        at, wrong = next(
            (at, item)
            for at, item in enumerate(value)
            if type(item) is not int or not 0 <= item <= MAX_TOKEN_ID
        )
        raise WrongField(f"{field}[{at}]", f"a token id from 0 to {MAX_TOKEN_ID}", wrong)
    return (tuple(value), 0, len(value))


def _pairs(value: list[Any], field: str) -> Sequence[Run]:
    runs: list[Run] = []
    for item in value:
        if type(item) is list and len(item) == 2:
            segment, length = item
            if type(segment) is str and type(length) is int and 0 < length <= MAX_TOKENS:
                # Equal names are one object: less memory, and a comparison is one of addresses.
                runs.append((intern(segment), 0, length))
                continue
        raise WrongField(f"{field}[{len(runs)}]", f"[segment, length from 1 to {MAX_TOKENS}]", item)
    return runs

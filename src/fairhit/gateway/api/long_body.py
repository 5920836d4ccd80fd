"""Bodies too long to be parsed in one step: their outline, and a shortened body that is parsed instead.

The outline has the position of each field of the object. Expressions that distinguish strings, brackets
and the rest find it in steps. In valid JSON these are the fields that a parser would find; errors inside a
field are reported by the engine. The shortened body has all short fields, and the beginning of each long
one: cached prefixes are still found, since a conversation's first mebibyte was indexed when it was shorter.
"""

import re
from dataclasses import dataclass
from typing import Final

import orjson

from fairhit.errors import BadRequest
from fairhit.gateway.http.read_budget import ITERATION, STEP, Steps
from fairhit.gateway.proxy.incoming_request import Body

# Lists and objects, which cost a parser more than their bytes: in one call of the parser, and in one body.
_MAX_PARSED: Final = 1 << 15
_MAX_LISTS: Final = 1 << 18
# Lists and objects in one step.
_LISTS_AT_ONCE: Final = 1 << 13
_MAX_FIELDS: Final = 1 << 10
_MAX_NAME: Final = 1 << 10

_BLANKS = re.compile(rb"[ \t\n\r]*+")
_SCALAR = re.compile(rb'[^ \t\n\r,{}\[\]":]++')
# The characters of a string between its quotes, or up to the end of the data.
_CHARACTERS = re.compile(rb'(?s:[^"\\]*+(?:\\.[^"\\]*+)*+)')
# Up to the next bracket outside of strings.
_FLAT = re.compile(rb'(?s:[^"\[\]{}]*+(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"[^"\[\]{}]*+)*+)')
# A string is not cut behind half of a pair of escapes, or half of an escape.
_HALF = re.compile(rb"(?:\\u[dD][89abAB][0-9a-fA-F]{2})?+(?:\\u[0-9a-fA-F]{0,3})?+\Z")
_HALF_LEN: Final = 11
_QUOTE: Final = 0x22
_OPEN: Final = frozenset(b"[{")
_CLOSING = {0x5B: b"]", 0x7B: b"}"}


@dataclass(slots=True, frozen=True)
class Field:
    """A field of the object: its name, and the position of its value."""

    name: str
    begin: int
    end: int


@dataclass(slots=True, frozen=True)
class Outline:
    """The fields of a body in order, repeated names included."""

    fields: tuple[Field, ...]

    def shortened(self, body: Body) -> bytes:
        """A body of about `ITERATION` bytes at most, with the beginning of each long field. O(ITERATION)."""
        # Names are serialized again: there may be mebibytes of blanks around a colon.
        names = [orjson.dumps(field.name) + b":" for field in self.fields]
        lengths = [field.end - field.begin for field in self.fields]
        shares = _shares(lengths, max(0, ITERATION - sum(map(len, names))))
        parts, lists = [], _MAX_PARSED
        for field, name, share in zip(self.fields, names, shares, strict=True):
            value = bytes(body[field.begin : field.begin + share])
            value, lists = _cut(value, lists, is_whole=share == field.end - field.begin)
            parts.append(name + value)
        return b"{" + b",".join(parts) + b"}"


def is_short(body: Body) -> bool:
    """True if a body is parsed in one call: `STEP` bytes of anything, `ITERATION` of text. O(body)."""
    return len(body) <= STEP or (len(body) <= ITERATION and _few_lists(body))


def outline(body: Body) -> Steps[Outline]:
    """Find the fields of `body`. Raises BadRequest if it is no object, or one of too many parts."""
    yield STEP
    scan = _Scan(body)
    fields: list[Field] = []
    yield from scan.blanks()
    scan.expect(b"{")
    yield from scan.blanks()
    while scan.next() != b"}":
        if fields:
            scan.expect(b",")
            yield from scan.blanks()
        named_at = scan.at
        scan.expect(b'"')
        yield from scan.string()
        name = _name(body, named_at, scan.at)
        yield from scan.blanks()
        scan.expect(b":")
        yield from scan.blanks()
        begin = scan.at
        yield from scan.value()
        fields.append(Field(name, begin, scan.at))
        if len(fields) > _MAX_FIELDS:
            raise BadRequest(f"a long body may have {_MAX_FIELDS} fields at most")
        yield from scan.blanks()
    scan.expect(b"}")
    yield from scan.blanks()
    if scan.at < len(body):
        raise _not_json("something follows the object")
    return Outline(tuple(fields))


class _Scan:
    """A position in a body, and the end of the current step."""

    def __init__(self, body: Body) -> None:
        self.at = 0
        self._body = body
        self._until = min(STEP, len(body))
        self._lists = 0

    def next(self) -> bytes:
        """The byte at the position; empty at the end."""
        return bytes(self._body[self.at : self.at + 1])

    def expect(self, byte: bytes) -> None:
        """Skip `byte`. Raises BadRequest if there is another byte."""
        if self.next() != byte:
            raise _not_json(f"{byte.decode()} is missing at byte {self.at}")
        self.at += 1

    def blanks(self) -> Steps[None]:
        """Skip blanks."""
        yield from self._run(_BLANKS)

    def string(self) -> Steps[None]:
        """Skip a string, from behind its first quote."""
        yield from self._run(_CHARACTERS)
        self.expect(b'"')

    def value(self) -> Steps[None]:
        """Skip any value."""
        byte = self.next()
        if byte == b'"':
            self.at += 1
            yield from self.string()
        elif byte in {b"[", b"{"}:
            yield from self._container()
        else:
            begin = self.at
            yield from self._run(_SCALAR)
            if self.at == begin:
                raise _not_json(f"a value is missing at byte {begin}")

    def _container(self) -> Steps[None]:
        """Skip a list or an object, up to the next bracket in each round."""
        body, flat_end, depth = self._body, _FLAT.match, 0
        while True:
            byte = body[self.at]
            self.at += 1
            if byte in _OPEN:
                depth += 1
                self._lists += 1
                if self._lists > _MAX_LISTS:
                    raise BadRequest(f"a long body may have {_MAX_LISTS:,} lists and objects")
                if not self._lists % _LISTS_AT_ONCE:
                    yield STEP
            elif byte == _QUOTE:  # of a string that ends in a later step
                yield from self.string()
            else:
                depth -= 1
                if not depth:
                    return
            found = flat_end(body, self.at, self._until)
            assert found is not None, "it may be empty"
            self.at = found.end()
            if self._until - self.at < 2:
                yield from self._run(_FLAT)
                if self.at == len(body):
                    raise _not_json("a list or an object does not end")

    def _run(self, pattern: re.Pattern[bytes]) -> Steps[None]:
        """Skip what `pattern` matches, over the ends of steps."""
        body = self._body
        while True:
            found = pattern.match(body, self.at, self._until)
            if found is not None:
                self.at = found.end()
            if self._until == len(body):
                return
            left = self._until - self.at
            # The last byte of a step may be a backslash.
            if left > 1 or (left == 1 and body[self.at] != 0x5C):
                return
            self._until = min(self._until + STEP, len(body))
            yield STEP


def _cut(value: bytes, lists: int, *, is_whole: bool) -> tuple[bytes, int]:
    """Make the beginning of a value, or all of it, a value with at most `lists` lists and objects; returns
    how many of these are left, too. O(value).
    """
    stack, at, end = bytearray(), 0, len(value)
    while (at := _flat_end(value, at, end)) < end:
        byte = value[at]
        if byte == _QUOTE:
            return _cut_string(value, at, end, stack), lists
        if byte in _OPEN:
            if not lists:
                return _cut_flat(value, at, stack), 0
            lists -= 1
            stack.append(byte)
        elif stack:
            stack.pop()
        at += 1
    return value if is_whole else _cut_flat(value, end, stack), lists


def _cut_flat(value: bytes, end: int, stack: bytearray) -> bytes:
    """`_cut` where no string is open at the end: up to the last comma, unless that is in a string."""
    bracket = max(value.rfind(one, 0, end) for one in (b"[", b"{", b"]", b"}", b'"'))
    comma = value.rfind(b",", bracket + 1, end)
    if comma >= 0:
        return _closed(value[:comma], stack)
    if bracket >= 0 and value[bracket] == _QUOTE:
        begin = _string_begin(value, bracket)
        return _cut_string(value, begin, bracket, stack)
    return _closed(value[: bracket + 1], stack)


def _string_begin(value: bytes, last: int) -> int:
    """Position of the first quote of the string whose last quote is at `last`. O(value)."""
    at = 0
    while True:
        at = _flat_end(value, at, last)
        if value[at] == _QUOTE:
            return at
        at += 1


def _flat_end(value: bytes, at: int, end: int) -> int:
    found = _FLAT.match(value, at, end)
    assert found is not None, "it may be empty"
    return found.end()


def _cut_string(value: bytes, begin: int, end: int, stack: bytearray) -> bytes:
    """`_cut` where the string from `begin` on is cut: it is kept up to `end`, unless it is a name."""
    before = value[:begin].rstrip()
    in_object = bool(stack) and stack[-1] == 0x7B
    if in_object and not before.endswith(b":"):
        return _closed(before.removesuffix(b","), stack)
    found = _CHARACTERS.match(value, begin + 1, end)
    assert found is not None, "it may be empty"
    last = found.end()
    half = _HALF.search(value, max(begin + 1, last - _HALF_LEN), last)
    if half is not None and half.start() < last:
        found = _CHARACTERS.match(value, begin + 1, half.start())
        assert found is not None, "it may be empty"
        last = found.end()
    return _closed(value[: _character_end(value, begin + 1, last)] + b'"', stack)


def _character_end(value: bytes, begin: int, end: int) -> int:
    """`end`, or the position of the UTF-8 character that `end` is inside."""
    for back in range(1, min(3, end - begin) + 1):
        byte = value[end - back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            return end if back >= (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4) else end - back
    return end


def _closed(value: bytes, stack: bytearray) -> bytes:
    """`value` with its open lists and objects closed."""
    return (value.rstrip() or b"null") + b"".join(_CLOSING[byte] for byte in reversed(stack))


def _shares(lengths: list[int], total: int) -> list[int]:
    """Divide `total` bytes: short fields get all they need, long ones equal shares."""
    shares, left = [0] * len(lengths), total
    for number, at in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        shares[at] = min(lengths[at], left // (len(lengths) - number))
        left -= shares[at]
    return shares


def _few_lists(body: Body) -> bool:
    return len(body) <= _MAX_PARSED or body.count(b"[") + body.count(b"{") <= _MAX_PARSED


def _name(body: Body, begin: int, end: int) -> str:
    if end - begin > _MAX_NAME:
        raise BadRequest(f"the name of a field is longer than {_MAX_NAME} bytes")
    try:
        return str(orjson.loads(body[begin:end]))
    except orjson.JSONDecodeError as error:
        raise _not_json(f"a field's name: {error}") from None


def _not_json(why: str) -> BadRequest:
    return BadRequest(f"the body is not valid JSON: {why}")

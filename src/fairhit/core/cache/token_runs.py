"""A prompt as a few runs of tokens, so that a million cached tokens are a few hundred objects.

A token is (segment, index): the run (A, 0, 10) is a prefix of (A, 0, 20) (DESIGN 6.1). Plain token ids are a
segment kind of their own: a run whose segment is the tuple of ids itself, or an engine's array of them, which
must not be changed. Prefix trees need three operations of a prompt: its length, the unit at one position, and
the length of its common prefix with another prompt.
"""

from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, overload

from fairhit.core.request import Unit

Segment: TypeAlias = "Hashable | array[int]"
# (segment, offset, length): the tokens offset .. offset + length - 1 of the segment.
Run: TypeAlias = tuple[Segment, int, int]
# (segment, shift, end): from the end of the previous span up to `end`, the token at position `at` is the
# segment's token at + shift. A span that two prompts share is equal in both.
Span: TypeAlias = tuple[Segment, int, int]


class Runs(Sequence[Unit]):
    """An immutable sequence of tokens in normal form: adjacent runs that could be one run are one run.

    So equal tokens have equal spans, and the runs of two prompts end at the same positions up to the run in
    which the prompts part.
    """

    __slots__ = ("bulk", "ends", "length", "spans")

    def __init__(self, runs: Iterable[Run]) -> None:
        spans: list[Span] = []
        at = plain = 0
        last: Segment = None
        last_shift = 0
        for segment, offset, length in runs:
            assert length >= 0 and offset >= 0, (segment, offset, length)
            if not length:
                continue
            shift = offset - at
            at += length
            if isinstance(segment, (tuple, array)):  # only the ids that are used
                whole = not offset and length == len(segment)
                ids = segment if whole else segment[offset : offset + length]
                assert len(ids) == length, (len(segment), offset, length)
                plain += length
                if isinstance(last, (tuple, array)):
                    last = _joined(last, ids)
                    spans[-1] = (last, last_shift, at)
                    continue
                last, last_shift = ids, length - at
            elif shift == last_shift and segment == last and spans:
                spans[-1] = (last, last_shift, at)
                continue
            else:
                last, last_shift = segment, shift
            spans.append((last, last_shift, at))
        self.spans = tuple(spans)
        self.ends = tuple([span[2] for span in spans])
        self.length = at
        self.bulk = plain + len(spans)  # plain tokens and runs: the size in memory

    @classmethod
    def of(cls, tokens: Sequence[Unit]) -> "Runs":
        """Return any prompt as runs. O(1) for runs and tuples."""
        if type(tokens) is cls:
            return tokens
        return cls(((tuple(tokens), 0, len(tokens)),))

    @property
    def runs(self) -> tuple[Run, ...]:
        """Runs that make an equal prompt. O(runs)."""
        starts = (0, *self.ends)
        return tuple(
            (segment, start + shift, end - start)
            for (segment, shift, end), start in zip(self.spans, starts, strict=False)
        )

    def units(self) -> Sequence[Unit]:
        """Return the tokens one by one. O(1) if all are plain, else O(length)."""
        if len(self.spans) == 1 and isinstance(plain := self.spans[0][0], (tuple, array)):
            return plain
        return tuple([self.unit(at) for at in range(self.length)])

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, at: int) -> Unit: ...
    @overload
    def __getitem__(self, at: slice) -> "Runs": ...
    def __getitem__(self, at: int | slice) -> "Unit | Runs":
        """Return a token, O(log runs), or a slice as runs, O(runs)."""
        return self._cut(at) if isinstance(at, slice) else self.unit(at)

    def unit(self, at: int) -> Unit:
        """Return the token at position `at`. O(log runs)."""
        segment, shift, _ = self.spans[bisect_right(self.ends, at)]
        if isinstance(segment, (tuple, array)):
            return segment[at + shift]
        return (segment, at + shift)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self.units())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self.spans == other.spans

    def __hash__(self) -> int:
        return hash(self.spans)

    def __repr__(self) -> str:
        return f"Runs({list(self.runs)})"

    def __add__(self, more: "Runs") -> "Runs":
        return Runs((*self.runs, *more.runs))

    def _cut(self, part: slice) -> "Runs":
        start, stop, step = part.indices(len(self))
        assert step == 1, part
        kept, begin = [], 0
        for segment, shift, end in self.spans:
            first, last = max(start, begin), min(stop, end)
            if first < last:
                kept.append((segment, first + shift, last - first))
            begin = end
        return Runs(kept)


def common_len(a: Sequence[Unit], b: Sequence[Unit], start: int, end: int) -> int:
    """Return the length of the common prefix of `a` and `b`, which is at least `start`, up to `end`.

    Both are at least `end` long. Both are runs, or plain sequences of one type. O(runs), at C speed
    O(end - start) for plain tokens.
    """
    if type(a) is not Runs or type(b) is not Runs:
        assert type(a) is type(b), (type(a), type(b))
        return _common_units(a, b, start, end)
    if start >= end:
        return end
    index = bisect_right(a.ends, start)
    if (
        index and a.ends[index - 1] != b.ends[index - 1]
    ):  # a run of `b` continues where a run of `a` ends
        return start
    return agree(a.spans, b.spans, index, start, end)[0]


def agree(
    spans: Sequence[Span], others: Sequence[Span], index: int, at: int, end: int
) -> tuple[int, int]:
    """Return the length up to which two prompts agree, at most `end`, and the index of the span from there.

    The prompts agree up to `at`, which in both is in, or at the beginning of, span number `index`.
    """
    while at < end:
        span, other = spans[index], others[index]
        if type(span[0]) is tuple or type(span[0]) is array:
            stop = _common_ids(span, other, at, end)
        elif span == other:
            stop = span[2]
        elif span[0] == other[0] and span[1] == other[1]:
            stop = min(span[2], other[2])
        else:
            return at, index
        if stop >= end:
            return end, index + 1 if span[2] == end else index
        at = stop
        if stop < span[2] or stop < other[2]:  # one of the runs ends here, or the prompts part
            return at, index
        index += 1
    return at, index


def _joined(a: Any, b: Any) -> Any:
    """Join plain tokens, tuples or arrays of one type. Not by +=, which would change an array."""
    assert type(a) is type(b), (type(a), type(b))
    return a + b


def _common_ids(span: Span, other: Span, at: int, end: int) -> int:
    """Return the position up to which two spans agree, the first of them of plain tokens."""
    a, b = span[0], other[0]
    if not isinstance(a, (tuple, array)) or not isinstance(b, (tuple, array)):
        return at
    shift = span[1]
    assert shift == other[1], (span[1:], other[1:])
    return _common_units(a, b, at + shift, min(end, span[2], other[2]) + shift) - shift


def _common_units(a: Sequence[Unit], b: Sequence[Unit], start: int, end: int) -> int:
    """Return the position up to which two sequences agree: slices are compared, at C speed, and halved."""
    if a[start:end] == b[start:end]:
        return end
    low, high = start, end  # equal up to low, different somewhere before high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low

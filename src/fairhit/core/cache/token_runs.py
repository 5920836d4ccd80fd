"""A prompt as a few runs of tokens, so that a million cached tokens are a few hundred objects.

A token is (segment, index): the run (A, 0, 10) is a prefix of (A, 0, 20) (DESIGN 6.1). Plain token
ids are a segment kind of their own: a run whose segment is the tuple of ids itself, or an engine's own
array of them, which nobody may change. Every prefix tree is keyed by what it asks of a prompt: its length,
the unit at one place, and how far it agrees with another one. A prompt that is a plain sequence can be
taken as one run.
"""

from array import array
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias, overload

from fairhit.core.request import Unit

Segment: TypeAlias = "Hashable | array[int]"
# (segment, offset, length): the tokens offset .. offset + length - 1 of the segment.
Run: TypeAlias = tuple[Segment, int, int]
# (segment, shift, end): from where the span before ends up to `end`, the token at `at` is the
# segment's token at + shift. Two prompts that agree so far agree in an equal span, wherever it is.
Span: TypeAlias = tuple[Segment, int, int]


class Runs(Sequence[Unit]):
    """An immutable sequence of tokens in normal form: what could be one run is one run.

    So equal tokens have equal spans, and two prompts that agree have their runs end at the same
    places, but for the run in which they part.
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
            if isinstance(segment, (tuple, array)):  # cut to what is used of it
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
        self.bulk = plain + len(spans)  # what it keeps in memory

    @classmethod
    def of(cls, tokens: Sequence[Unit]) -> "Runs":
        """Any prompt as runs. O(1) for runs and tuples."""
        if type(tokens) is cls:
            return tokens
        return cls(((tuple(tokens), 0, len(tokens)),))

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, as they could be given to make the same prompt. O(runs)."""
        starts = (0, *self.ends)
        return tuple(
            (segment, start + shift, end - start)
            for (segment, shift, end), start in zip(self.spans, starts, strict=False)
        )

    def units(self) -> Sequence[Unit]:
        """The tokens, one by one. O(1) where all are plain, O(length) if not."""
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
        """One token, or a stretch of them as runs. O(log runs), O(runs)."""
        return self._cut(at) if isinstance(at, slice) else self.unit(at)

    def unit(self, at: int) -> Unit:
        """The token at `at`, which names a child in a tree. O(log runs)."""
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

    def _cut(self, stretch: slice) -> "Runs":
        start, stop, step = stretch.indices(len(self))
        assert step == 1, stretch
        kept, begin = [], 0
        for segment, shift, end in self.spans:
            first, last = max(start, begin), min(stop, end)
            if first < last:
                kept.append((segment, first + shift, last - first))
            begin = end
        return Runs(kept)


def common_len(a: Sequence[Unit], b: Sequence[Unit], start: int, end: int) -> int:
    """How far `a` and `b`, which agree up to `start`, agree; at most `end`, which both reach.

    Both are runs, or both plain sequences of one type. O(runs), at C speed O(end - start) for plain
    tokens.
    """
    if type(a) is not Runs or type(b) is not Runs:
        assert type(a) is type(b), (type(a), type(b))
        return _common_units(a, b, start, end)
    if start >= end:
        return end
    place = bisect_right(a.ends, start)
    if place and a.ends[place - 1] != b.ends[place - 1]:  # a run of b's goes on where a's has ended
        return start
    return agree(a.spans, b.spans, place, start, end)[0]


def agree(
    spans: Sequence[Span], others: Sequence[Span], place: int, at: int, end: int
) -> tuple[int, int]:
    """How far two prompts agree, and the place of the span that goes on from there.

    They agree up to `at`, where for both the span at `place` goes on; at most up to `end`.
    """
    while at < end:
        span, other = spans[place], others[place]
        if type(span[0]) is tuple or type(span[0]) is array:
            stop = _common_ids(span, other, at, end)
        elif span == other:
            stop = span[2]
        elif span[0] == other[0] and span[1] == other[1]:
            stop = min(span[2], other[2])
        else:
            return at, place
        if stop >= end:
            return end, place + 1 if span[2] == end else place
        at = stop
        if stop < span[2] or stop < other[2]:  # one of the runs has ended here, or they part in it
            return at, place
        place += 1
    return at, place


def _joined(a: Any, b: Any) -> Any:
    """Plain tokens of both: tuples or arrays, but alike. Not by +=, which would change an array."""
    assert type(a) is type(b), (type(a), type(b))
    return a + b


def _common_ids(span: Span, other: Span, at: int, end: int) -> int:
    """How far two spans, the first of plain tokens, agree; at most up to where one ends."""
    a, b = span[0], other[0]
    if not isinstance(a, (tuple, array)) or not isinstance(b, (tuple, array)):
        return at
    shift = span[1]
    assert shift == other[1], (span[1:], other[1:])
    return _common_units(a, b, at + shift, min(end, span[2], other[2]) + shift) - shift


def _common_units(a: Sequence[Unit], b: Sequence[Unit], start: int, end: int) -> int:
    """Compares slices, halving where they differ, so that the work is done at C speed."""
    if a[start:end] == b[start:end]:
        return end
    low, high = start, end  # they agree up to low and differ somewhere before high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low

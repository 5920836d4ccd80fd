"""A prompt as a few runs of tokens, so that a million cached tokens are a few hundred objects.

A token is (segment, index): the run (A, 0, 10) is a prefix of (A, 0, 20) (DESIGN 6.1). Plain token
ids are a segment kind of their own: a run whose segment is the tuple of ids itself. A prefix tree
asks a prompt for three things only, whatever it is made of: its length, the unit at one place, and
`common_len` with another.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TypeAlias, overload

from fairlead.core.request import Unit

Segment: TypeAlias = Hashable
# (segment, offset, length): the tokens offset .. offset + length - 1 of the segment.
Run: TypeAlias = tuple[Segment, int, int]


class Runs(Sequence[Unit]):
    """An immutable sequence of tokens in normal form: what could be one run is one run.

    So equal tokens have equal runs, and two prompts that agree have their runs end at the same
    places, but for the run in which they part.
    """

    __slots__ = ("ends", "runs")

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = tuple(_normal(runs))
        self.ends = tuple(accumulate(run[2] for run in self.runs))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    @overload
    def __getitem__(self, at: int) -> Unit: ...
    @overload
    def __getitem__(self, at: slice) -> "Runs": ...
    def __getitem__(self, at: int | slice) -> "Unit | Runs":
        """The token at `at`, as a child's key in a tree; or a stretch of them. O(log runs), O(runs)."""
        if isinstance(at, slice):
            return self._cut(at)
        place = bisect_right(self.ends, at)
        segment, offset, length = self.runs[place]
        index = at - self.ends[place] + length + offset
        return segment[index] if isinstance(segment, tuple) else (segment, index)

    def __iter__(self) -> Iterator[Unit]:
        return (self[at] for at in range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and self.runs == other.runs

    def __hash__(self) -> int:
        return hash(self.runs)

    def __repr__(self) -> str:
        return f"Runs({list(self.runs)})"

    def __add__(self, more: "Runs") -> "Runs":
        return Runs((*self.runs, *more.runs))

    def _cut(self, stretch: slice) -> "Runs":
        start, stop, step = stretch.indices(len(self))
        assert step == 1, stretch
        kept = []
        for (segment, offset, length), end in zip(self.runs, self.ends, strict=True):
            first, last = max(start, end - length), min(stop, end)
            if first < last:
                kept.append((segment, offset + first - (end - length), last - first))
        return Runs(kept)


def common_len(a: Sequence[Unit], b: Sequence[Unit], start: int, end: int) -> int:
    """How far `a` and `b`, which agree up to `start`, agree; at most `end`, which both reach.

    Both are of one kind. O(runs), and at C speed O(end - start) where there are token ids.
    """
    if type(a) is Runs:
        assert type(b) is Runs
        return _common_runs(a, b, start, end)
    return _common_units(a, b, start, end)


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


def _common_runs(a: Runs, b: Runs, start: int, end: int) -> int:
    if start >= end:
        return end
    place = bisect_right(a.ends, start)
    begin = a.ends[place - 1] if place else 0
    if place and b.ends[place - 1] != begin:  # b's run before goes on where a's has ended
        return start
    for one, other in zip(a.runs[place:], b.runs[place:], strict=False):
        length = min(one[2], other[2])
        if isinstance(one[0], tuple) and isinstance(other[0], tuple):
            first, last = max(start - begin, 0), min(end - begin, length)
            same = _common_units(one[0], other[0], first, last)
        else:
            same = length if one[:2] == other[:2] else 0
        begin += same
        if begin >= end:
            return end
        if same < length or one[2] != other[2]:
            return max(start, begin)
    return begin


def _normal(runs: Iterable[Run]) -> Iterator[Run]:
    """The same tokens in as few runs as possible; tuples of ids are cut to what is used of them."""
    last: Run | None = None
    for segment, offset, length in runs:
        assert length >= 0 and offset >= 0, (segment, offset, length)
        if not length:
            continue
        run: Run = (segment, offset, length)
        if isinstance(segment, tuple):
            run = (segment[offset : offset + length], 0, length)
        if last is not None:
            joined = _joined(last, run)
            if joined is None:
                yield last
            last = joined or run
        else:
            last = run
    if last is not None:
        yield last


def _joined(a: Run, b: Run) -> Run | None:
    """Both as one run, if they are one."""
    if isinstance(a[0], tuple) and isinstance(b[0], tuple):
        return (a[0] + b[0], 0, a[2] + b[2])
    if a[0] == b[0] and a[1] + a[2] == b[1]:
        return (a[0], a[1], a[2] + b[2])
    return None

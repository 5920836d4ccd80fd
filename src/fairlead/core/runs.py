"""A prompt as a few runs of tokens, so that a million cached tokens are a few hundred objects.

A token is (segment, index): the run (A, 0, 10) is a prefix of (A, 0, 20) (DESIGN 6.1). Plain token
ids are a segment kind of their own: a run whose segment is the tuple of ids itself.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator
from itertools import accumulate
from typing import TypeAlias

from fairlead.core.request import Unit

Segment: TypeAlias = Hashable
# (segment, offset, length): the tokens offset .. offset + length - 1 of the segment.
Run: TypeAlias = tuple[Segment, int, int]


class Runs:
    """An immutable sequence of tokens in normal form: what could be one run is one run."""

    __slots__ = ("ends", "runs")

    def __init__(self, runs: Iterable[Run]) -> None:
        self.runs = tuple(_normal(runs))
        self.ends = tuple(accumulate(run[2] for run in self.runs))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def __getitem__(self, at: int) -> Unit:
        """The token at `at`, as a child's key in a tree. O(log runs)."""
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

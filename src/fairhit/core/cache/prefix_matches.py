"""Lengths of one prompt that workers have cached, longest first: the answer of an index to a router.

A number for each worker would be a thousand writes per request where a thousand workers hold the same system
prompt. A few lengths, each with its set of workers, are enough; the sets are shared with the index and valid
until the index changes.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from fairhit.core.request import WorkerId

# A length, in tokens or in the units of an index, and workers that each hold at least that much of a prompt.
# A worker that holds that much is listed at this length or at a greater one.
WorkersOfLength: TypeAlias = tuple[int, Collection[WorkerId]]


class PrefixMatches:
    """Workers by matched length: longest first, each length once, no length 0."""

    __slots__ = ("by_length",)

    def __init__(self, by_length: Sequence[WorkersOfLength] = ()) -> None:
        self.by_length = by_length

    @classmethod
    def of_each(cls, matched: Mapping[WorkerId, int]) -> "PrefixMatches":
        """Make matches from a length per worker; workers with length 0 may be left out. O(workers)."""
        by_length: dict[int, list[WorkerId]] = {}
        for worker, length in matched.items():
            if length:
                by_length.setdefault(length, []).append(worker)
        return cls(sorted(by_length.items(), reverse=True))

    def of(self, worker: WorkerId) -> int:
        """Return how much of the prompt `worker` holds. O(lengths)."""
        for length, workers in self.by_length:
            if worker in workers:
                return length
        return 0

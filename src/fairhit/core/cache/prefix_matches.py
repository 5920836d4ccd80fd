"""How much of one prompt each worker has cached, longest first: what an index tells, and a router hears.

In a fleet of a thousand workers that all hold a system prompt, a number for each worker would be a
thousand writes a request. So this is a handful of *levels*, and the holders of a level are shared
with the index that made it: it is true until that index changes.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from fairhit.core.request import WorkerId

# (length in tokens, or in an index's own units; workers): each of them holds that much of the prompt at
# least, and whoever does is in this level or in a longer one.
Level: TypeAlias = tuple[int, Collection[WorkerId]]


class PrefixMatches:
    """The levels of one prompt, longest first, each length once, none of length 0."""

    __slots__ = ("levels",)

    def __init__(self, levels: Sequence[Level] = ()) -> None:
        self.levels = levels

    @classmethod
    def of_each(cls, matched: Mapping[WorkerId, int]) -> "PrefixMatches":
        """From a length for each worker; those with 0 need not be named. O(workers)."""
        levels: dict[int, list[WorkerId]] = {}
        for worker, length in matched.items():
            if length:
                levels.setdefault(length, []).append(worker)
        return cls(sorted(levels.items(), reverse=True))

    def of(self, worker: WorkerId) -> int:
        """How much of the prompt `worker` holds. O(levels)."""
        for length, holders in self.levels:
            if worker in holders:
                return length
        return 0


NO_MATCHES = PrefixMatches()

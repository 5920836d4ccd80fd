"""Workers in the order of their work: the least loaded that will do is found without asking all.

A sorted list, since a thousand entries are moved faster than a heap's stale ones are dropped.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from fairhit.core.request import WorkerId

# Of many allowed workers one is usually among the least loaded; only if not are all of them asked.
_FIRST_STEPS: Final = 32
# An entry is one integer, for the list compares them often: the work, then the order of arrival.
_RANK_BITS: Final = 40
_RANK: Final = (1 << _RANK_BITS) - 1


class LoadOrder:
    """Up workers by (work, order of arrival). Equals are taken in turn, beginning where `turn` says.

    `turn` is a hash of the client, so that the clients spread over idle workers.
    """

    def __init__(self) -> None:
        self._entries: dict[WorkerId, int] = {}
        self._order: list[int] = []  # the entries, sorted
        self._workers: dict[int, WorkerId] = {}  # by their order of arrival, which none has twice
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._entries

    def add(self, worker: WorkerId) -> None:
        """`worker` is up and idle. O(workers), at memory's speed, as every change here."""
        assert worker not in self._entries, worker
        self._entries[worker] = self._arrivals
        self._workers[self._arrivals] = worker
        insort(self._order, self._arrivals)
        self._arrivals += 1

    def remove(self, worker: WorkerId) -> None:
        """`worker` is gone."""
        entry = self._entries.pop(worker)
        del self._order[bisect_left(self._order, entry)]
        del self._workers[entry & _RANK]

    def load(self, worker: WorkerId) -> int:
        """The work at `worker`. O(1)."""
        return self._entries[worker] >> _RANK_BITS

    def change(self, worker: WorkerId, by: int) -> None:
        """`worker` has that much more to do, or less."""
        order, entry = self._order, self._entries[worker]
        del order[bisect_left(order, entry)]
        entry += by << _RANK_BITS
        assert entry >= 0, (worker, entry >> _RANK_BITS)
        self._entries[worker] = entry
        insort(order, entry)

    def ascending(self, turn: int = 0) -> Iterator[WorkerId]:
        """All workers, the least loaded first. O(log workers) each at most."""
        order, workers = self._order, self._workers
        low = 0
        while low < len(order):
            high, start = self._equals(low, turn)
            for at in range(start, high):
                yield workers[order[at] & _RANK]
            for at in range(low, start):
                yield workers[order[at] & _RANK]
            low = high

    def least(
        self,
        turn: int = 0,
        *,
        among: Collection[WorkerId] | None = None,
        candidates: Collection[WorkerId] | None = None,
        but: Collection[WorkerId] = (),
    ) -> WorkerId | None:
        """The least loaded of `among` and `candidates` (None: all), `but` left out; None if none is.

        O(log workers), and where the few least loaded will not do O(the smaller of the two, or all).
        """
        wanted = candidates if among is None else among
        if wanted is None:
            for worker in self.ascending(turn):
                if worker not in but:
                    return worker
            return None
        also = None if among is None else candidates
        if len(wanted) > _FIRST_STEPS:
            for worker in islice(self.ascending(turn), _FIRST_STEPS):
                if worker in wanted and worker not in but and (also is None or worker in also):
                    return worker
        entries = self._entries
        allowed = sorted(
            [
                entries[worker]
                for worker in wanted
                if worker not in but and (also is None or worker in also)
            ]
        )
        if not allowed:
            return None
        least = allowed[0]
        if len(allowed) > 1 and allowed[1] >> _RANK_BITS == least >> _RANK_BITS:
            least = self._first(allowed, turn)
        return self._workers[least & _RANK]

    def check(self) -> None:
        """Every invariant. O(workers)."""
        assert self._order == sorted(self._entries.values())
        for worker, entry in self._entries.items():
            assert self._workers[entry & _RANK] == worker
        assert len(self._workers) == len(self._entries)

    def _equals(self, low: int, turn: int) -> tuple[int, int]:
        """Where those with the work of the one at `low` end, and at which of them the turn begins."""
        order = self._order
        above = (order[low] | _RANK) + 1
        high = low + 1
        if high < len(order) and order[high] < above:
            high = bisect_left(order, above, high)
        return high, low + turn % (high - low)

    def _first(self, allowed: list[int], turn: int) -> int:
        """Of the first ones of `allowed`, which all have the same work, the one whose turn it is."""
        low = bisect_left(self._order, allowed[0] & ~_RANK)
        begin = self._order[self._equals(low, turn)[1]]
        at = bisect_left(allowed, begin)
        equal = at < len(allowed) and allowed[at] >> _RANK_BITS == allowed[0] >> _RANK_BITS
        return allowed[at] if equal else allowed[0]

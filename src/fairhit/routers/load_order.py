"""Workers sorted by load: the least loaded candidate is found without a scan of all workers.

A sorted list: a thousand entries are shifted faster than a heap's stale entries are dropped.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from fairhit.core.request import WorkerId

# With many candidates one of them is usually among the least loaded; only if not are all compared.
_FIRST_STEPS: Final = 32
# An entry is one integer, since the list compares them often: the load, then the order of arrival.
_RANK_BITS: Final = 40
_RANK: Final = (1 << _RANK_BITS) - 1


class LoadOrder:
    """Workers that are up, by (load, order of arrival); equally loaded ones rotated by `rotation`.

    `rotation` is a hash of the client, so that clients spread over idle workers.
    """

    def __init__(self) -> None:
        self._entries: dict[WorkerId, int] = {}
        self._order: list[int] = []  # the entries, sorted
        self._workers: dict[int, WorkerId] = {}  # by order of arrival, which is unique
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._entries

    def add(self, worker: WorkerId) -> None:
        """Add `worker` with load 0. O(workers) at the speed of memmove, as every change here."""
        assert worker not in self._entries, worker
        self._entries[worker] = self._arrivals
        self._workers[self._arrivals] = worker
        insort(self._order, self._arrivals)
        self._arrivals += 1

    def remove(self, worker: WorkerId) -> None:
        """Remove `worker`."""
        entry = self._entries.pop(worker)
        del self._order[bisect_left(self._order, entry)]
        del self._workers[entry & _RANK]

    def load(self, worker: WorkerId) -> int:
        """Return the load of `worker`. O(1)."""
        return self._entries[worker] >> _RANK_BITS

    def change(self, worker: WorkerId, by: int) -> None:
        """Add `by`, which may be negative, to the load of `worker`."""
        order, entry = self._order, self._entries[worker]
        del order[bisect_left(order, entry)]
        entry += by << _RANK_BITS
        assert entry >= 0, (worker, entry >> _RANK_BITS)
        self._entries[worker] = entry
        insort(order, entry)

    def ascending(self, rotation: int = 0) -> Iterator[WorkerId]:
        """Iterate over all workers, the least loaded first. O(log workers) each at most."""
        order, workers = self._order, self._workers
        low = 0
        while low < len(order):
            high, start = self._equals(low, rotation)
            for at in range(start, high):
                yield workers[order[at] & _RANK]
            for at in range(low, start):
                yield workers[order[at] & _RANK]
            low = high

    def least(
        self,
        rotation: int = 0,
        *,
        among: Collection[WorkerId] | None = None,
        candidates: Collection[WorkerId] | None = None,
        but: Collection[WorkerId] = (),
    ) -> WorkerId | None:
        """Return the least loaded worker in `among` and `candidates` (None: all), except those in `but`.

        None if there is none. O(log workers); if the 32 least loaded do not qualify, O(`among` or, if that
        is None, `candidates`).
        """
        wanted = candidates if among is None else among
        if wanted is None:
            for worker in self.ascending(rotation):
                if worker not in but:
                    return worker
            return None
        also = None if among is None else candidates
        if len(wanted) > _FIRST_STEPS:
            for worker in islice(self.ascending(rotation), _FIRST_STEPS):
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
            least = self._first(allowed, rotation)
        return self._workers[least & _RANK]

    def check(self) -> None:
        """Assert every invariant. O(workers)."""
        assert self._order == sorted(self._entries.values())
        for worker, entry in self._entries.items():
            assert self._workers[entry & _RANK] == worker
        assert len(self._workers) == len(self._entries)

    def _equals(self, low: int, rotation: int) -> tuple[int, int]:
        """Return where the entries with the load of that at `low` end, and where their rotation begins."""
        order = self._order
        above = (order[low] | _RANK) + 1
        high = low + 1
        if high < len(order) and order[high] < above:
            high = bisect_left(order, above, high)
        return high, low + rotation % (high - low)

    def _first(self, allowed: list[int], rotation: int) -> int:
        """Return the first in rotation of the least loaded entries of `allowed`, which is sorted."""
        low = bisect_left(self._order, allowed[0] & ~_RANK)
        begin = self._order[self._equals(low, rotation)[1]]
        at = bisect_left(allowed, begin)
        equal = at < len(allowed) and allowed[at] >> _RANK_BITS == allowed[0] >> _RANK_BITS
        return allowed[at] if equal else allowed[0]

"""Workers in the order of their work: the least loaded that will do is found without asking all.

A sorted list, since a thousand entries are moved faster than a heap's stale ones are dropped.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator
from itertools import islice

from fairlead.core.request import WorkerId

# Of many allowed workers one is usually among the least loaded; only if not are all of them asked.
_FIRST_STEPS = 32


class LoadOrder:
    """Up workers by (work, order of arrival). Equals are taken in turn, beginning where `turn` says.

    `turn` is a hash of the client, so that the clients spread over idle workers.
    """

    def __init__(self) -> None:
        self._load: dict[WorkerId, int] = {}
        self._rank: dict[WorkerId, int] = {}  # in order of arrival, never used again
        self._order: list[tuple[int, int, WorkerId]] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._load)

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._load

    def add(self, worker: WorkerId) -> None:
        """`worker` is up and idle. O(workers), at memory's speed, as every change here."""
        assert worker not in self._load, worker
        self._load[worker] = 0
        self._rank[worker] = self._arrivals
        self._arrivals += 1
        insort(self._order, self._entry(worker))

    def remove(self, worker: WorkerId) -> None:
        """`worker` is gone."""
        del self._order[bisect_left(self._order, self._entry(worker))]
        del self._load[worker], self._rank[worker]

    def load(self, worker: WorkerId) -> int:
        """The work at `worker`. O(1)."""
        return self._load[worker]

    def change(self, worker: WorkerId, by: int) -> None:
        """`worker` has that much more to do, or less."""
        del self._order[bisect_left(self._order, self._entry(worker))]
        self._load[worker] += by
        assert self._load[worker] >= 0, (worker, self._load[worker])
        insort(self._order, self._entry(worker))

    def ascending(self, turn: int = 0) -> Iterator[WorkerId]:
        """All workers, the least loaded first. O(log workers) each at most."""
        order = self._order
        low = 0
        while low < len(order):
            high, start = self._equals(low, turn)
            for at in range(start, high):
                yield order[at][2]
            for at in range(low, start):
                yield order[at][2]
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
            return next((worker for worker in self.ascending(turn) if worker not in but), None)
        also = None if among is None else candidates
        if len(wanted) > _FIRST_STEPS:
            for worker in islice(self.ascending(turn), _FIRST_STEPS):
                if worker in wanted and worker not in but and (also is None or worker in also):
                    return worker
        load = self._load
        allowed = [
            worker
            for worker in wanted
            if worker in load and worker not in but and (also is None or worker in also)
        ]
        if len(allowed) < 2:
            return allowed[0] if allowed else None
        least = min([load[worker] for worker in allowed])
        equals = [worker for worker in allowed if load[worker] == least]
        return equals[0] if len(equals) == 1 else self._first(equals, turn)

    def check(self) -> None:
        """Every invariant. O(workers)."""
        assert self._order == sorted(self._entry(worker) for worker in self._load)

    def _entry(self, worker: WorkerId) -> tuple[int, int, WorkerId]:
        return self._load[worker], self._rank[worker], worker

    def _equals(self, low: int, turn: int) -> tuple[int, int]:
        """Where those with the work of the one at `low` end, and at which of them the turn begins."""
        order = self._order
        load = order[low][0]
        high = low + 1
        if high < len(order) and order[high][0] == load:
            high = bisect_left(order, (load + 1,), high)
        return high, low + turn % (high - low)

    def _first(self, equals: list[WorkerId], turn: int) -> WorkerId:
        """The one of `equals`, which all have the same work, whose turn comes first."""
        low = bisect_left(self._order, (self._load[equals[0]],))
        _, start = self._equals(low, turn)
        ranks = sorted((self._rank[worker], worker) for worker in equals)
        begin = self._order[start][1]
        return next((worker for rank, worker in ranks if rank >= begin), ranks[0][1])

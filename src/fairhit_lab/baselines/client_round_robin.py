"""Round robin for each client by itself: arXiv:2501.14312v1, appendix A.6, put in front of VTC.

It balances how many requests of a client each worker gets, not how much work they are, and so bounds
nothing: a client that alternates long and short requests has all the long ones at one of two
workers (docs/explanation/paper-map.md).
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Collection
from zlib import crc32

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import ClientId, Request, WorkerId


class ClientRoundRobin:
    """The worker after the client's last one, in order of arrival; a new client begins anywhere.

    Where it begins is a hash of its name, for clients that all begin at the first worker would go
    round in step. Of the last `max_clients` clients is known where they are.
    """

    def __init__(self, *, max_clients: int = 100_000) -> None:
        self._max_clients = max_clients
        self._arrivals = 0
        self._ring: list[
            tuple[int, WorkerId]
        ] = []  # by order of arrival, which is never given twice
        self._numbers: dict[WorkerId, int] = {}
        self._last: OrderedDict[ClientId, int] = OrderedDict()  # the worker's number

    def add_worker(self, worker: WorkerId) -> None:
        assert worker not in self._numbers, worker
        self._numbers[worker] = self._arrivals
        self._ring.append((self._arrivals, worker))
        self._arrivals += 1

    def remove_worker(self, worker: WorkerId) -> None:
        number = self._numbers.pop(worker)
        del self._ring[bisect_left(self._ring, (number,))]

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """O(log workers), and as many steps as it takes to a candidate."""
        ring = self._ring
        last = self._last.get(request.client)
        if last is None:
            start = crc32(request.client.encode()) % len(ring)
        else:
            start = bisect_right(ring, last, key=lambda entry: entry[0])
        for step in range(len(ring)):
            worker = ring[(start + step) % len(ring)][1]
            if candidates is None or worker in candidates:
                return worker
        raise AssertionError("no worker to choose from")

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        self._last[request.client] = self._numbers[worker]
        self._last.move_to_end(request.client)
        if len(self._last) > self._max_clients:
            self._last.popitem(last=False)

    def true_up(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        """Do nothing: positions in the ring do not depend on the cost of requests."""

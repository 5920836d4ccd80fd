"""Sticky routing: requests with one routing key go to one worker, as long as that worker accepts requests.

A key is assigned by rendezvous hashing (Thaler and Ravishankar 1998): to the worker w with the largest
hash(key, w). Every process and every gateway with the same workers assigns a key alike, after a restart
too. An assigned key stays while its worker is up, also when a worker is added to which hashing alone
would move its share of all keys.
"""

from collections import OrderedDict
from collections.abc import Collection
from hashlib import blake2b

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Request, WorkerId
from fairhit.routers.least_loaded import LeastLoaded

_DIGEST_LEN = 16  # bytes kept of a key, which clients may make long


class Sticky:
    """The key's worker; for a request without a key the least loaded one.

    The last `max_keys` keys are remembered; a forgotten key is assigned as a new one, by the same hash.
    """

    def __init__(self, *, max_keys: int = 100_000) -> None:
        assert max_keys >= 1, max_keys
        self._max_keys = max_keys
        self._least_loaded = LeastLoaded()
        self.load = self._least_loaded.load
        self._workers: dict[WorkerId, None] = {}
        self._assigned: OrderedDict[bytes, WorkerId] = OrderedDict()  # longest unused first

    def remembered(self) -> int:
        """Return the number of remembered keys. O(1)."""
        return len(self._assigned)

    def add_worker(self, worker: WorkerId) -> None:
        self._least_loaded.add_worker(worker)
        self._workers[worker] = None

    def remove_worker(self, worker: WorkerId) -> None:
        self._least_loaded.remove_worker(worker)
        del self._workers[worker]

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """Return the key's worker. O(key) for a remembered key, else O(workers); no key: as `LeastLoaded`."""
        if not request.routing_key:
            return self._least_loaded.route(request, matches=matches, candidates=candidates)
        key = _digest(request.routing_key)
        workers = self._workers if candidates is None else candidates
        worker = self._assigned.get(key)
        if worker is not None and worker in self._workers and worker in workers:
            return worker
        return max(workers, key=lambda each: (_rank(key, each), each))

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        self._least_loaded.dispatch(request, worker, extend_len=extend_len)
        if not request.routing_key:
            return
        key = _digest(request.routing_key)
        # A worker that is up keeps the key, even if another took this request.
        if self._assigned.get(key) not in self._workers:
            self._assigned[key] = worker
        self._assigned.move_to_end(key)
        if len(self._assigned) > self._max_keys:
            self._assigned.popitem(last=False)

    def true_up(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        self._least_loaded.true_up(request, worker, extend_len=extend_len, output_len=output_len)


def _digest(routing_key: str) -> bytes:
    return blake2b(routing_key.encode(), digest_size=_DIGEST_LEN).digest()


def _rank(key: bytes, worker: WorkerId) -> bytes:
    return blake2b(worker.encode(), digest_size=8, key=key).digest()

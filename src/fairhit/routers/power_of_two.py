"""Power of two choices: two workers drawn by chance, and of these the less loaded (Mitzenmacher)."""

from collections.abc import Collection, Sequence
from hashlib import blake2b

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Request, WorkerId
from fairhit.routers.in_flight_load import InFlightLoad


class PowerOfTwo:
    """The draw is made of `seed` and the request's id alone, so asking again gives the same answer."""

    def __init__(self, *, seed: int = 0) -> None:
        self._key = (seed % (1 << 64)).to_bytes(8, "big")
        self._outstanding = InFlightLoad()
        self._workers: list[WorkerId] = []

    def add_worker(self, worker: WorkerId) -> None:
        self._outstanding.add_worker(worker)
        self._workers.append(worker)

    def remove_worker(self, worker: WorkerId) -> None:
        self._outstanding.remove_worker(worker)
        self._workers.remove(worker)

    def outstanding(self, worker: WorkerId) -> int:
        """Estimated tokens in flight at `worker`. O(1)."""
        return self._outstanding.tokens(worker)

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """O(1) if all may serve it, else O(workers). The first one drawn wins a tie."""
        workers = self._workers
        if candidates is not None:
            workers = [worker for worker in workers if worker in candidates]
        return min(self._drawn(request, workers), key=self._outstanding.tokens)

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        self._outstanding.dispatch(request, worker, extend_len=extend_len)

    def settle(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        served = output_len if extend_len else None
        self._outstanding.settle(request, worker, output_len=served)

    def _drawn(self, request: Request, workers: Sequence[WorkerId]) -> Sequence[WorkerId]:
        """Two different ones, each pair as likely as any; or the only one."""
        assert workers, "no worker to choose from"
        count = len(workers)
        if count == 1:
            return workers
        drawn = blake2b(request.id.encode(), digest_size=16, key=self._key).digest()
        first = int.from_bytes(drawn[:8], "big") % count
        step = 1 + int.from_bytes(drawn[8:], "big") % (count - 1)
        return workers[first], workers[(first + step) % count]

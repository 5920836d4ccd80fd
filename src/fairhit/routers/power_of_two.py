"""Power of two choices: of two workers drawn at random, the less loaded (Mitzenmacher 2001)."""

from collections.abc import Collection, Sequence
from hashlib import blake2b

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Request, WorkerId
from fairhit.routers.in_flight_load import InFlightLoad


class PowerOfTwo:
    """Draws by a hash of `seed` and the request's id, so routing a request twice gives the same worker."""

    def __init__(self, *, seed: int = 0) -> None:
        self._key = (seed % (1 << 64)).to_bytes(8, "big")
        self.load = InFlightLoad()
        self._workers: list[WorkerId] = []

    def add_worker(self, worker: WorkerId) -> None:
        self.load.add_worker(worker)
        self._workers.append(worker)

    def remove_worker(self, worker: WorkerId) -> None:
        self.load.remove_worker(worker)
        self._workers.remove(worker)

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """Return the less loaded of two candidates, on a tie the one drawn first.

        O(1) if all workers are candidates, else O(workers).
        """
        workers = self._workers
        if candidates is not None:
            workers = [worker for worker in workers if worker in candidates]
        return min(self._drawn(request, workers), key=self.load.tokens)

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        self.load.dispatch(request, worker, extend_len=extend_len)

    def true_up(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        self.load.remove(request, worker, output_len=output_len if extend_len else None)

    def _drawn(self, request: Request, workers: Sequence[WorkerId]) -> Sequence[WorkerId]:
        """Return two different workers, each pair with the same probability; or the only one."""
        assert workers, "no worker to choose from"
        count = len(workers)
        if count == 1:
            return workers
        drawn = blake2b(request.id.encode(), digest_size=16, key=self._key).digest()
        first = int.from_bytes(drawn[:8], "big") % count
        step = 1 + int.from_bytes(drawn[8:], "big") % (count - 1)
        return workers[first], workers[(first + step) % count]

"""Round robin: each request goes to the next worker, whatever the request and its client."""

from collections.abc import Collection
from itertools import chain

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Request, WorkerId


class RoundRobin:
    """The worker that was sent a request longest ago; new workers first, in the order they were added."""

    def __init__(self) -> None:
        self._new: dict[WorkerId, None] = {}  # never sent a request
        self._used: dict[WorkerId, None] = {}  # longest ago first

    def add_worker(self, worker: WorkerId) -> None:
        assert worker not in self._new and worker not in self._used, worker
        self._new[worker] = None

    def remove_worker(self, worker: WorkerId) -> None:
        workers = self._new if worker in self._new else self._used
        del workers[worker]

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """Return the next candidate. O(1) if all workers are, else O(workers before the first candidate)."""
        ring = chain(self._new, self._used)
        return next(worker for worker in ring if candidates is None or worker in candidates)

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        self.remove_worker(worker)
        self._used[worker] = None

    def true_up(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        """Do nothing: positions in the ring do not depend on the cost of requests."""

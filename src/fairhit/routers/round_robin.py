"""Round robin: each request to the next worker, whatever it is and whoever sent it."""

from collections.abc import Collection
from itertools import chain

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Request, WorkerId


class RoundRobin:
    """The worker that was longest ago sent a request; new ones come first, in order of arrival."""

    def __init__(self) -> None:
        self._fresh: dict[WorkerId, None] = {}  # never sent a request
        self._used: dict[WorkerId, None] = {}  # longest ago first

    def add_worker(self, worker: WorkerId) -> None:
        assert worker not in self._fresh and worker not in self._used, worker
        self._fresh[worker] = None

    def remove_worker(self, worker: WorkerId) -> None:
        self._leave(worker)

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """O(1) if all may serve it, else O(workers that were used before a candidate)."""
        turns = chain(self._fresh, self._used)
        return next(worker for worker in turns if candidates is None or worker in candidates)

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        self._leave(worker)
        self._used[worker] = None

    def settle(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        """Turns are not given back."""

    def _leave(self, worker: WorkerId) -> None:
        turns = self._fresh if worker in self._fresh else self._used
        del turns[worker]

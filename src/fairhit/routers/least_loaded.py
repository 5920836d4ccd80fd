"""Least loaded: each request to the worker with the least estimated work in front of it."""

from collections.abc import Collection

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Request, WorkerId
from fairhit.routers.in_flight_load import InFlightLoad


class LeastLoaded:
    """The worker with the fewest outstanding estimated tokens; the one that came first wins ties."""

    def __init__(self) -> None:
        self._outstanding = InFlightLoad()

    def add_worker(self, worker: WorkerId) -> None:
        self._outstanding.add_worker(worker)

    def remove_worker(self, worker: WorkerId) -> None:
        self._outstanding.remove_worker(worker)

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
        """O(1) if all may serve it, else as `LoadOrder.least`."""
        chosen = self._outstanding.order.least(candidates=candidates)
        assert chosen is not None, "no worker to choose from"
        return chosen

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        self._outstanding.dispatch(request, worker, extend_len=extend_len)

    def settle(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        served = output_len if extend_len else None
        self._outstanding.settle(request, worker, output_len=served)

"""Least loaded: each request goes to the worker with the least in-flight load."""

from collections.abc import Collection

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Request, WorkerId
from fairhit.routers.in_flight_load import InFlightLoad


class LeastLoaded:
    """The worker with the fewest estimated tokens in flight; on a tie the one that was added first."""

    def __init__(self) -> None:
        self.load = InFlightLoad()

    def add_worker(self, worker: WorkerId) -> None:
        self.load.add_worker(worker)

    def remove_worker(self, worker: WorkerId) -> None:
        self.load.remove_worker(worker)

    def route(
        self,
        request: Request,
        *,
        matches: PrefixMatches,
        candidates: Collection[WorkerId] | None = None,
    ) -> WorkerId:
        """Return the least loaded candidate. O(1) if all workers are, else as `LoadOrder.least`."""
        chosen = self.load.order.least(candidates=candidates)
        assert chosen is not None, "no worker to choose from"
        return chosen

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        self.load.dispatch(request, worker, extend_len=extend_len)

    def true_up(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        self.load.remove(request, worker, output_len=output_len if extend_len else None)

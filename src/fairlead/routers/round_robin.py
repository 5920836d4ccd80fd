"""Round robin: each request to the next worker, whatever it is and whoever sent it."""

from collections.abc import Mapping

from fairlead.core.request import Request, WorkerId


class RoundRobin:
    """The worker that was longest ago sent a request; new ones come first, in order of arrival."""

    def __init__(self) -> None:
        self._last_turn: dict[WorkerId, int] = {}
        self._turn = 0

    def add_worker(self, worker: WorkerId) -> None:
        assert worker not in self._last_turn, worker
        self._last_turn[worker] = 0

    def remove_worker(self, worker: WorkerId) -> None:
        del self._last_turn[worker]

    def route(self, request: Request, *, matched: Mapping[WorkerId, int]) -> WorkerId:
        """O(workers). `min` keeps the first of equals: the order in which workers came."""
        assert matched, "no worker to choose from"
        return min(
            (worker for worker in self._last_turn if worker in matched),
            key=self._last_turn.__getitem__,
        )

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        self._turn += 1
        self._last_turn[worker] = self._turn

    def settle(
        self, request: Request, worker: WorkerId, *, extend_len: int, output_len: int
    ) -> None:
        """Turns are not given back."""

"""In-flight load: the estimated tokens that each worker still has to compute or emit.

The papers count requests (s_w of Algorithm 2); ten cached prompts are not ten long ones, so this counts
the prompt tokens to compute and the outputs to expect (DESIGN 3.4). Routers break ties by it; metrics
and dashboard read the router's.
"""

from typing import TypeAlias

from fairhit.core.policy import Router
from fairhit.core.request import Request, WorkerId
from fairhit.routers.load_order import LoadOrder

# Outputs expected of a request before any has finished: a short answer. The mean of the finished
# requests replaces it at once.
_FIRST_ESTIMATE = 128
# Finished requests after which the mean halves its past: it follows a change of workload within a few
# hundred requests, and one request does not move it.
_MEMORY = 256


# Tokens assumed for a request when it was sent: prompt tokens to compute, and the same with outputs.
_Sent: TypeAlias = tuple[int, int]


class InFlightLoad:
    """The requests in flight at each worker and the tokens they are expected to cost."""

    def __init__(self) -> None:
        self._in_flight: dict[WorkerId, dict[Request, _Sent]] = {}
        self.order = LoadOrder()
        self._finished = 1
        self._outputs = _FIRST_ESTIMATE

    def add_worker(self, worker: WorkerId) -> None:
        """Add `worker`, idle. O(workers)."""
        assert worker not in self._in_flight, worker
        self._in_flight[worker] = {}
        self.order.add(worker)

    def remove_worker(self, worker: WorkerId) -> None:
        """Remove `worker` with everything in flight there. O(workers)."""
        del self._in_flight[worker]
        self.order.remove(worker)

    def __len__(self) -> int:
        """Return the number of workers that are up. O(1)."""
        return len(self._in_flight)

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._in_flight

    def tokens(self, worker: WorkerId) -> int:
        """Return the estimated tokens that `worker` still has to compute or emit. O(1)."""
        return self.order.load(worker)

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        """Add `request`, of which `worker` must compute about `extend_len` prompt tokens. O(log workers)."""
        in_flight = self._in_flight[worker]
        assert request not in in_flight, request
        expected_len = extend_len + min(request.max_tokens, self._outputs // self._finished)
        in_flight[request] = extend_len, expected_len
        self.order.change(worker, expected_len)

    def remove(self, request: Request, worker: WorkerId, *, output_len: int | None) -> int | None:
        """Remove a request that ended, or that was not served (`output_len` None). O(log workers).

        Returns the `extend_len` of its dispatch; None if `worker` has been removed since.
        """
        sent = self._in_flight.get(worker, {}).pop(request, None)
        if sent is None:
            return None
        extend_len, expected_len = sent
        self.order.change(worker, -expected_len)
        if output_len is not None:
            self._learn(output_len)
        return extend_len

    def _learn(self, output_len: int) -> None:
        self._outputs += output_len
        self._finished += 1
        if self._finished > _MEMORY:
            self._outputs //= 2
            self._finished //= 2


def load_of(router: Router) -> InFlightLoad | None:
    """Return the router's in-flight load; None for a router that does not keep one. Pure."""
    load = getattr(router, "load", None)
    return load if isinstance(load, InFlightLoad) else None

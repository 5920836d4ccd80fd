"""How much work each worker has in front of it, in estimated tokens: what breaks a router's ties.

The papers count requests (s_w of Algorithm 2); ten cached prompts are not ten long ones, so this
counts the prompt tokens to compute and the outputs to expect (DESIGN 3.4).
"""

from typing import TypeAlias

from fairhit.core.request import Request, WorkerId
from fairhit.routers.load_order import LoadOrder

# What a request is expected to emit before any has finished: a short answer. The mean of what
# finished replaces it at once.
_FIRST_GUESS = 128
# Finished requests after which the mean forgets half of its past: it follows a change of workload
# within a few hundred requests and is not moved by one.
_MEMORY = 256


# What was assumed of a request when it was sent: prompt tokens to compute, and outputs as well.
_Sent: TypeAlias = tuple[int, int]


class InFlightLoad:
    """The requests in flight at each worker and the tokens they are expected to cost."""

    def __init__(self) -> None:
        self._in_flight: dict[WorkerId, dict[Request, _Sent]] = {}
        self.order = LoadOrder()
        self._finished = 1
        self._outputs = _FIRST_GUESS

    def add_worker(self, worker: WorkerId) -> None:
        """`worker` is up and idle."""
        assert worker not in self._in_flight, worker
        self._in_flight[worker] = {}
        self.order.add(worker)

    def remove_worker(self, worker: WorkerId) -> None:
        """`worker` is gone, and with it everything that was in flight there."""
        del self._in_flight[worker]
        self.order.remove(worker)

    def __len__(self) -> int:
        """How many workers are up."""
        return len(self._in_flight)

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._in_flight

    def tokens(self, worker: WorkerId) -> int:
        """Estimated tokens `worker` still has to compute or emit. O(1)."""
        return self.order.load(worker)

    def dispatch(self, request: Request, worker: WorkerId, *, extend_len: int) -> None:
        """`request` was sent to `worker`. O(log workers)."""
        in_flight = self._in_flight[worker]
        assert request not in in_flight, request
        expected_len = extend_len + min(request.max_tokens, self._outputs // self._finished)
        in_flight[request] = extend_len, expected_len
        self.order.change(worker, expected_len)

    def settle(self, request: Request, worker: WorkerId, *, output_len: int | None) -> int | None:
        """`request` ended at `worker`, or moved away (`output_len` None); its `extend_len` as assumed.

        None if `worker` has been removed since: there is nothing left to settle. O(log workers).
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

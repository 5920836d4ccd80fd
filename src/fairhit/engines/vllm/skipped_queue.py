"""The queue of skipped requests that vLLM 0.20 to 0.26 keep beside the waiting one: a view of ours.

Integration point: `Scheduler.skipped_waiting`, which those versions drain before `waiting`: a way
around fairness for whoever is skipped once. Other versions have no such attribute.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from vllm.v1.core.sched.request_queue import RequestQueue

from fairhit.engines.vllm.waiting_queue import VllmWaitingQueue


class SkippedQueue(RequestQueue):  # type: ignore[misc]  # vLLM is untyped here
    """Stands for `skipped_waiting` of vLLM 0.20 to 0.26, which that drains before all others.

    Whatever is put here is held by the one fair queue, so that being skipped is no way around it.
    """

    def __init__(self, queue: VllmWaitingQueue) -> None:
        self._queue = queue

    def add_request(self, request: Any) -> None:
        """A request that arrives blocked."""
        self._queue.add_request(request)

    def prepend_request(self, request: Any) -> None:
        """A skipped one comes back."""
        self._queue.prepend_request(request)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """All that were skipped in this step."""
        self._queue.prepend_requests(requests)

    def remove_request(self, request: Any) -> None:
        """It is gone."""
        self._queue.remove_request(request)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """vLLM names the same ones to both queues."""
        self._queue.remove_requests(requests)

    def peek_request(self) -> Any:
        """Never asked, as it is never true."""
        raise IndexError("skipped requests wait in the fair queue")

    pop_request = peek_request

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0  # the fair queue counts them

    def __iter__(self) -> Iterator[Any]:
        """Where vLLM looks for requests whose remote KV did not arrive."""
        return iter(self._queue)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._queue)

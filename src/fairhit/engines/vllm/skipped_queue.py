"""The `skipped_waiting` queue of vLLM 0.20 to 0.26, redirected to the fair queue.

Integration point: `Scheduler.skipped_waiting`, which those versions drain before `waiting`: a request that
was skipped once would bypass fairness. Other versions have no such attribute.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from vllm.v1.core.sched.request_queue import RequestQueue

from fairhit.engines.vllm.waiting_queue import VllmWaitingQueue


class SkippedQueue(RequestQueue):  # type: ignore[misc]  # vLLM is untyped here
    """An always empty queue: each request added to it is added to the waiting queue instead."""

    def __init__(self, queue: VllmWaitingQueue) -> None:
        self._queue = queue

    def add_request(self, request: Any) -> None:
        """Add a request that arrives blocked."""
        self._queue.add_request(request)

    def prepend_request(self, request: Any) -> None:
        """Take back a skipped request."""
        self._queue.prepend_request(request)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Take back all requests skipped in this step."""
        self._queue.prepend_requests(requests)

    def remove_request(self, request: Any) -> None:
        """Remove a request that ended."""
        self._queue.remove_request(request)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Remove requests that ended; vLLM passes the same ones to both queues."""
        self._queue.remove_requests(requests)

    def peek_request(self) -> Any:
        """Raise IndexError; vLLM never peeks into an empty queue."""
        raise IndexError("skipped requests wait in the fair queue")

    pop_request = peek_request

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0  # the waiting queue counts them

    def __iter__(self) -> Iterator[Any]:
        """Yield all waiting requests: vLLM searches here for requests whose remote KV did not arrive."""
        return iter(self._queue)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._queue)

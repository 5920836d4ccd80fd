"""SGLang's list of waiting requests: each insertion and removal is reported to the queue adapter.

Integration points (SGLang 0.5.23): `Scheduler.waiting_queue` is appended to, extended, popped from,
iterated over and made anew; after `PrefillAdder` is made, the next iteration is the one that admits.
"""

from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

from fairhit.engines.sglang.queue_adapter import SglangQueueAdapter


class SglangWaitingQueue(list[Any]):
    """A list in SGLang's order, except that the iteration that admits yields the fair queue's candidates."""

    def __init__(self, reqs: Iterable[Any], adapter: SglangQueueAdapter) -> None:
        super().__init__(reqs)
        self._adapter = adapter
        adapter.sync(self)

    def __iter__(self) -> Iterator[Any]:
        adapter = self._adapter
        return adapter.candidates() if adapter.is_iteration_expected else super().__iter__()

    def append(self, req: Any) -> None:
        """See `list`."""
        super().append(req)
        self._adapter.add(req)

    def extend(self, reqs: Iterable[Any]) -> None:
        """See `list`."""
        for req in reqs:
            self.append(req)

    def insert(self, index: SupportsIndex, req: Any) -> None:
        """See `list`."""
        super().insert(index, req)
        self._adapter.add(req)

    def pop(self, index: SupportsIndex = -1) -> Any:
        """See `list`."""
        req = super().pop(index)
        self._adapter.remove(req)
        return req

    def remove(self, req: Any) -> None:
        """See `list`."""
        super().remove(req)
        self._adapter.remove(req)

    def clear(self) -> None:
        """See `list`."""
        while self:
            self.pop()

"""SGLang's list of waiting requests, in which whoever comes or goes is known to our line.

Integration points (SGLang 0.5.23): `Scheduler.waiting_queue` is appended to, extended, popped from,
iterated over and made anew; after `PrefillAdder` is made, the next iteration is the one that admits.
"""

from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

from fairhit.engines.sglang.queue_adapter import SglangQueueAdapter


class SglangWaitingQueue(list[Any]):
    """In SGLang's own order; but for the one walk that admits, which is in ours."""

    def __init__(self, reqs: Iterable[Any], line: SglangQueueAdapter) -> None:
        super().__init__(reqs)
        self._line = line
        line.adopt(self)

    def __iter__(self) -> Iterator[Any]:
        return self._line.walk() if self._line.is_walk_expected else super().__iter__()

    def append(self, req: Any) -> None:
        """See `list`."""
        super().append(req)
        self._line.arrive(req)

    def extend(self, reqs: Iterable[Any]) -> None:
        """See `list`."""
        for req in reqs:
            self.append(req)

    def insert(self, index: SupportsIndex, req: Any) -> None:
        """See `list`."""
        super().insert(index, req)
        self._line.arrive(req)

    def pop(self, index: SupportsIndex = -1) -> Any:
        """See `list`."""
        req = super().pop(index)
        self._line.leave(req)
        return req

    def remove(self, req: Any) -> None:
        """See `list`."""
        super().remove(req)
        self._line.leave(req)

    def clear(self) -> None:
        """See `list`."""
        while self:
            self.pop()

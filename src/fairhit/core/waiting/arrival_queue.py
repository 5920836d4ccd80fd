"""A queue in the order of arrival, whatever the order in which requests are inserted."""

from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import Request, RequestId


class ArrivalQueue:
    """Waiting requests by arrival; hidden ones are left out until `show_all`."""

    def __init__(self) -> None:
        self._waiting: dict[RequestId, Request] = {}
        self._heap: LazyHeap[tuple[int, Request]] = LazyHeap()
        self._hidden: list[Request] = []

    def __len__(self) -> int:
        """Return the number of waiting requests, hidden ones included."""
        return len(self._waiting)

    def add(self, request: Request) -> None:
        """Insert the request by its order of arrival. O(log n)."""
        assert request.id not in self._waiting, request.id
        self._waiting[request.id] = request
        self._heap.push((request.order, request), self._waits)

    def remove(self, request: Request) -> None:
        """Remove the request. O(1)."""
        del self._waiting[request.id]

    def first(self) -> Request | None:
        """Return the oldest request that is not hidden. O(log n) amortised."""
        top = self._heap.top(self._waits)
        return top[1] if top else None

    def hide(self, request: Request) -> None:
        """Leave out the first request until `show_all`. O(log n)."""
        assert request is self.first()
        self._heap.drop()
        self._hidden.append(request)

    def show_all(self) -> None:
        """Undo every `hide`. O(hidden * log n)."""
        for request in self._hidden:
            item = (request.order, request)
            if self._waits(item):
                self._heap.push(item, self._waits)
        self._hidden.clear()

    def _waits(self, item: tuple[int, Request]) -> bool:
        return self._waiting.get(item[1].id) is item[1]

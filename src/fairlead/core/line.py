"""A waiting line: the oldest request first, whatever the order in which they were put in."""

from heapq import heappop, heappush

from fairlead.core.request import Request, RequestId

# The heap is cleaned lazily; beyond twice its true length and this many entries it is rebuilt.
_SLACK = 64


class Line:
    """Waiting requests by arrival; those passed over are left out until `show_all`."""

    def __init__(self) -> None:
        self._waiting: dict[RequestId, Request] = {}
        self._heap: list[tuple[int, Request]] = []
        self._hidden: list[Request] = []

    def __len__(self) -> int:
        """Waiting requests, those passed over included."""
        return len(self._waiting)

    def add(self, request: Request) -> None:
        """Put the request at its place in the order of arrival. O(log n)."""
        assert request.id not in self._waiting, request.id
        self._waiting[request.id] = request
        heappush(self._heap, (request.order, request))

    def remove(self, request: Request) -> None:
        """Take the request out. O(1) amortised."""
        del self._waiting[request.id]
        if len(self._heap) > 2 * len(self._waiting) + _SLACK:
            self._heap = sorted({item for item in self._heap if self._waits(item[1])})

    def first(self) -> Request | None:
        """The oldest request that was not passed over. O(log n) amortised."""
        while self._heap:
            request = self._heap[0][1]
            if self._waits(request):
                return request
            heappop(self._heap)
        return None

    def hide(self, request: Request) -> None:
        """Leave out the first request until `show_all`. O(log n)."""
        assert request is self.first()
        heappop(self._heap)
        self._hidden.append(request)

    def show_all(self) -> None:
        """What was hidden counts again. O(hidden * log n)."""
        for request in self._hidden:
            if self._waits(request):
                heappush(self._heap, (request.order, request))
        self._hidden.clear()

    def _waits(self, request: Request) -> bool:
        return self._waiting.get(request.id) is request

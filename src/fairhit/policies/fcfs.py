"""First come, first served: the default of vLLM and SGLang."""

from fairhit.core.request import Request
from fairhit.core.waiting.arrival_queue import ArrivalQueue


class FCFS:
    """The oldest request first, of whatever client; nothing is charged."""

    def __init__(self) -> None:
        self._queue = ArrivalQueue()

    def add(self, request: Request) -> None:
        """See `Policy.add`."""
        self._queue.add(request)

    def remove(self, request: Request) -> None:
        """See `Policy.remove`."""
        self._queue.remove(request)

    def begin_pass(self) -> None:
        """See `Policy.begin_pass`."""
        self._queue.show_all()

    def next(self) -> Request | None:
        """Return the oldest request that was not skipped in this pass."""
        return self._queue.first()

    def skip(self, request: Request) -> None:
        """See `Policy.skip`."""
        self._queue.hide(request)

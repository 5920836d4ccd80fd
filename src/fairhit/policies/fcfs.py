"""First come, first served: what engines do unless told otherwise."""

from fairhit.core.request import ClientId, Request
from fairhit.core.waiting.arrival_queue import ArrivalQueue


class FCFS:
    """The oldest request first, whoever sent it."""

    charges_outputs = False

    def __init__(self) -> None:
        self._line = ArrivalQueue()

    def add(self, request: Request) -> None:
        """See `Ordering.add`."""
        self._line.add(request)

    def remove(self, request: Request) -> None:
        """See `Ordering.remove`."""
        self._line.remove(request)

    def begin(self) -> None:
        """See `Ordering.begin`."""
        self._line.show_all()

    def next(self) -> Request | None:
        """The oldest."""
        return self._line.first()

    def pass_over(self, request: Request) -> None:
        """See `Ordering.pass_over`."""
        self._line.hide(request)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Nothing is charged."""
        self._line.remove(request)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Nothing is charged."""

    def credit(self, client: ClientId) -> int:
        """All are owed alike, so the newest request of all is preempted first."""
        return 0

"""What is kept of each request when it has ended: sums in preallocated places, and nothing else.

This is on the way of every request: no strings are made here, and no labels looked up but two.
"""

from collections.abc import Mapping
from typing import Protocol

from fairhit.core.client_table import OTHER
from fairhit.core.request import ClientId, WorkerId
from fairhit.core.service import system_view
from fairhit.dispatch import Dispatcher, Ticket
from fairhit.gateway.observability.metrics.histogram import (
    LENGTHS,
    TIMES_US,
    TOKEN_TIMES_US,
    Histogram,
)

# Model names that are kept apart; callers write them, and an engine may accept any.
MAX_MODELS = 100
# Values that are put into buckets at once: enough to be cheap, too few to hold anybody up.
_FOLDED = 256


class OfModel:
    """The requests for one model: their number by status, times in microseconds, lengths in tokens."""

    __slots__ = ("cached", "codes", "duration", "input", "output", "tpot", "ttft")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.duration = Histogram(TIMES_US)
        self.ttft = Histogram(TIMES_US)  # of streams
        self.tpot = Histogram(TOKEN_TIMES_US)  # of streams with two tokens or more
        self.input = Histogram(LENGTHS)
        self.cached = Histogram(LENGTHS)
        self.output = Histogram(LENGTHS)

    def fold(self) -> None:
        """See `Histogram.fold`; 30 microseconds or so for each."""
        for each in (self.duration, self.ttft, self.tpot, self.input, self.cached, self.output):
            each.fold()


class OfClient:
    """The requests of one client."""

    __slots__ = ("name", "received", "wait")

    def __init__(self, name: ClientId) -> None:
        self.name = name
        self.wait = Histogram(TIMES_US)  # at the gateway, until sent to an engine
        self.received: dict[WorkerId, int] = {}  # `system_view` of those that ended


class Largest:
    """The most that was seen at one engine so far; the bounds of fairness are made of these."""

    __slots__ = ("error", "extend", "in_flight", "output")

    def __init__(self) -> None:
        self.extend = 0  # prompt tokens computed for one request
        self.output = 0  # tokens of one answer
        self.error = 0  # tokens that the estimate of one request's extend was off
        self.in_flight = 0  # requests at once


class Times(Protocol):
    """When one request arrived, was sent to an engine, began to be answered; seconds, 0.0 for never."""

    arrived_s: float
    sent_s: float
    first_s: float


class Recorder:
    """Adds up; the metrics and the page read it when somebody asks."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._label = dispatcher.ledger.label
        self._workers = dispatcher.workers
        self._models: dict[str | None, OfModel] = {}
        self._clients: dict[ClientId, OfClient] = {}
        # Those of whom a request ended since the last tick.
        self.lately: dict[ClientId, OfClient] = {}
        self.largest: dict[WorkerId, Largest] = {}

    def ended(self, ticket: Ticket, times: Times, *, status: int, now_s: float) -> None:
        """`ticket` is settled, and its caller has been told `status`. O(1)."""
        model = self._models.get(ticket.model) or self._of_model(ticket.model, status)
        client = self._clients.get(ticket.request.client) or self._of_client(ticket.request.client)
        self.lately[client.name] = client
        model.codes[status] = model.codes.get(status, 0) + 1
        arrived_s, sent_s, first_s = times.arrived_s, times.sent_s, times.first_s
        model.duration.observe(int((now_s - arrived_s) * 1e6))
        if len(model.duration) >= _FOLDED:
            model.fold()
        client.wait.observe(int(((sent_s or now_s) - arrived_s) * 1e6))
        extend_len, output_len = ticket.settled_len, ticket.output_len
        if not extend_len:
            return
        model.input.observe(extend_len + ticket.matched_len)
        model.cached.observe(ticket.matched_len)
        model.output.observe(output_len)
        if first_s:
            model.ttft.observe(int((first_s - arrived_s) * 1e6))
            if output_len > 1:
                model.tpot.observe(int((now_s - first_s) * 1e6) // (output_len - 1))
        worker, received = ticket.worker, client.received
        received[worker] = received.get(worker, 0) + system_view(extend_len, output_len)
        largest = self.largest.get(worker) or self.largest_at(worker)
        if extend_len > largest.extend:  # noqa: PLR1730 - max costs three times that
            largest.extend = extend_len
        if output_len > largest.output:  # noqa: PLR1730 - max costs three times that
            largest.output = output_len
        error = abs(extend_len - ticket.estimated_len) if ticket.estimated_len else 0
        if error > largest.error:  # noqa: PLR1730 - as above
            largest.error = error

    def refused(self, status: int) -> None:
        """A request to an engine's path was refused before any engine was thought of."""
        codes = self._of_model(None, status).codes
        codes[status] = codes.get(status, 0) + 1

    def tick(self) -> None:
        """A second has passed. O(requests since)."""
        for client in self.lately.values():
            client.wait.fold()
        self.lately = {}

    def models(self) -> Mapping[str | None, OfModel]:
        """By name, None for requests that named none."""
        return self._models

    def clients(self) -> Mapping[ClientId, OfClient]:
        """By the name their numbers are told under."""
        return self._clients

    def forget(self, worker: WorkerId) -> None:
        """`worker` is not expected back. O(clients)."""
        self.largest.pop(worker, None)
        for client in self._clients.values():
            client.received.pop(worker, None)

    def largest_at(self, worker: WorkerId) -> Largest:
        """The most seen there so far. O(1)."""
        return self.largest.setdefault(worker, Largest())

    def _of_model(self, name: str | None, status: int) -> OfModel:
        """Those that no engine lists or has answered for are what a caller has made up: all are one."""
        if name not in self._models:
            exists = name is None or status == 200 or self._is_listed(name)
            if not exists or len(self._models) >= MAX_MODELS:
                name = OTHER
        return self._models.setdefault(name, OfModel())

    def _is_listed(self, name: str) -> bool:
        lists = [worker.models for worker in self._workers.values()]
        return any(models is not None and name in models for models in lists)

    def _of_client(self, name: ClientId) -> OfClient:
        """The ledger says which clients have a name of their own: the two must agree."""
        label = self._label(name)
        return self._clients.setdefault(label, OfClient(label))

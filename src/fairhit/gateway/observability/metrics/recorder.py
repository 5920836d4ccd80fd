"""Histograms of finished requests, by model and client, added up in preallocated objects.

Every request passes through here: no string is made, and two labels are looked up.
"""

from typing import Protocol

from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.request import ClientId
from fairhit.dispatch import Dispatcher, Ticket
from fairhit.gateway.observability.metrics.histogram import (
    LENGTHS,
    TIMES_US,
    TOKEN_TIMES_US,
    Histogram,
)

# Model names with statistics of their own: callers choose them, and an engine may accept any.
MAX_MODELS = 100


class ModelStats:
    """Requests for one model: number by status, times in microseconds, lengths in tokens."""

    __slots__ = ("cached", "codes", "duration", "input", "output", "tpot", "ttft")

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self.duration = Histogram(TIMES_US)
        self.ttft = Histogram(TIMES_US)  # of streams
        self.tpot = Histogram(TOKEN_TIMES_US)  # of streams with two tokens or more
        self.input = Histogram(LENGTHS)
        self.cached = Histogram(LENGTHS)
        self.output = Histogram(LENGTHS)


class ClientStats:
    """Requests of one client."""

    __slots__ = ("name", "wait")

    def __init__(self, name: ClientId) -> None:
        self.name = name
        self.wait = Histogram(TIMES_US)  # at the gateway, until sent to an engine


class Times(Protocol):
    """Times of one request, in seconds, 0.0 for never: arrival, sending to an engine, first byte."""

    arrived_s: float
    sent_s: float
    first_s: float


class Recorder:
    """Adds up; metrics and dashboard read the sums on demand."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._label = dispatcher.ledger.label
        self._workers = dispatcher.engines
        self.models: dict[str | None, ModelStats] = {}  # None: requests that named none
        self.clients: dict[ClientId, ClientStats] = {}  # by the client's label in the metrics
        # Clients of which a request finished since the last tick.
        self.recent: dict[ClientId, ClientStats] = {}

    def record(self, ticket: Ticket, times: Times, *, status: int, now_s: float) -> None:
        """Add a finished request, which has been charged and was answered with `status`. O(1)."""
        model = self.models.get(ticket.model) or self._model(ticket.model, status)
        client = self.clients.get(ticket.request.client) or self._client(ticket.request.client)
        self.recent[client.name] = client
        model.codes[status] = model.codes.get(status, 0) + 1
        arrived_s, sent_s, first_s = times.arrived_s, times.sent_s, times.first_s
        model.duration.observe(int((now_s - arrived_s) * 1e6))
        client.wait.observe(int(((sent_s or now_s) - arrived_s) * 1e6))
        extend_len, output_len = ticket.final_len, ticket.output_len
        if not extend_len:
            return
        model.input.observe(extend_len + ticket.matched_len)
        model.cached.observe(ticket.matched_len)
        model.output.observe(output_len)
        if first_s:
            model.ttft.observe(int((first_s - arrived_s) * 1e6))
            if output_len > 1:
                model.tpot.observe(int((now_s - first_s) * 1e6) // (output_len - 1))

    def record_refused(self, status: int) -> None:
        """Add a request that was refused before an engine was chosen."""
        codes = self._model(None, status).codes
        codes[status] = codes.get(status, 0) + 1

    def tick(self) -> None:
        """Forget which clients are recent; called with each snapshot."""
        self.recent = {}

    def _model(self, name: str | None, status: int) -> ModelStats:
        """Statistics of a model. Callers may invent names: those unknown to all engines share one entry."""
        if name not in self.models:
            exists = name is None or status == 200 or self._is_listed(name)
            if not exists or len(self.models) >= MAX_MODELS:
                name = OTHER
        return self.models.setdefault(name, ModelStats())

    def _is_listed(self, name: str) -> bool:
        lists = [worker.models for worker in self._workers.values()]
        return any(models is not None and name in models for models in lists)

    def _client(self, name: ClientId) -> ClientStats:
        """Statistics of a client, under the label that the ledger gives it."""
        label = self._label(name)
        return self.clients.setdefault(label, ClientStats(label))

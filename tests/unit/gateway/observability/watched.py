"""A dispatcher with one engine and the observability of a gateway around it."""

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from fairhit.core.request import Request
from fairhit.dispatch import Dispatcher, QueueRules, Ticket, Usage
from fairhit.gateway.observability.metrics.gateway_metrics import GatewayMetrics
from fairhit.gateway.observability.metrics.recorder import Recorder
from fairhit.gateway.observability.page.snapshot import SnapshotTaker
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex

WORKER = "http://127.0.0.1:1"


@dataclass
class Times:
    arrived_s: float = 10.0
    sent_s: float = 10.5
    first_s: float = 11.0


class Watched:
    """A dispatcher with one engine, its recorder, snapshots and metrics."""

    def __init__(self, *, named: int = 1000, limit: int = 100, shared: bool = False) -> None:
        self.sent: list[Ticket] = []
        self.dispatcher = Dispatcher(
            router=D2LPM(quantum=1000),
            index=ApproximatePrefixIndex(),
            named=named,
            rules=QueueRules(max_engine_requests=limit, quantum=100, shared=shared),
            on_ready=self.sent.append,
        )
        self.dispatcher.engine_up(WORKER)
        self.recorder = Recorder(self.dispatcher)
        self.snapshots = SnapshotTaker(self.dispatcher, self.recorder, list)
        self.observability = GatewayMetrics(self.dispatcher, self.recorder, self.snapshots, list)
        self._order = 0

    def arrive(self, client: str, *, model: str | None = "m", input_len: int = 50) -> Ticket:
        self._order += 1
        request = Request(
            id=str(self._order),
            client=client,
            prompt=(),
            input_len=input_len,
            max_tokens=100,
            order=self._order,
        )
        return self.dispatcher.arrive(request, model=model, text_len=0, streams=True)

    def finish(self, ticket: Ticket, *, output_len: int = 5, now_s: float = 12.0) -> None:
        self.dispatcher.started(ticket)
        self.dispatcher.finished(ticket, Usage(50, output_len, 32), ran_us=1)
        self.recorder.record(ticket, Times(), status=200, now_s=now_s)

    def fail(self, ticket: Ticket, *, status: int) -> None:
        self.dispatcher.refused(ticket)
        self.recorder.record(ticket, Times(first_s=0.0), status=status, now_s=12.0)

    def read(self) -> dict[tuple[str, ...], float]:
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(self.observability.exposition().decode())
            for sample in family.samples
        }

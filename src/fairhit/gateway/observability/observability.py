"""Observability: records finished requests for metrics, dashboard, access log and traces."""

import random
import time
from typing import TYPE_CHECKING

import orjson

from fairhit.dispatch import Dispatcher
from fairhit.errors import ConfigError
from fairhit.gateway.observability.access_log import AccessLog
from fairhit.gateway.observability.metrics.recorder import Recorder
from fairhit.gateway.observability.page.dashboard import SampleHistory
from fairhit.gateway.observability.page.snapshot import SnapshotTaker, Watches
from fairhit.gateway.proxy.exchange import Exchange
from fairhit.gateway.proxy.incoming_request import IncomingRequest
from fairhit.gateway.proxy.trace import Trace
from fairhit.gateway.settings import GatewaySettings
from fairhit.installing import install_command

if TYPE_CHECKING:
    from fairhit.gateway.observability.traces import Traces

# The dashboard's note on the gap and its bound, by scheduler.
_U = (
    "U is the longest prompt computed, plus for each request in flight there twice the longest output and "
    "the worst error of an estimate, all as seen so far."
)
_BOUNDS = {
    "dlpm": "Bound of DLPM: 2 (U + Q) for clients of weight 1 that wait in every sample. "
    "Q is the quantum. " + _U,
    "vtc": "Bound of VTC: 2 U for clients of weight 1 that wait in every sample. " + _U,
}
_UNBOUNDED = "The widest gap of two clients that wait. No bound in tokens is known for this policy."


class Observability:
    """Called with each finished request, and once a second."""

    def __init__(
        self, *, dispatcher: Dispatcher, watches: Watches, settings: GatewaySettings
    ) -> None:
        self._dispatcher = dispatcher
        self._router = settings.router()
        self.recorder = Recorder(dispatcher)
        self.snapshots = SnapshotTaker(dispatcher, self.recorder, watches)
        self._history = SampleHistory()
        path = settings.access_log
        self._log = AccessLog(path, id_headers=settings.request_id_headers) if path else None
        self._traces = _make_traces(settings)
        self._started_ms = time.time_ns() // 1_000_000
        self._sampled_s = time.monotonic()

    def record(self, exchange: Exchange, status: int) -> None:
        """Record a finished request, which has been charged. O(1)."""
        now_s = time.monotonic()
        self.recorder.record(exchange.ticket, exchange, status=status, now_s=now_s)
        if self._log is not None:
            self._log.record(exchange, status, time_s=time.time(), now_s=now_s)
        if self._traces is not None and exchange.trace is not None:
            self._traces.record(exchange.trace, exchange, status, time_s=time.time(), now_s=now_s)

    def record_refused(self, request: IncomingRequest, status: int) -> None:
        """Record a request that was refused before an engine was chosen. O(1)."""
        if request.head.endpoint is not None:
            self.recorder.record_refused(status)
            if self._log is not None:
                self._log.record_refused(request, status, time_s=time.time())

    def trace(self, request: IncomingRequest) -> Trace | None:
        """Begin the request's trace, and set the header for its engine; None if it is not sampled."""
        if self._traces is None:
            return None
        trace, request.lines = self._traces.begin(request.lines)
        return trace

    def reopen(self) -> None:
        """Reopen the access log after it was moved away. Raises ConfigError, and keeps the old file."""
        if self._log is not None:
            self._log.reopen()

    async def close(self) -> None:
        """Write the remaining log lines and spans."""
        for each in (self._log, self._traces):
            if each is not None:
                await each.close()

    def tick(self) -> None:
        """Take a sample if a second has passed. O(requests under way, or finished since)."""
        for each in (self._log, self._traces):
            if each is not None:
                each.outbox.flush()
        now_s = time.monotonic()
        took_s = now_s - self._sampled_s
        if took_s >= 0.95:  # the event loop's clock may be a little ahead
            self._sampled_s = now_s
            self._history.add(self.snapshots.take(time_s=time.time(), took_s=took_s))
            self.recorder.tick()

    def data(self, since: int) -> bytes:
        """Samples after number `since` as JSON, for the dashboard and `fairhit top`."""
        scheduler = self._scheduler()
        about = {
            "started_ms": self._started_ms,
            "last": self._history.last,
            "policy": self._router,
            "scheduler": scheduler,
            "bound": _BOUNDS.get(scheduler or "", _UNBOUNDED),
        }
        return orjson.dumps(about)[:-1] + b',"samples":' + self._history.since(since) + b"}"

    def _scheduler(self) -> str | None:
        """The scheduling policy of the gateway's queue; None if no requests queue here."""
        queue = self._dispatcher.queue
        return queue.scheduler if queue.queues else None


def _make_traces(settings: GatewaySettings) -> "Traces | None":
    """Raise ConfigError if tracing is configured and its packages are missing."""
    endpoint = settings.otlp_traces_endpoint
    if endpoint is None:
        return None
    try:
        from fairhit.gateway.observability.traces import Traces
    except ModuleNotFoundError as error:
        needs = f"needs {error.name}: {install_command('traces')}"
        raise ConfigError(f"--otlp-traces-endpoint: {needs}") from None
    return Traces(endpoint, ratio=settings.trace_ratio, rng=random.Random())

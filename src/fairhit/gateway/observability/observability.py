"""All that makes the gateway visible, behind one object: what it is told, and what it shows."""

import random
import time
from typing import TYPE_CHECKING

import orjson

from fairhit.core.request import WorkerId
from fairhit.dispatch import Dispatcher, Engine
from fairhit.errors import ConfigError
from fairhit.gateway.observability.access_log import AccessLog
from fairhit.gateway.observability.metrics.exposition import Exposition
from fairhit.gateway.observability.metrics.recorder import Recorder
from fairhit.gateway.observability.page.history import Ring
from fairhit.gateway.observability.page.snapshot import SnapshotTaker, Watches
from fairhit.gateway.proxy.exchange import Exchange
from fairhit.gateway.proxy.incoming_request import Incoming
from fairhit.gateway.proxy.trace import Trace
from fairhit.gateway.settings import GatewaySettings
from fairhit.installing import install_command

if TYPE_CHECKING:
    from fairhit.gateway.observability.traces import Traces

# What the page says about its gap and bound, by the policy of what waits here.
_BOUNDS = {
    "dlpm": "Bound of DLPM: 2 (U + Q) for clients of weight 1 that wait at one engine at every look. "
    "Q is the quantum; U is the longest prompt computed, and for each request in flight there two of "
    "the longest answer and the worst error of an estimate, all as seen so far.",
    "vtc": "Bound of VTC: 2 U for clients of weight 1 that wait at one engine at every look. U is the "
    "longest prompt computed, and for each request in flight there two of the longest answer and the "
    "worst error of an estimate, all as seen so far.",
}
_UNBOUNDED = (
    "The widest gap of two clients that wait at one engine. No bound is known for this policy."
)


class Observability:
    """Told of every request's end and of every second."""

    def __init__(
        self, *, dispatcher: Dispatcher, watches: Watches, settings: GatewaySettings
    ) -> None:
        self._dispatcher = dispatcher
        self._policy = settings.router()
        self.recorder = Recorder(dispatcher)
        self.look = SnapshotTaker(dispatcher, self.recorder, watches)
        self.exposition = Exposition(dispatcher, self.recorder, self.look, watches)
        self._ring = Ring()
        self._log = _make_log(settings)
        self._traces = _make_traces(settings)
        self._born = time.time_ns() // 1_000_000
        self._looked_s = time.monotonic()

    def over(self, exchange: Exchange, status: int) -> None:
        """It has ended and is settled. O(1): this is on every request's way."""
        now_s = time.monotonic()
        self.recorder.ended(exchange.ticket, exchange, status=status, now_s=now_s)
        if self._log is not None:
            self._log.over(exchange, status, time_s=time.time(), now_s=now_s)
        if self._traces is not None and exchange.trace is not None:
            self._traces.over(exchange.trace, exchange, status, time_s=time.time(), now_s=now_s)

    def refused(self, request: Incoming, status: int) -> None:
        """It was answered with an error before any engine heard of it. O(1)."""
        if request.head.surface is not None:
            self.recorder.refused(status)
            if self._log is not None:
                self._log.refused(request, status, time_s=time.time())

    def trace(self, request: Incoming) -> Trace | None:
        """The trace it is part of, None if it is not traced; the engine is told by its headers."""
        if self._traces is None:
            return None
        trace, request.lines = self._traces.begin(request.lines)
        return trace

    def reopen(self) -> None:
        """The access log was moved away: begin a new one. Raises ConfigError, and goes on as before."""
        if self._log is not None:
            self._log.reopen()

    async def close(self) -> None:
        """Write and send what is kept."""
        for each in (self._log, self._traces):
            if each is not None:
                await each.close()

    def tick(self) -> None:
        """Take a sample, unless a second has yet to pass. O(requests since the last or under way)."""
        for each in (self._log, self._traces):
            if each is not None:
                each.outbox.flush()
        now_s = time.monotonic()
        took_s = now_s - self._looked_s
        if took_s >= 0.95:  # the clock of the loop may be a little ahead
            self._looked_s = now_s
            self._ring.add(self.look.look(time_s=time.time(), took_s=took_s))
            self.recorder.tick()

    def data(self, since: int) -> bytes:
        """What the page and `fairhit top` show: the samples after number `since`, as JSON."""
        scheduler = self._scheduler()
        about = {
            "born": self._born,
            "last": self._ring.last,
            "policy": self._policy,
            "scheduler": scheduler,
            "bound": _BOUNDS.get(scheduler or "", _UNBOUNDED),
        }
        return orjson.dumps(about)[:-1] + b',"samples":' + self._ring.since(since) + b"}"

    def _scheduler(self) -> str | None:
        """By what it is decided who is next here; None if nothing waits here."""
        workers: dict[WorkerId, Engine] = self._dispatcher.workers
        queues = any(worker.queue is not None for worker in workers.values())
        return self._dispatcher.queueing.scheduler if queues else None


def _make_log(settings: GatewaySettings) -> AccessLog | None:
    path = settings.access_log
    return AccessLog(path, id_headers=settings.request_id_headers) if path else None


def _make_traces(settings: GatewaySettings) -> "Traces | None":
    """Raises ConfigError if the packages for it are not there."""
    endpoint = settings.otlp_traces_endpoint
    if endpoint is None:
        return None
    try:
        from fairhit.gateway.observability.traces import Traces
    except ModuleNotFoundError as error:
        needs = f"needs {error.name}: {install_command('traces')}"
        raise ConfigError(f"--otlp-traces-endpoint: {needs}") from None
    return Traces(endpoint, ratio=settings.trace_ratio, rng=random.Random())

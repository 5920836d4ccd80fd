"""Per-client counters on the engine's own /metrics.

Integration point: the engine's scheduler and its HTTP server are different processes, so this goes
through prometheus_client's multiprocess directory: PROMETHEUS_MULTIPROC_DIR set for the whole server
makes vLLM's /metrics collect what every process wrote there. Empty it between runs.

A label costs memory for ever, so the first MAX_LABELS clients have their own and all later ones
share `other`. Each write is a write to shared memory: they are summed up and flushed once a second.
"""

import os
import time
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

from prometheus_client import Counter, Gauge

from fairlead.core.clients import OTHER
from fairlead.core.request import ClientId
from fairlead.core.service import Service

MULTIPROC_DIR = "PROMETHEUS_MULTIPROC_DIR"
MAX_LABELS = 1000
FLUSH_INTERVAL_S = 1.0


class _Series(NamedTuple):
    """One set per process, for a name can be registered only once."""

    service: Counter
    extend: Counter
    cached: Counter
    output: Counter
    waiting: Gauge
    deficit: Gauge


@cache
def _series() -> _Series:
    label = ["client"]
    # A scheduler's gauges are its own; data-parallel ranks add up, and a dead rank no longer counts.
    gauge = partial(Gauge, labelnames=label, multiprocess_mode="livesum")
    return _Series(
        service=Counter("fairlead_service_tokens", "extend + 2 * output tokens", label),
        extend=Counter("fairlead_extend_tokens", "Prompt tokens computed", label),
        cached=Counter("fairlead_cached_tokens", "Prompt tokens from the prefix cache", label),
        output=Counter("fairlead_output_tokens", "Tokens emitted", label),
        waiting=gauge("fairlead_waiting_requests", "Requests not yet running"),
        deficit=gauge("fairlead_deficit_tokens", "What the client may still receive"),
    )


def is_collected() -> bool:
    """Whether somebody gathers what this process counts."""
    return bool(os.environ.get(MULTIPROC_DIR))


class ClientMetrics:
    """What each client received since the last flush, and how it stands at the flush."""

    def __init__(
        self, *, waiting: Callable[[ClientId], int], deficit: Callable[[ClientId], float]
    ) -> None:
        self._waiting, self._deficit = waiting, deficit
        self._pending: dict[ClientId, Service] = {}
        self._named: set[ClientId] = set()
        self._flushed_s = time.monotonic()
        self._is_collected = is_collected()

    def touch(self, client: ClientId) -> Service:
        """What the client received since the last flush, to be added to. O(1)."""
        if (pending := self._pending.get(client)) is None:
            pending = self._pending[client] = Service()
        return pending

    def flush(self, *, is_idle: bool) -> None:
        """Write out what is pending, once a second and when the engine falls idle. O(clients touched)."""
        if not self._pending:
            return
        now_s = time.monotonic()
        if not is_idle and now_s - self._flushed_s < FLUSH_INTERVAL_S:
            return
        self._flushed_s = now_s
        pending, self._pending = self._pending, {}
        if self._is_collected:
            for client, service in pending.items():
                self._write(client, service)

    def _write(self, client: ClientId, service: Service) -> None:
        series = _series()
        label = self._label(client)
        series.service.labels(label).inc(service.system_view())
        series.extend.labels(label).inc(service.extend_len)
        series.cached.labels(label).inc(service.cached_len)
        series.output.labels(label).inc(service.output_len)
        if label != OTHER:  # one client's state says nothing about the rest of `other`
            series.waiting.labels(label).set(self._waiting(client))
            series.deficit.labels(label).set(self._deficit(client))

    def _label(self, client: ClientId) -> str:
        if client not in self._named:
            if len(self._named) >= MAX_LABELS or client == OTHER:
                return OTHER
            self._named.add(client)
        return client

"""Per-client counters on the engine's own /metrics.

Integration point: the engine's scheduler and its HTTP server are different processes, so this goes
through prometheus_client's multiprocess directory: PROMETHEUS_MULTIPROC_DIR set for the whole server
makes the engine's /metrics collect what every process wrote there. Empty it between runs.

A label costs memory for ever, so the first MAX_LABELS clients have their own and all later ones
share `other`. Each write is a write to shared memory: they are summed up and flushed once a second,
and gauges are written only when they changed.
"""

import os
import time
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

from prometheus_client import Counter, Gauge

from fairhit.core.client_table import OTHER
from fairhit.core.request import ClientId
from fairhit.core.service import Service

MULTIPROC_DIR = "PROMETHEUS_MULTIPROC_DIR"
MAX_LABELS = 1000
FLUSH_INTERVAL_S = 1.0


class Totals(NamedTuple):
    """What the whole engine did since it began, for nobody in particular."""

    recomputed_len: int
    refill_rounds: int
    cut_looks: int
    adapter_turns: int = 0


class _Series(NamedTuple):
    """One set per process, for a name can be registered only once."""

    service: Counter
    extend: Counter
    cached: Counter
    output: Counter
    waiting: Gauge
    deficit: Gauge
    recomputed: Counter
    refills: Counter
    cut_looks: Counter
    adapter_turns: Counter


@cache
def _series() -> _Series:
    label = ["client"]
    # A scheduler's gauges are its own; data-parallel ranks add up, and a dead rank no longer counts.
    gauge = partial(Gauge, labelnames=label, multiprocess_mode="livesum")
    return _Series(
        service=Counter("fairhit_service_tokens", "extend + 2 * output tokens", label),
        extend=Counter("fairhit_extend_tokens", "Prompt tokens computed", label),
        cached=Counter("fairhit_cached_tokens", "Prompt tokens from the prefix cache", label),
        output=Counter("fairhit_output_tokens", "Tokens emitted", label),
        waiting=gauge("fairhit_waiting_requests", "Requests not yet running"),
        deficit=gauge("fairhit_deficit_tokens", "What the client may still receive"),
        recomputed=Counter("fairhit_recomputed_tokens", "Prefilled again after a preemption"),
        refills=Counter("fairhit_refill_rounds", "Rounds in which every client got a quantum"),
        cut_looks=Counter(
            "fairhit_truncated_passes", "Looks that ended at the limit of skipped requests"
        ),
        adapter_turns=Counter(
            "fairhit_lora_slot_rotations", "How often a LoRA adapter gave way for another"
        ),
    )


def is_collected() -> bool:
    """Whether somebody gathers what this process counts."""
    return bool(os.environ.get(MULTIPROC_DIR))


class ClientMetrics:
    """What each client received since the last flush, and how it stands at the flush."""

    def __init__(
        self,
        *,
        waiting: Callable[[ClientId], int],
        deficit: Callable[[ClientId], float],
        totals: Callable[[], Totals],
    ) -> None:
        self._waiting, self._deficit, self._totals = waiting, deficit, totals
        self._pending: dict[ClientId, Service] = {}
        self._named: dict[ClientId, tuple[int, float]] = {}  # and their gauges, as last written
        self._counted = Totals(0, 0, 0)
        self._flushed_s = self._surveyed_s = time.monotonic()
        self._is_collected = is_collected()

    def show(self) -> None:
        """Write the counters that nobody is named in, as zeros: a gateway knows the plug-in by them."""
        if self._is_collected:
            _series()

    def touch(self, client: ClientId) -> Service:
        """What the client received since the last flush, to be added to. O(1)."""
        if (pending := self._pending.get(client)) is None:
            pending = self._pending[client] = Service()
        return pending

    def flush(self, *, is_idle: bool) -> None:
        """Write out what is pending, once a second and when the engine falls idle. O(clients touched).

        Refills change the deficits of those who were not touched, too: once a second all that have
        a label are looked at.
        """
        now_s = time.monotonic()
        is_due = now_s - self._flushed_s >= FLUSH_INTERVAL_S
        if not is_due and not (is_idle and self._pending):
            return
        self._flushed_s = now_s
        pending, self._pending = self._pending, {}
        if not self._is_collected:
            return
        for client, service in pending.items():
            self._write(client, service)
        if now_s - self._surveyed_s >= FLUSH_INTERVAL_S:
            self._surveyed_s = now_s
            for client in self._named:
                self._gauge(client)
        self._count()

    def _write(self, client: ClientId, service: Service) -> None:
        series = _series()
        label = self._label(client)
        series.service.labels(label).inc(service.system_view())
        series.extend.labels(label).inc(service.extend_len)
        series.cached.labels(label).inc(service.cached_len)
        series.output.labels(label).inc(service.output_len)
        if label != OTHER:  # one client's state says nothing about the rest of `other`
            self._gauge(client)

    def _gauge(self, client: ClientId) -> None:
        """How a client that has a label stands now."""
        waiting, deficit = now = self._waiting(client), self._deficit(client)
        if now != self._named[client]:
            self._named[client] = now
            _series().waiting.labels(client).set(waiting)
            _series().deficit.labels(client).set(deficit)

    def _count(self) -> None:
        """What the engine as a whole did since the last flush."""
        before, self._counted = self._counted, self._totals()
        series = _series()
        counters = (series.recomputed, series.refills, series.cut_looks, series.adapter_turns)
        for counter, old, new in zip(counters, before, self._counted, strict=True):
            counter.inc(new - old)

    def _label(self, client: ClientId) -> str:
        if client not in self._named:
            if len(self._named) >= MAX_LABELS or client == OTHER:
                return OTHER
            self._named[client] = (-1, 0.0)  # as no client stands
        return client

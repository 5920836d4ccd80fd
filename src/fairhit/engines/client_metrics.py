"""Per-client counters on the engine's own /metrics.

Integration point: the engine's scheduler and its HTTP server are different processes, so the counters go
through prometheus_client's multiprocess directory: PROMETHEUS_MULTIPROC_DIR set for the whole server
makes the engine's /metrics collect what every process wrote there. Empty it between runs.

A label costs memory for ever, so the first MAX_LABELS clients have labels of their own and all later ones
share `other`. Each write goes to shared memory: so counts are summed up and flushed once a second, and
gauges are written only when they changed.
"""

import os
import time
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

from prometheus_client import Counter, Gauge

from fairhit.core.costs import ContextCost
from fairhit.core.engine_time import BOUNDS, PriceChanges, price_words, prices_of
from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.request import ClientId
from fairhit.core.service import UNITS_PER_TOKEN, Cost, Service

MULTIPROC_DIR = "PROMETHEUS_MULTIPROC_DIR"
MAX_LABELS = 1000
FLUSH_INTERVAL_S = 1.0


class EngineTotals(NamedTuple):
    """Counts of the whole engine since its start."""

    recomputed_len: int
    refill_rounds: int
    truncated_passes: int
    slot_rotations: int = 0


class _Series(NamedTuple):
    """The metrics of a process, in which a name can be registered only once."""

    service: Counter
    extend: Counter
    cached: Counter
    output: Counter
    seconds: Counter
    charged: Counter
    waiting: Gauge
    deficit: Gauge
    recomputed: Counter
    refills: Counter
    truncated_passes: Counter
    slot_rotations: Counter
    price: Gauge


@cache
def _series() -> _Series:
    label = ["client"]
    # The gauges of data-parallel ranks are added up; those of a dead rank no longer count.
    gauge = partial(Gauge, labelnames=label, multiprocess_mode="livesum")
    return _Series(
        service=Counter("fairhit_service_tokens", "extend + 2 * output tokens", label),
        extend=Counter("fairhit_extend_tokens", "Prompt tokens computed", label),
        cached=Counter("fairhit_cached_tokens", "Prompt tokens from the prefix cache", label),
        output=Counter("fairhit_output_tokens", "Output tokens", label),
        seconds=Counter(
            "fairhit_engine_seconds", "Time of forward passes, divided by the work in each", label
        ),
        charged=Counter(
            "fairhit_charged_tokens",
            "Charge by the policy's cost, in computed prompt tokens",
            label,
        ),
        waiting=gauge("fairhit_waiting_requests", "Waiting requests"),
        deficit=gauge("fairhit_deficit_tokens", "Service left to the client before a refill"),
        recomputed=Counter("fairhit_recomputed_tokens", "Tokens recomputed after a preemption"),
        refills=Counter("fairhit_refill_rounds", "Refills of one quantum to every client"),
        truncated_passes=Counter(
            "fairhit_truncated_passes",
            "Scheduling passes that ended at a limit of skipped requests",
        ),
        slot_rotations=Counter(
            "fairhit_lora_slot_rotations", "LoRA slots taken from one adapter for another"
        ),
        price=Gauge(
            "fairhit_price_tokens",
            "Price in computed prompt tokens, of an output or for each token before it",
            ["part"],
            multiprocess_mode="livemostrecent",
        ),
    )


def is_collected() -> bool:
    """Return whether the counts of this process are collected."""
    return bool(os.environ.get(MULTIPROC_DIR))


class ClientMetrics:
    """The service of each client since the last flush, and its gauges at the flush."""

    def __init__(
        self,
        *,
        waiting: Callable[[ClientId], int],
        deficit: Callable[[ClientId], float],
        totals: Callable[[], EngineTotals],
        cost: Callable[[], Cost | None] = lambda: None,
        notify: Callable[[str], None] = lambda _: None,
        charges: Callable[[], dict[ClientId, int]] = dict,
    ) -> None:
        self._waiting, self._deficit, self._totals = waiting, deficit, totals
        self._cost, self._notify = cost, notify
        start = cost()
        self._price_changes = PriceChanges(
            prices_of(start) if isinstance(start, ContextCost) else None
        )
        self._shown: Cost | None = None  # whose prices were written last
        self._pending: dict[ClientId, Service] = {}
        self._seconds: dict[ClientId, float] = {}
        self._gauges: dict[ClientId, tuple[int, float]] = {}  # last written, by client with a label
        self._counted = EngineTotals(0, 0, 0)
        self._flushed_s = self._surveyed_s = time.monotonic()
        self._is_collected = is_collected()
        # Units charged since they were last written; a refund of more than that waits here.
        self._charges = charges() if self._is_collected else {}

    def show(self) -> None:
        """Write the counters without a client label as zeros: a gateway detects the plug-in by them."""
        if self._is_collected:
            _series()

    def touch(self, client: ClientId) -> Service:
        """Return the client's service since the last flush, to be added to. O(1)."""
        if (pending := self._pending.get(client)) is None:
            pending = self._pending[client] = Service()
        return pending

    def add_seconds(self, client: ClientId, seconds: float) -> None:
        """Add a client's part of a forward pass. O(1)."""
        self._seconds[client] = self._seconds.get(client, 0.0) + seconds

    def flush(self, *, is_idle: bool) -> None:
        """Write pending service, once a second and when the engine falls idle. O(clients touched).

        Refills change the deficits of other clients, too: so once a second the gauges of all clients with a
        label are updated. O(labels).
        """
        now_s = time.monotonic()
        is_due = now_s - self._flushed_s >= FLUSH_INTERVAL_S
        if not is_due and not (is_idle and self._pending):
            return
        self._flushed_s = now_s
        pending, self._pending = self._pending, {}
        seconds, self._seconds = self._seconds, {}
        self._log_prices(now_s)
        if not self._is_collected:
            return
        for client, service in pending.items():
            self._write(client, service)
        for client, each in seconds.items():
            _series().seconds.labels(self._label(client)).inc(each)
        self._write_charges()
        if now_s - self._surveyed_s >= FLUSH_INTERVAL_S:
            self._surveyed_s = now_s
            for client in self._gauges:
                self._gauge(client)
        self._count()
        self._show_prices()

    def _write_charges(self) -> None:
        """Write what clients were charged since the last time. O(clients charged)."""
        for client, units in list(self._charges.items()):
            if units > 0:
                del self._charges[client]
                _series().charged.labels(self._label(client)).inc(units / UNITS_PER_TOKEN)

    def _log_prices(self, now_s: float) -> None:
        """Log fitted prices in force when they are the first ones, or changed noticeably."""
        cost = self._cost()
        if isinstance(cost, ContextCost) and cost.fitted:
            prices = prices_of(cost)
            if self._price_changes.is_notable(prices, now_s):
                self._notify(f"prices in force: {price_words(prices)}")

    def _show_prices(self) -> None:
        """Write the prices in force, if they changed and are prices of engine time."""
        cost = self._cost()
        if cost is self._shown or not isinstance(cost, ContextCost):
            return
        self._shown = cost
        for part, price in zip(BOUNDS, prices_of(cost), strict=True):
            _series().price.labels(part).set(price)

    def _write(self, client: ClientId, service: Service) -> None:
        series = _series()
        label = self._label(client)
        series.service.labels(label).inc(service.system_view())
        series.extend.labels(label).inc(service.extend_len)
        series.cached.labels(label).inc(service.cached_len)
        series.output.labels(label).inc(service.output_len)
        if label != OTHER:  # the gauges of one client would not be those of all in `other`
            self._gauge(client)

    def _gauge(self, client: ClientId) -> None:
        """Write the gauges of a client with a label, if they changed."""
        waiting, deficit = now = self._waiting(client), self._deficit(client)
        if now != self._gauges[client]:
            self._gauges[client] = now
            _series().waiting.labels(client).set(waiting)
            _series().deficit.labels(client).set(deficit)

    def _count(self) -> None:
        """Add the engine's counts since the last flush."""
        before, self._counted = self._counted, self._totals()
        series = _series()
        counters = (
            series.recomputed,
            series.refills,
            series.truncated_passes,
            series.slot_rotations,
        )
        for counter, old, new in zip(counters, before, self._counted, strict=True):
            counter.inc(new - old)

    def _label(self, client: ClientId) -> str:
        if client not in self._gauges:
            if len(self._gauges) >= MAX_LABELS or client == OTHER:
                return OTHER
            self._gauges[client] = (-1, 0.0)  # unlike any client's
        return client

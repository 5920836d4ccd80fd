"""Exchanges reports with the shared ledger a few times a second, outside the path of every request.

If the ledger fails, requests are still served: by the deficits known last, and as if no client waited at
another gateway. Charges during the outage are never reported, so no client pays for it.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairhit.dispatch import Dispatcher, LedgerSharing, LedgerUpdate, SharedLedger
from fairhit.gateway.process.sharing.ledger_format import read, write
from fairhit.gateway.process.sharing.ledger_stores import TIMEOUT_S, Busy, Store
from fairhit.gateway.settings import GatewaySettings

_log = logging.getLogger(__name__)

# A gateway without a report for so long, and for so many of its periods, blocks no client any more.
_SILENT_S = 1.0
_SILENT_EXCHANGES = 5
# Largest share of the time spent on exchanges, which take long with many clients.
_SHARE = 0.05
# Longest pause before a store that failed is tried again.
_MOST_PAUSE_S = 5.0


def timeout_s(period_s: float) -> float:
    """Return after how many seconds without a report a gateway with that period has failed."""
    return max(_SILENT_S, _SILENT_EXCHANGES * period_s)


class Peers:
    """Detects failed gateways by our own clock, since theirs may differ."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._seen: dict[str, tuple[int, float]] = {}  # beats, and when they last changed

    def silent(self, ledger: SharedLedger, now: float) -> list[str]:
        """Return the gateways whose reports have stopped. O(gateways)."""
        seen = {}
        for name, peer in ledger.peers.items():
            beats, since = self._seen.get(name, (-1, now))
            seen[name] = (beats, since) if beats == peer.beats else (peer.beats, now)
        self._seen = seen
        return [
            name
            for name, (_, since) in seen.items()
            if now - since > timeout_s(ledger.peers[name].period_s) and name != self._own
        ]


class LedgerExchange(Collector):
    """Exchanges reports from `start` to `close`; as a collector, exports how that went."""

    def __init__(
        self, dispatcher: Dispatcher, store: Store | None, settings: GatewaySettings
    ) -> None:
        self._sharing = LedgerSharing(dispatcher)
        self._store = store  # None: this gateway shares nothing
        self._interval_s = settings.share_interval_secs
        self._name = secrets.token_hex(8)
        self._peers = Peers(self._name)
        self._random = (
            random.Random()
        )  # jitter: else two gateways that collide would collide each time
        self._failures = 0  # in a row
        self._busy_since: float | None = None  # other gateways were faster ever since
        self._spent_s = 0.0  # CPU time of the last exchange
        self._counts = {"ok": 0, "busy": 0, "failed": 0}
        self._gateways = 0
        self._task: asyncio.Task[None] | None = None
        self._closing = False  # the client of Redis may take a cancellation for a timeout

    def start(self) -> None:
        """Begin to exchange, on the running event loop."""
        if self._store is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._store))

    async def close(self) -> None:
        """Stop, and remove this gateway from the ledger if the store answers."""
        if self._task is None or self._store is None:
            return
        self._closing = True
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._failures:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._store.change(self._leave)
            except (Busy, OSError, TimeoutError, ValueError):
                _log.debug("this gateway was not removed from the shared ledger")
        await self._store.close()

    def collect(self) -> Iterator[Metric]:
        if self._store is None:
            return
        yield GaugeMetricFamily(
            "fairhit_sharing_up",
            "1 while the shared ledger answers; 0: fair among this gateway's own clients only.",
            value=int(not self._failures),
        )
        yield GaugeMetricFamily(
            "fairhit_sharing_gateways",
            "Gateways that share the ledger, this one included.",
            value=self._gateways,
        )
        exchanges = CounterMetricFamily(
            "fairhit_sharing_exchanges",
            "Exchanges with the ledger; busy: other gateways were faster, and the next one reports it all.",
            labels=["outcome"],
        )
        for outcome, number in self._counts.items():
            exchanges.add_metric([outcome], number)
        yield exchanges

    async def _run(self, store: Store) -> None:
        while not self._closing:
            try:
                await self._exchange(store)
            except Busy as error:
                self._lose(error)
            except (OSError, TimeoutError, ValueError) as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - our bug, and without this handler all exchanges would stop
                if not self._failures:
                    _log.error("sharing: %s: %s", type(error).__name__, error)
                self._fail(error)
            if not self._closing:
                backoff = min(_MOST_PAUSE_S, self._interval_s * 2.0 ** min(self._failures, 16))
                pause = max(self._period_s(), backoff)
                await asyncio.sleep(pause * self._random.uniform(0.8, 1.0))

    def _period_s(self) -> float:
        """Return the time until the next exchange: longer if the last one took much CPU, failed or not."""
        return max(self._interval_s, self._spent_s / _SHARE)

    async def _exchange(self, store: Store) -> None:
        """Raises Busy, OSError or ValueError."""
        period_s = self._period_s()
        self._spent_s, begun = 0.0, time.thread_time()
        if self._failures:  # charges since the last attempt are not reported
            self._sharing.detach()
        report = self._sharing.report()
        if report is None:  # no queue here, or a policy that cannot be shared
            self._busy_since = None
            return
        quantum_of, now = self._sharing.quantum_of(), asyncio.get_running_loop().time()
        updates: list[LedgerUpdate] = []  # one of each attempt
        self._spent_s = time.thread_time() - begun

        def change(written: bytes | None) -> bytes:
            begun = time.thread_time()
            ledger = read(written)
            ledger.forget(self._peers.silent(ledger, now))
            updates.append(ledger.exchange(self._name, report, quantum_of))
            ledger.peers[self._name].period_s = period_s
            self._gateways = len(ledger.peers)
            encoded = write(ledger)
            self._spent_s += time.thread_time() - begun
            return encoded

        try:
            async with asyncio.timeout(TIMEOUT_S):
                await store.change(change)
        except Busy:
            self._sharing.take_back(report)
            raise
        if self._failures:
            _log.warning("the shared ledger answers again")
        self._failures, self._busy_since = 0, None
        self._counts["ok"] += 1
        begun = time.thread_time()
        self._sharing.adopt(updates[-1])
        self._spent_s += time.thread_time() - begun

    def _lose(self, error: Busy) -> None:
        """Leave it to the next exchange; a store busy for too long counts as failed."""
        now = asyncio.get_running_loop().time()
        if self._busy_since is None:
            self._busy_since = now
        if self._failures or now - self._busy_since > timeout_s(self._period_s()):
            self._fail(error)
        else:
            self._counts["busy"] += 1

    def _fail(self, error: Exception) -> None:
        """Continue without the ledger; the reports of this exchange may have arrived or not."""
        if not self._failures:
            _log.warning(
                "shared ledger is unreachable, this gateway is fair among its own clients only: %s",
                str(error) or "timeout",
            )
        self._failures += 1
        self._counts["failed"] += 1
        self._gateways = 1
        self._sharing.detach()

    def _leave(self, written: bytes | None) -> bytes:
        ledger = read(written)
        ledger.forget([self._name])
        return write(ledger)

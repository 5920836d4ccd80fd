"""Exchanges with the shared account a few times a second, off every request's way.

Whatever fails there, requests are served: by what was known last for the others' charges, and as if
nobody waited elsewhere. What was charged meanwhile is not told afterwards: nobody pays for the outage.
"""

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fairhit.core.request import WorkerId
from fairhit.dispatch import Dispatcher, LedgerSharing, LedgerUpdate, SharedLedger
from fairhit.gateway.process.sharing.ledger_format import read, write
from fairhit.gateway.process.sharing.ledger_stores import TIMEOUT_S, Busy, Store
from fairhit.gateway.settings import GatewaySettings

_log = logging.getLogger(__name__)

# A gateway that has not been heard of for so long, and so many of its exchanges, holds nobody back.
_SILENT_S = 1.0
_SILENT_EXCHANGES = 5
# At most this part of the time is spent on the account, which many clients make long.
_SHARE = 0.05
# Longest wait before a store that failed is tried again.
_MOST_PAUSE_S = 5.0


def timeout_s(period_s: float) -> float:
    """How long to wait for a gateway that exchanges so often, in seconds."""
    return max(_SILENT_S, _SILENT_EXCHANGES * period_s)


class Peers:
    """Which of the gateways in an account are gone: by our own clock, since theirs may differ."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._seen: dict[str, tuple[int, float]] = {}  # beats, and since when it has had so many

    def silent(self, accounts: SharedLedger, now: float) -> list[str]:
        """Those whose reports have stopped. O(gateways)."""
        seen = {}
        for name, peer in accounts.peers.items():
            beats, since = self._seen.get(name, (-1, now))
            seen[name] = (beats, since) if beats == peer.beats else (peer.beats, now)
        self._seen = seen
        return [
            name
            for name, (_, since) in seen.items()
            if now - since > timeout_s(accounts.peers[name].period_s) and name != self._own
        ]


class LedgerExchange(Collector):
    """Exchanges from `start` to `close`; as a collector, its metrics."""

    def __init__(
        self, dispatcher: Dispatcher, store: Store | None, settings: GatewaySettings
    ) -> None:
        self._shared = LedgerSharing(dispatcher)
        self._store = store  # None: this gateway stands alone
        self._interval_s = settings.share_interval_secs
        self._name = secrets.token_hex(8)
        self._peers = Peers(self._name)
        self._random = random.Random()  # or gateways that met once would meet at each exchange
        self._failures = 0  # in a row
        self._busy_since: float | None = None  # others were quicker ever since
        self._spent_s = 0.0  # by the last exchange, of this gateway's core
        self._counts = {"ok": 0, "busy": 0, "failed": 0}
        self._gateways = 0
        self._task: asyncio.Task[None] | None = None
        self._closing = False  # to cancel is not enough: Redis' client may take that for a timeout

    def start(self) -> None:
        """Begin; there is an event loop."""
        if self._store is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._store))

    async def close(self) -> None:
        """Say that we are gone, if somebody listens."""
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
                _log.debug("the account was not told that we stop")
        await self._store.close()

    def collect(self) -> Iterator[Metric]:
        if self._store is None:
            return
        yield GaugeMetricFamily(
            "fairhit_sharing_up",
            "1 while the shared account answers; 0: fair among this gateway's own callers only.",
            value=int(not self._failures),
        )
        yield GaugeMetricFamily(
            "fairhit_sharing_gateways",
            "Gateways that keep the account, this one included.",
            value=self._gateways,
        )
        exchanges = CounterMetricFamily(
            "fairhit_sharing_exchanges",
            "Exchanges with the account; busy: others were quicker, and the next one tells it all.",
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
            except Exception as error:  # noqa: BLE001 - our bug, but nobody else goes on sharing
                if not self._failures:
                    _log.error("sharing: %s: %s", type(error).__name__, error)
                self._fail(error)
            if not self._closing:
                backoff = min(_MOST_PAUSE_S, self._interval_s * 2.0 ** min(self._failures, 16))
                pause = max(self._period_s(), backoff)
                await asyncio.sleep(pause * self._random.uniform(0.8, 1.0))

    def _period_s(self) -> float:
        """Until the next exchange: longer where the last was dear, whatever became of it."""
        return max(self._interval_s, self._spent_s / _SHARE)

    async def _exchange(self, store: Store) -> None:
        """Raises Busy, OSError or ValueError."""
        period_s = self._period_s()
        self._spent_s, begun = 0.0, time.thread_time()
        if self._failures:  # since the last try, too, others were served that nobody told of
            self._shared.detach()
        reports = self._shared.reports()
        if not reports:  # no queue here, or one that cannot be shared
            self._busy_since = None
            return
        quantum_of, now = self._shared.quantum_of(), asyncio.get_running_loop().time()
        heard: dict[WorkerId, LedgerUpdate] = {}
        self._spent_s = time.thread_time() - begun

        def change(written: bytes | None) -> bytes:
            begun = time.thread_time()
            accounts = read(written)
            accounts.forget(self._peers.silent(accounts, now))
            heard.update(accounts.exchange(self._name, reports, quantum_of))
            accounts.peers[self._name].period_s = period_s
            self._gateways = len(accounts.peers)
            told = write(accounts)
            self._spent_s += time.thread_time() - begun
            return told

        try:
            async with asyncio.timeout(TIMEOUT_S):
                await store.change(change)
        except Busy:
            self._shared.take_back(reports)
            raise
        if self._failures:
            _log.warning("the shared account answers again")
        self._failures, self._busy_since = 0, None
        self._counts["ok"] += 1
        begun = time.thread_time()
        self._shared.adopt(heard)
        self._spent_s += time.thread_time() - begun

    def _lose(self, error: Busy) -> None:
        """The next exchange will do; but who never gets through is out of reach: it knows nobody's turn."""
        now = asyncio.get_running_loop().time()
        if self._busy_since is None:
            self._busy_since = now
        if self._failures or now - self._busy_since > timeout_s(self._period_s()):
            self._fail(error)
        else:
            self._counts["busy"] += 1

    def _fail(self, error: Exception) -> None:
        """Go on alone; what this exchange was to tell may have arrived or not."""
        if not self._failures:
            _log.warning(
                "the shared account is out of reach, this gateway is fair by itself: %s",
                str(error) or "it took too long",
            )
        self._failures += 1
        self._counts["failed"] += 1
        self._gateways = 1
        self._shared.detach()

    def _leave(self, written: bytes | None) -> bytes:
        accounts = read(written)
        accounts.forget([self._name])
        return write(accounts)

"""Monitors the engines' caches: subscriptions to their KV events, and counts for the metrics."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import zmq

from fairhit.core.request import WorkerId
from fairhit.gateway.observability.log_exceptions import log_exceptions
from fairhit.gateway.prefix.kv_events.feed import Counts, Feed
from fairhit.gateway.prefix.kv_events.subscription import Subscription
from fairhit.gateway.prefix.kv_events.wire import Sockets
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex

_log = logging.getLogger(__name__)

# Interval at which unconfirmed optimistic blocks are expired.
_TICK_S = 0.5
# Different problems of one engine that are logged, each once.
_MAX_PROBLEMS = 20


# Endpoints (events, replay or None) at which an engine publishes, per data-parallel rank.
Endpoints: TypeAlias = tuple[tuple[str, str | None], ...]


class _MonitoredEngine:
    """Feeds and subscriptions of one engine."""

    def __init__(self, index: PrecisePrefixIndex, worker: WorkerId) -> None:
        self.index = index
        self.worker = worker
        self.feeds: list[Feed] = []
        self.subscriptions: list[Subscription] = []
        self.is_removed = False
        self._problems: set[str] = set()

    def on_change(self) -> None:
        """Update the index: an engine's cache is known completely if each of its feeds is complete."""
        levels = {feed.knowledge for feed in self.feeds}
        level = levels.pop() if len(levels) == 1 else Knowledge.PARTIAL
        if not self.is_removed:
            self.index.learn(self.worker, level)

    def on_error(self, problem: str) -> None:
        if problem not in self._problems and len(self._problems) < _MAX_PROBLEMS:
            self._problems.add(problem)
            _log.warning("KV events of %s: %s; logged once, then counted", self.worker, problem)


class CacheMonitor:
    """Subscribes to the KV events of each engine that is up, and advances the index's clock.

    `endpoints` returns where an engine publishes, None if it does not.
    """

    def __init__(
        self,
        *,
        index: PrecisePrefixIndex,
        endpoints: Callable[[WorkerId], Endpoints | None],
        topic: str = "",
        block_len: int,
        capacity: int,
    ) -> None:
        self._index = index
        self._endpoints = endpoints
        self._topic = topic
        self._block_len = block_len
        self._capacity = capacity
        self._monitored: dict[WorkerId, _MonitoredEngine] = {}
        self._sockets = Sockets()
        self._loop = asyncio.get_running_loop()
        self._ticker: asyncio.TimerHandle | None = None
        index.listen(self)
        self._tick()

    def worker_added(self, worker: WorkerId) -> None:
        """Subscribe to the events of `worker`."""
        endpoints = self._endpoints(worker)
        if endpoints is None:
            return
        monitored = self._monitored[worker] = _MonitoredEngine(self._index, worker)
        for events, replay in endpoints:
            feed = Feed(
                index=self._index,
                worker=worker,
                block_len=self._block_len,
                capacity=max(1, self._capacity // len(endpoints)),
                on_change=monitored.on_change,
                on_error=monitored.on_error,
            )
            monitored.feeds.append(feed)
            try:
                subscription = Subscription(
                    sockets=self._sockets,
                    feed=feed,
                    endpoint=events,
                    replay_endpoint=replay,
                    topic=self._topic,
                )
            except zmq.ZMQError as error:
                monitored.on_error(f"{events}: {error}")
                continue
            monitored.subscriptions.append(subscription)

    def worker_dropped(self, worker: WorkerId) -> None:
        """Close the subscriptions of `worker`."""
        monitored = self._monitored.pop(worker, None)
        if monitored is not None:
            monitored.is_removed = True
            for subscription in monitored.subscriptions:
                subscription.close()
            for feed in monitored.feeds:
                feed.abandon()

    def counts(self) -> Mapping[WorkerId, "CacheCounts"]:
        """Counts by engine that is up. O(engines)."""
        return {
            worker: CacheCounts(
                knowledge=self._index.knowledge(worker),
                confirmed=self._index.confirmed(worker),
                hashes=sum(len(feed) for feed in monitored.feeds),
                unconfirmed=sum(self._index.disproved(worker)),
                orphaned=sum(feed.orphaned() for feed in monitored.feeds),
                messages=[feed.counts for feed in monitored.feeds],
            )
            for worker, monitored in self._monitored.items()
        }

    def close(self) -> None:
        """Close all subscriptions."""
        if self._ticker is not None:
            self._ticker.cancel()
        for worker in list(self._monitored):
            self.worker_dropped(worker)
        self._sockets.close()

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(_TICK_S, self._tick)
        log_exceptions(self._index.advance, int(self._loop.time() * 1_000_000))


class CacheCounts(NamedTuple):
    """KV events of an engine so far."""

    knowledge: Knowledge
    confirmed: int  # blocks of the index
    hashes: int  # of the engine, kept
    unconfirmed: int  # optimistic blocks that were denied or expired
    orphaned: int  # blocks with an unknown parent, or beyond the limit
    messages: list[Counts]

    def total(self, name: str) -> int:
        """Sum of the count `name` over all publishers of the engine."""
        return sum(int(getattr(counts, name)) for counts in self.messages)

"""Which engine's events are heard where, and what has come of it, for the metrics."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

import zmq

from fairhit.core.request import WorkerId
from fairhit.gateway.observability.log_exceptions import log_exceptions
from fairhit.gateway.prefix.kv_events.feed import Counts, Feed
from fairhit.gateway.prefix.kv_events.subscription import Subscription
from fairhit.gateway.prefix.kv_events.wire import Sockets
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex

_log = logging.getLogger(__name__)

# How often guesses are looked at that were not confirmed.
_TICK_S = 0.5
# Different complaints about one engine that are logged, each once.
_MAX_COMPLAINTS = 20


class Endpoints(NamedTuple):
    """Where an engine publishes, one pair for each of its data-parallel ranks; replay None: nowhere."""

    pairs: tuple[tuple[str, str | None], ...]


class _Watched:
    """One engine: its feeds, and what they say together."""

    def __init__(self, index: PrecisePrefixIndex, worker: WorkerId) -> None:
        self.index = index
        self.worker = worker
        self.feeds: list[Feed] = []
        self.subscriptions: list[Subscription] = []
        self.gone = False
        self._complaints: set[str] = set()

    def changed(self) -> None:
        """The worker is known completely only if each of its caches is."""
        levels = {feed.knowledge for feed in self.feeds}
        level = levels.pop() if len(levels) == 1 else Knowledge.PARTIAL
        if not self.gone:
            self.index.learn(self.worker, level)

    def complain(self, why: str) -> None:
        if why not in self._complaints and len(self._complaints) < _MAX_COMPLAINTS:
            self._complaints.add(why)
            _log.warning("KV events of %s: %s; counted from now on", self.worker, why)


class CacheMonitor:
    """Subscribes to the events of each worker that is up; tells the index the time.

    `endpoints` says where a worker publishes, None if it does not.
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
        self._watched: dict[WorkerId, _Watched] = {}
        self._sockets = Sockets()
        self._loop = asyncio.get_running_loop()
        self._ticker: asyncio.TimerHandle | None = None
        index.listen(self)
        self._tick()

    def worker_added(self, worker: WorkerId) -> None:
        """Begin to hear of its cache."""
        endpoints = self._endpoints(worker)
        if endpoints is None:
            return
        watched = self._watched[worker] = _Watched(self._index, worker)
        for events, replay in endpoints.pairs:
            feed = Feed(
                index=self._index,
                worker=worker,
                block_len=self._block_len,
                capacity=max(1, self._capacity // len(endpoints.pairs)),
                changed=watched.changed,
                complain=watched.complain,
            )
            watched.feeds.append(feed)
            try:
                subscription = Subscription(
                    sockets=self._sockets,
                    feed=feed,
                    endpoint=events,
                    replay_endpoint=replay,
                    topic=self._topic,
                )
            except zmq.ZMQError as error:
                watched.complain(f"{events}: {error}")
                continue
            watched.subscriptions.append(subscription)

    def worker_dropped(self, worker: WorkerId) -> None:
        """Hear no more of it."""
        watched = self._watched.pop(worker, None)
        if watched is not None:
            watched.gone = True
            for subscription in watched.subscriptions:
                subscription.close()
            for feed in watched.feeds:
                feed.abandon()

    def counts(self) -> Mapping[WorkerId, "CacheCounts"]:
        """What has come of each worker that is up. O(workers)."""
        return {
            worker: CacheCounts(
                knowledge=self._index.knowledge(worker),
                confirmed=self._index.confirmed(worker),
                hashes=sum(len(feed) for feed in watched.feeds),
                disproved=sum(self._index.disproved(worker)),
                unplaced=sum(feed.unplaced() for feed in watched.feeds),
                messages=[feed.counts for feed in watched.feeds],
            )
            for worker, watched in self._watched.items()
        }

    def close(self) -> None:
        """Hear no more of any."""
        if self._ticker is not None:
            self._ticker.cancel()
        for worker in list(self._watched):
            self.worker_dropped(worker)
        self._sockets.close()

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(_TICK_S, self._tick)
        log_exceptions(self._index.advance, int(self._loop.time() * 1_000_000))


class CacheCounts(NamedTuple):
    """One worker's events so far."""

    knowledge: Knowledge
    confirmed: int  # blocks of ours
    hashes: int  # of the engine's, remembered
    disproved: int  # guesses that were denied or expired
    unplaced: int  # blocks without a known beginning, or beyond the limit
    messages: list[Counts]

    def total(self, name: str) -> int:
        """A count over all publishers of the worker."""
        return sum(int(getattr(counts, name)) for counts in self.messages)

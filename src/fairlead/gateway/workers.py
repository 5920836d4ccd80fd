"""Which engines there are and which of them answer: probes, and what is noticed in passing.

An engine is *down* when it cannot be asked (its cache counts as lost), and *takes* no requests while
it drains or its circuit breaker is open (it keeps its cache, and what it has begun).
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from ssl import SSLContext

from fairlead.core.request import WorkerId
from fairlead.dispatch import Dispatcher, Ticket, Worker
from fairlead.errors import ConfigError
from fairlead.gateway.breaker import CircuitBreaker, Phase
from fairlead.gateway.descriptors import Descriptors
from fairlead.gateway.observing import Observing
from fairlead.gateway.probe import Model
from fairlead.gateway.settings import GatewaySettings
from fairlead.gateway.tls import trusting
from fairlead.gateway.turns import Turns
from fairlead.gateway.upstream import Engine, Fault

_log = logging.getLogger(__name__)

# How often it is looked whether one that drains has ended all it had.
_DRAIN_INTERVAL_S = 0.05


@dataclass(slots=True, eq=False)
class WatchedEngine:
    """One engine under observation."""

    engine: Engine
    soon: asyncio.Event
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    failures: int = 0  # probes in a row
    successes: int = 0
    was_up: bool = False
    problem: str | None = None  # why its last probe failed
    leaving: bool = False  # drains once there are others
    draining: bool = False
    declared: str | None = None  # the model an operator says it has
    models: tuple[Model, ...] = ()  # as its /v1/models lists them
    evicted: frozenset[str] = frozenset()  # that it has listed since it is up, and takes in again
    listed_s: float = float("-inf")  # when that was last asked
    faults: dict[Fault, int] = field(default_factory=dict)


class Workers:
    """The engines by URL. `move` hears of each request that must go elsewhere."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        move: Callable[[Ticket], None],
        settings: GatewaySettings,
        descriptors: Descriptors | None = None,
        turns: Turns | None = None,
        is_own: Callable[[WorkerId], bool] = lambda _: False,
    ) -> None:
        self._is_own = is_own
        self._descriptors = descriptors
        self._turns = turns or Turns()
        self._dispatcher = dispatcher
        self._move = move
        self._settings = settings
        self._watches: dict[WorkerId, WatchedEngine] = {}
        self._tls: SSLContext | None = None
        self._observing = Observing(
            settings=lambda: self._settings,
            is_up=lambda watch: dispatcher.workers[watch.engine.url].up,
            in_use=self._in_use,
            welcome=self._welcome,
            lost=lambda watch: self.lost(watch.engine.url),
            relisted=self._relisted,
        )
        self.listing = self._observing.listing
        self.check(settings.worker_urls)  # what is wrong is known at the start

    def __contains__(self, url: WorkerId) -> bool:
        return url in self._watches

    def watches(self) -> list[tuple[WorkerId, WatchedEngine, Worker]]:
        """Each engine as it is watched, and as the dispatcher knows it."""
        known = self._dispatcher.workers
        return [(url, watch, known[url]) for url, watch in self._watches.items()]

    def engine(self, url: WorkerId) -> Engine:
        """The engine at `url`."""
        return self._watches[url].engine

    def change(self, settings: GatewaySettings) -> None:
        """Go on by other settings; the list of engines is not looked at."""
        self._settings = settings
        for watch in self._watches.values():
            watch.engine.breaker.change(settings.breaker_rules())
            watch.engine.connect_timeout_s = settings.connect_timeout_secs
            if settings.disable_circuit_breaker and watch.engine.breaker.phase is not Phase.CLOSED:
                watch.engine.breaker = CircuitBreaker(settings.breaker_rules())
        self._settle()

    def check(self, urls: Collection[WorkerId]) -> None:
        """Whether engines at `urls` can be added. Raises ConfigError."""
        for url in urls:
            if self._is_own(url):
                raise ConfigError(f"worker {url}: is this gateway's own address")
        if any(url.startswith("https:") for url in urls):
            self._trusting()

    # -- coming and going

    def add(self, url: WorkerId, *, model: str | None = None) -> bool:
        """Watch the engine at `url`; it gets requests once it has answered a probe.

        Whether it is new; one that was draining takes requests again.
        """
        if (known := self._watches.get(url)) is not None:
            known.draining = known.leaving = False
            if model is not None and known.declared != model:
                known.declared = model
                if self._dispatcher.workers[url].up:
                    self._relisted(known)
            self._settle()
            return False
        settings = self._settings
        engine = Engine(
            url,
            key=settings.worker_api_key,
            breaker=CircuitBreaker(settings.breaker_rules()),
            connect_timeout_s=settings.connect_timeout_secs,
            tls=self._trusting() if url.startswith("https:") else None,
            turns=self._turns,
            unknown=self.listing.again,
            descriptors=self._descriptors,
        )
        watch = WatchedEngine(engine=engine, soon=asyncio.Event(), declared=model)
        self._watches[url] = watch
        self._dispatcher.worker_down(url)  # known, and not up yet
        watch.tasks.append(asyncio.get_running_loop().create_task(self._observing.observe(watch)))
        return True

    def drain(self, url: WorkerId) -> None:
        """No new requests to the engine at `url`; when it has ended what it has, it is removed."""
        watch = self._watches[url]
        if watch.draining:
            return
        watch.draining = True
        _log.info("engine %s drains", url)
        self._settle()
        watch.tasks.append(asyncio.get_running_loop().create_task(self._drained(watch)))

    def leave(self, url: WorkerId) -> None:
        """Drain the engine at `url` once those that stay serve what it does, or none of them will.

        Those that are to replace it have most likely not answered a probe yet.
        """
        self._watches[url].leaving = True
        self._settle()
        if not self._watches[url].draining:
            _log.info("engine %s drains once others serve what it does", url)

    def remove(self, url: WorkerId) -> None:
        """Stop using the engine at `url`; what it has begun to answer goes on."""
        watch = self._watches.pop(url)
        _log.info("engine %s is removed", url)
        for task in watch.tasks:
            task.cancel()
        waiting = self._dispatcher.forget_worker(url)
        self._settle()  # first: it may need those that took no requests
        self._relist_evicted()
        self._move_from(url, waiting)
        watch.engine.close()

    def close_idle(self) -> bool:
        """Close one connection that is idle; whether there was one. O(engines)."""
        return any(watch.engine.close_idle() for watch in self._watches.values())

    async def close(self) -> None:
        """Stop watching."""
        tasks = [task for watch in self._watches.values() for task in watch.tasks]
        for task in tasks:
            task.cancel()
        self.listing.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        for watch in self._watches.values():
            watch.engine.close()

    # -- what is noticed in passing

    def lost(self, url: WorkerId) -> None:
        """It cannot be reached: its waiting requests move, and it is probed until it is back."""
        watch = self._watches.get(url)
        if watch is None:
            return
        if self._dispatcher.workers[url].up:
            _log.warning("engine %s is down", url)
            watch.successes = 0
        waiting = self._dispatcher.worker_down(url)
        self._settle()
        self._relist_evicted()
        self._move_from(url, waiting)
        watch.soon.set()

    def failing(self, url: WorkerId, fault: Fault) -> None:
        """It failed a request: probe it now rather than at the next turn, and count."""
        watch = self._watches.get(url)
        if watch is None:
            return
        watch.faults[fault] = watch.faults.get(fault, 0) + 1
        watch.soon.set()
        breaker = watch.engine.breaker
        if not self._settings.disable_circuit_breaker:
            was = breaker.phase
            breaker.failed(asyncio.get_running_loop().time())
            if breaker.phase is not was:
                _log.warning("engine %s: circuit breaker is %s", url, breaker.phase.value)
                self._settle()

    def tick(self, now: float) -> None:
        """A second has passed: breakers open half, and close."""
        for watch in self._watches.values():
            watch.engine.breaker.tick(now)
        self._settle()

    def models(self) -> list[Model]:
        """What the engines that are up serve, each model once, in the engines' order."""
        merged: dict[object, Model] = {}
        for url, watch in self._watches.items():
            if self._dispatcher.workers[url].up:
                for model in watch.models:
                    merged.setdefault(model.get("id"), model)
        return list(merged.values())

    # -- inside

    def _move_from(self, url: WorkerId, waiting: list[Ticket]) -> None:
        """Move those that another engine has not taken from the queue meanwhile."""
        for ticket in waiting:
            if ticket.worker in {url, ""}:
                self._move(ticket)

    def _trusting(self) -> SSLContext:
        """Reading the authorities takes 20 ms: once for all engines."""
        if self._tls is None:
            self._tls = trusting(self._settings.ca_cert_paths)
        return self._tls

    def _settle(self) -> None:
        """Tell the dispatcher who takes requests. O(workers), and their models for who may not."""
        workers, can_spare = self._dispatcher.workers, self._dispatcher.fleet.can_spare
        for url, watch in self._watches.items():
            if watch.leaving and not watch.draining and not self._is_needed(url):
                self.drain(url)
        for url, watch in self._watches.items():
            breaker, was = watch.engine.breaker, workers[url].takes
            # To be told by the last engine is better than to be told by us.
            free = breaker.phase is Phase.CLOSED or not can_spare(url)
            takes = not watch.draining and (free or breaker.lets_through)
            gate = breaker if takes and not free else None
            self._dispatcher.set_taking(url, taking=takes, gate=gate)
            if takes != was:
                state = "takes requests again" if takes else "takes no more requests"
                _log.info("engine %s %s", url, state)

    def _is_needed(self, url: WorkerId) -> bool:
        """Whether the engine at `url`, which is to leave, has to wait for one that stays.

        Not for a model that nobody will serve: those that stay have all said what they have.
        """
        fleet = self._dispatcher.fleet
        staying = {
            other: watch
            for other, watch in self._watches.items()
            if not watch.leaving and not watch.draining
        }
        if fleet.can_spare(url, staying):
            return False
        return any(
            not fleet.workers[other].is_steady and (not watch.was_up or fleet.shares(url, other))
            for other, watch in staying.items()
        )

    async def _drained(self, watch: WatchedEngine) -> None:
        url = watch.engine.url
        worker = self._dispatcher.workers[url]
        while watch.draining and (
            worker.tickets or (worker.queue is not None and worker.queue.waiting)
        ):
            await asyncio.sleep(_DRAIN_INTERVAL_S)
        if watch.draining:
            asyncio.get_running_loop().call_soon(self.remove, url)  # which ends all its tasks

    def _welcome(self, watch: WatchedEngine) -> None:
        breaker = watch.engine.breaker
        watch.was_up = True
        if breaker.phase is Phase.OPEN:  # most likely another process, which may be well
            breaker.half_open(asyncio.get_running_loop().time())
        self._serve(watch, "is up, with")
        self._relist_evicted()

    def _relisted(self, watch: WatchedEngine) -> None:
        """It is up, and lists other models than it did."""
        if watch in self._in_use():
            self._serve(watch, "serves")
            self._relist_evicted()

    def _relist_evicted(self) -> None:
        """What one has evicted may be listed elsewhere now, or no longer. O(engines) if none has."""
        for watch in self._in_use():
            if watch.evicted:
                self._serve(watch, "serves")

    def _serve(self, watch: WatchedEngine, how: str) -> None:
        url, names = watch.engine.url, self.listing.names(watch)
        worker = self._dispatcher.workers[url]
        if worker.up and worker.models == names:
            return
        stuck = self._dispatcher.worker_up(url, models=names)
        self._settle()
        self._move_from(url, stuck)
        listed = ", ".join(sorted(names)) if names else "models it does not list"
        _log.info("engine %s %s %s", url, how, listed)

    def _in_use(self) -> list[WatchedEngine]:
        """Those that are up."""
        return [watch for _, watch, worker in self.watches() if worker.up]

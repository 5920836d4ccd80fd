"""The engine pool: which engines there are, and which of them may be sent requests.

An engine is *down* when it does not answer (its cache counts as lost). An engine that is up but draining,
or whose circuit breaker is open, is sent nothing new: it keeps its cache and finishes its requests.
Each engine has one loop that probes its health and reads its list of models.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Collection
from ssl import SSLContext

from fairhit.core.request import WorkerId
from fairhit.dispatch import Dispatcher, Engine, Ticket
from fairhit.errors import ConfigError, EngineFailed
from fairhit.gateway.http.accept.descriptors import Descriptors
from fairhit.gateway.http.accept.tls import trusting
from fairhit.gateway.http.engine_connection import EngineConnections, Fault, is_local
from fairhit.gateway.http.read_budget import ReadBudget
from fairhit.gateway.pool import health_probe as probe
from fairhit.gateway.pool.circuit_breaker import CircuitBreaker, Phase
from fairhit.gateway.pool.model_catalog import ModelCatalog
from fairhit.gateway.pool.watched_engine import Model, WatchedEngine
from fairhit.gateway.settings import GatewaySettings

_log = logging.getLogger(__name__)

# Between two checks whether a draining engine has finished its requests.
_DRAIN_INTERVAL_S = 0.05
# Between two probes of an engine that is down, so that a restart is noticed soon.
_DOWN_INTERVAL_S = 0.5
# Before an early probe: a crash fails many requests at once, and each asks for a probe.
_EARLY_DELAY_S = 0.05


class EnginePool:
    """The engines by URL. `move` is called with each waiting request that must go to another engine."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        move: Callable[[Ticket], None],
        settings: GatewaySettings,
        descriptors: Descriptors | None = None,
        read_budget: ReadBudget | None = None,
        is_own: Callable[[WorkerId], bool] = lambda _: False,
    ) -> None:
        self._is_own = is_own
        self._descriptors = descriptors
        self._read_budget = read_budget or ReadBudget()
        self._dispatcher = dispatcher
        self._move = move
        self._settings = settings
        self._watches: dict[WorkerId, WatchedEngine] = {}
        self._tls: SSLContext | None = None
        self.catalog = ModelCatalog(fetch=self._get, engines=self._up, on_change=self._on_models)
        self.check(settings.worker_urls)  # configuration errors surface at the start

    def __contains__(self, url: WorkerId) -> bool:
        return url in self._watches

    def watches(self) -> list[tuple[WorkerId, WatchedEngine, Engine]]:
        """URL, health and dispatcher state of every engine."""
        workers = self._dispatcher.engines
        return [(url, watch, workers[url]) for url, watch in self._watches.items()]

    def engine(self, url: WorkerId) -> EngineConnections:
        """Connections to the engine at `url`."""
        return self._watches[url].engine

    def models(self) -> list[Model]:
        """Model entries of all engines that are up, each name once, in the order of the engines."""
        merged: dict[object, Model] = {}
        for watch in self._up():
            for model in watch.models:
                merged.setdefault(model.get("id"), model)
        return list(merged.values())

    def change(self, settings: GatewaySettings) -> None:
        """Apply reloaded settings to the present engines; adding and removing engines is the caller's."""
        self._settings = settings
        for watch in self._watches.values():
            watch.engine.breaker.change(settings.breaker_rules())
            watch.engine.connect_timeout_s = settings.connect_timeout_secs
            if settings.disable_circuit_breaker and watch.engine.breaker.phase is not Phase.CLOSED:
                watch.engine.breaker = CircuitBreaker(settings.breaker_rules())
        self._update_availability()

    def check(self, urls: Collection[WorkerId]) -> None:
        """Raise ConfigError if an engine at one of `urls` cannot be added."""
        for url in urls:
            if self._is_own(url):
                raise ConfigError(f"worker {url}: is this gateway's own address")
        if any(url.startswith("https:") for url in urls):
            self._trusting()

    # -- adding and removing

    def add(self, url: WorkerId, *, model: str | None = None) -> bool:
        """Add the engine at `url`; it gets requests once it has passed a probe.

        True if the engine is new. One that is draining takes requests again.
        """
        if (known := self._watches.get(url)) is not None:
            known.draining = known.drains_when_replaced = False
            if model is not None and known.declared != model:
                known.declared = model
                if self.is_up(known):
                    self._on_models(known)
            self._update_availability()
            return False
        settings = self._settings
        engine = EngineConnections(
            url,
            key=settings.worker_api_key,
            breaker=CircuitBreaker(settings.breaker_rules()),
            connect_timeout_s=settings.connect_timeout_secs,
            tls=self._trusting() if url.startswith("https:") else None,
            read_budget=self._read_budget,
            on_unknown_model=self.catalog.refresh,
            descriptors=self._descriptors,
        )
        watch = WatchedEngine(engine=engine, probe_soon=asyncio.Event(), declared=model)
        self._watches[url] = watch
        self._dispatcher.engine_down(url)  # known, and not up yet
        watch.tasks.append(asyncio.get_running_loop().create_task(self._keep_probing(watch)))
        return True

    def drain(self, url: WorkerId) -> None:
        """Send the engine at `url` nothing new, and remove it when its requests have finished."""
        watch = self._watches[url]
        if watch.draining:
            return
        watch.draining = True
        _log.info("engine %s drains", url)
        self._update_availability()
        watch.tasks.append(asyncio.get_running_loop().create_task(self._remove_drained(watch)))

    def drain_when_replaced(self, url: WorkerId) -> None:
        """Drain the engine at `url` as soon as no remaining engine may still come up with its models.

        A reload replaces engines in one step, and the new ones have not passed a probe yet.
        """
        self._watches[url].drains_when_replaced = True
        self._update_availability()
        if not self._watches[url].draining:
            _log.info("engine %s drains once other engines serve its models", url)

    def remove(self, url: WorkerId) -> None:
        """Remove the engine at `url`; responses that have begun are finished."""
        watch = self._watches.pop(url)
        _log.info("engine %s is removed", url)
        for task in watch.tasks:
            task.cancel()
        waiting = self._dispatcher.remove_engine(url)
        self._update_availability()  # first: the waiting requests may need an engine on trial
        self._update_evicted()
        self._move_from(url, waiting)
        watch.engine.close()

    def close_idle(self) -> bool:
        """Close one idle engine connection; False if there is none. O(engines)."""
        return any(watch.engine.close_idle() for watch in self._watches.values())

    async def close(self) -> None:
        """Stop all probes and close all connections."""
        tasks = [task for watch in self._watches.values() for task in watch.tasks]
        for task in tasks:
            task.cancel()
        self.catalog.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        for watch in self._watches.values():
            watch.engine.close()

    # -- health, by probes and by requests

    def is_up(self, watch: WatchedEngine) -> bool:
        """True if the engine is used for requests."""
        return self._dispatcher.engines[watch.engine.url].up

    def on_up(self, watch: WatchedEngine) -> None:
        """Use an engine that has passed its probes."""
        breaker = watch.engine.breaker
        watch.was_up = True
        if breaker.phase is Phase.OPEN:  # probably a new process
            breaker.half_open(asyncio.get_running_loop().time())
        self._set_models(watch, "is up, with")
        self._update_evicted()

    def mark_down(self, url: WorkerId) -> None:
        """Mark the unreachable engine at `url` down: its waiting requests move, and it is probed at once."""
        watch = self._watches.get(url)
        if watch is None:
            return
        if self.is_up(watch):
            _log.warning("engine %s is down", url)
            watch.successes = 0
        waiting = self._dispatcher.engine_down(url)
        self._update_availability()
        self._update_evicted()
        self._move_from(url, waiting)
        watch.probe_soon.set()

    def count_fault(self, url: WorkerId, fault: Fault) -> None:
        """Count a request that the engine at `url` failed, for its circuit breaker, and probe it soon."""
        watch = self._watches.get(url)
        if watch is None:
            return
        watch.faults[fault] = watch.faults.get(fault, 0) + 1
        watch.probe_soon.set()
        breaker = watch.engine.breaker
        if not self._settings.disable_circuit_breaker:
            was = breaker.phase
            breaker.failed(asyncio.get_running_loop().time())
            if breaker.phase is not was:
                _log.warning("engine %s: circuit breaker is %s", url, breaker.phase.value)
                self._update_availability()

    def tick(self, now: float) -> None:
        """Advance the circuit breakers; called once a second."""
        for watch in self._watches.values():
            watch.engine.breaker.tick(now)
        self._update_availability()

    # -- probes

    async def _keep_probing(self, watch: WatchedEngine) -> None:
        """Probe one engine until cancelled."""
        while True:
            watch.probe_soon.clear()
            try:
                healthy = await self._check_health(watch)
            except Exception as error:  # noqa: BLE001 - a bug must not end the only loop that marks engines up
                _log.error("probing %s: %s: %s", watch.engine.url, type(error).__name__, error)
                healthy = False
            pause = self._settings.health_check_interval_secs
            if not healthy or not self.is_up(watch):
                pause = min(pause, _DOWN_INTERVAL_S)
            try:
                async with asyncio.timeout(pause):
                    await watch.probe_soon.wait()
                await asyncio.sleep(min(pause, _EARLY_DELAY_S))
            except TimeoutError:
                pass

    async def _check_health(self, watch: WatchedEngine) -> bool:
        """Probe once, count, and mark the engine at a threshold; True if the engine is healthy."""
        if self._settings.disable_health_check and self.is_up(watch):
            await self.catalog.read(watch)
            return True
        healthy = await self._probe(watch)
        up, settings = self.is_up(watch), self._settings  # perhaps reloaded meanwhile
        watch.failures = 0 if healthy else watch.failures + 1
        watch.successes = watch.successes + 1 if healthy else 0
        # A new engine is used after its first good probe; one that has failed must prove itself.
        needed = settings.health_success_threshold if watch.was_up else 1
        if healthy and up:
            await self.catalog.read(watch)
        elif healthy and watch.successes >= needed:
            self.on_up(watch)
        elif up and watch.failures >= settings.health_failure_threshold:
            self.mark_down(watch.engine.url)
        return healthy

    async def _probe(self, watch: WatchedEngine) -> bool:
        """Request the health endpoint; of an engine that is down also its models."""
        problem = None
        try:
            status, _ = await self._get(watch, self._settings.health_check_endpoint.encode())
            if status == 404:  # an engine without the route may still serve
                status, _ = await self._get(watch, b"/v1/models")
            if status != 200:
                problem = f"status {status}"
            elif not self.is_up(watch):
                self.catalog.reset(watch, await self._get(watch, b"/v1/models"))
        except (OSError, ValueError, EngineFailed) as error:
            if is_local(error):  # no request was sent, e.g. for want of a file descriptor
                return self.is_up(watch)
            problem = getattr(error, "strerror", None) or str(error) or "no answer in time"
        if problem is not None and problem != watch.problem:
            _log.warning("engine %s: probe failed: %s", watch.engine.url, problem)
        watch.problem = problem
        return problem is None

    async def _get(
        self, watch: WatchedEngine, path: bytes, timeout_s: float = math.inf
    ) -> tuple[int, bytes]:
        timeout_s = min(timeout_s, self._settings.health_check_timeout_secs)
        return await probe.get(watch.engine, path, timeout_s=timeout_s)

    # -- inside

    def _move_from(self, url: WorkerId, waiting: list[Ticket]) -> None:
        """Move those of `waiting` that no other engine has taken from the queue meanwhile."""
        for ticket in waiting:
            if ticket.worker in {url, ""}:
                self._move(ticket)

    def _trusting(self) -> SSLContext:
        """TLS context shared by the engines: loading the certificate authorities takes 20 ms."""
        if self._tls is None:
            self._tls = trusting(self._settings.ca_cert_paths)
        return self._tls

    def _update_availability(self) -> None:
        """Set in the dispatcher which engines take requests. O(engines), and models of replaced ones."""
        workers, can_spare = self._dispatcher.engines, self._dispatcher.engine_table.can_spare
        for url, watch in self._watches.items():
            if watch.drains_when_replaced and not watch.draining and not self._is_needed(url):
                self.drain(url)
        for url, watch in self._watches.items():
            breaker, was = watch.engine.breaker, workers[url].accepts
            # The breaker of a model's last engine limits nothing: an engine's error beats a refusal.
            unlimited = breaker.phase is Phase.CLOSED or not can_spare(url)
            takes = not watch.draining and (unlimited or breaker.lets_through)
            gate = breaker if takes and not unlimited else None
            self._dispatcher.set_accepting(url, accepts=takes, gate=gate)
            if takes != was:
                state = "takes requests again" if takes else "takes no more requests"
                _log.info("engine %s %s", url, state)

    def _is_needed(self, url: WorkerId) -> bool:
        """True if draining `url` must wait for a remaining engine that may serve one of its models.

        A model that no remaining engine serves is not waited for once all of them have listed theirs.
        """
        fleet = self._dispatcher.engine_table
        remaining = {
            other: watch
            for other, watch in self._watches.items()
            if not watch.drains_when_replaced and not watch.draining
        }
        if fleet.can_spare(url, remaining):
            return False
        return any(
            not fleet.engines[other].is_steady and (not watch.was_up or fleet.shares(url, other))
            for other, watch in remaining.items()
        )

    async def _remove_drained(self, watch: WatchedEngine) -> None:
        url = watch.engine.url
        worker = self._dispatcher.engines[url]
        while watch.draining and (worker.tickets or self._dispatcher.queue.waits_for_last(url)):
            await asyncio.sleep(_DRAIN_INTERVAL_S)
        if watch.draining:
            asyncio.get_running_loop().call_soon(self.remove, url)  # not here: it cancels this task

    def _on_models(self, watch: WatchedEngine) -> None:
        """Update the dispatcher after the model list of an engine changed."""
        if watch in self._up():  # not removed while the list was read
            self._set_models(watch, "serves")
            self._update_evicted()

    def _update_evicted(self) -> None:
        """Update engines with evicted adapters: which of these they serve depends on the other engines.

        O(engines) if no adapter was evicted.
        """
        for watch in self._up():
            if watch.evicted:
                self._set_models(watch, "serves")

    def _set_models(self, watch: WatchedEngine, verb: str) -> None:
        url, names = watch.engine.url, self.catalog.names(watch)
        worker = self._dispatcher.engines[url]
        if worker.up and worker.models == names:
            return
        unservable = self._dispatcher.engine_up(url, models=names)
        self._update_availability()
        self._move_from(url, unservable)
        listed = ", ".join(sorted(names)) if names else "models it does not list"
        _log.info("engine %s %s %s", url, verb, listed)

    def _up(self) -> list[WatchedEngine]:
        """Engines that are up, in the order in which they were added."""
        return [watch for watch in self._watches.values() if self.is_up(watch)]

"""Health checks: a loop per engine that probes it and marks it up or down."""

import asyncio
import logging
from typing import Protocol

from fairhit.errors import EngineFailed
from fairhit.gateway.http.engine_connection import is_local
from fairhit.gateway.pool import health_probe as probe
from fairhit.gateway.pool.model_catalog import ModelCatalog
from fairhit.gateway.pool.watched_engine import WatchedEngine
from fairhit.gateway.settings import GatewaySettings

_log = logging.getLogger(__name__)

# Interval for an engine that is down, so that a restart is noticed soon.
_DOWN_INTERVAL_S = 0.5
# Before an early probe: a crash fails many requests at once, and each asks for a probe.
_EARLY_DELAY_S = 0.05


class Availability(Protocol):
    """Knows which engines are up, and is notified of changes."""

    def is_up(self, watch: WatchedEngine) -> bool:
        """True if the engine is used for requests."""
        ...

    def on_up(self, watch: WatchedEngine) -> None:
        """Called when an engine that was down has passed its probes; its models are read."""
        ...

    def on_down(self, watch: WatchedEngine) -> None:
        """Called when an engine that was up has failed its probes."""
        ...


class HealthChecks:
    """Probes engines and notifies `availability`."""

    def __init__(
        self, *, settings: GatewaySettings, availability: Availability, catalog: ModelCatalog
    ) -> None:
        self.settings = settings  # replaced by a reload
        self._availability = availability
        self._catalog = catalog

    async def run(self, watch: WatchedEngine) -> None:
        """Probe one engine until cancelled."""
        while True:
            watch.probe_soon.clear()
            try:
                healthy = await self._check(watch)
            except Exception as error:  # noqa: BLE001 - a bug must not end the only loop that marks engines up
                _log.error("probing %s: %s: %s", watch.engine.url, type(error).__name__, error)
                healthy = False
            pause = self.settings.health_check_interval_secs
            if not healthy or not self._availability.is_up(watch):
                pause = min(pause, _DOWN_INTERVAL_S)
            try:
                async with asyncio.timeout(pause):
                    await watch.probe_soon.wait()
                await asyncio.sleep(min(pause, _EARLY_DELAY_S))
            except TimeoutError:
                pass

    async def _check(self, watch: WatchedEngine) -> bool:
        """Probe once, count, and notify `availability` at a threshold; True if the engine is healthy."""
        is_up = self._availability.is_up
        if self.settings.disable_health_check and is_up(watch):
            await self._catalog.read(watch)
            return True
        healthy = await self._probe(watch)
        up = is_up(watch)
        watch.failures = 0 if healthy else watch.failures + 1
        watch.successes = watch.successes + 1 if healthy else 0
        # A new engine is used after its first good probe; one that has failed must prove itself.
        needed = self.settings.health_success_threshold if watch.was_up else 1
        if healthy and up:
            await self._catalog.read(watch)
        elif healthy and watch.successes >= needed:
            self._availability.on_up(watch)
        elif up and watch.failures >= self.settings.health_failure_threshold:
            self._availability.on_down(watch)
        return healthy

    async def _probe(self, watch: WatchedEngine) -> bool:
        """Request the health endpoint; of an engine that is down also its models."""
        try:
            status, _ = await self._get(watch, self.settings.health_check_endpoint.encode())
            if status == 404:  # an engine without the route may still serve
                status, _ = await self._get(watch, b"/v1/models")
            if status != 200:
                self._set_problem(watch, f"status {status}")
                return False
            if not self._availability.is_up(watch):
                self._catalog.reset(watch, await self._get(watch, b"/v1/models"))
        except (OSError, ValueError, EngineFailed) as error:
            if is_local(error):  # no request was sent, e.g. for want of a file descriptor
                return self._availability.is_up(watch)
            problem = getattr(error, "strerror", None) or str(error) or "no answer in time"
            self._set_problem(watch, problem)
            return False
        self._set_problem(watch, None)
        return True

    def _set_problem(self, watch: WatchedEngine, problem: str | None) -> None:
        """Keep why the last probe failed, and log it when it changes."""
        if problem is not None and problem != watch.problem:
            _log.warning("engine %s: probe failed: %s", watch.engine.url, problem)
        watch.problem = problem

    async def _get(self, watch: WatchedEngine, path: bytes) -> tuple[int, bytes]:
        return await probe.get(
            watch.engine, path, timeout_s=self.settings.health_check_timeout_secs
        )

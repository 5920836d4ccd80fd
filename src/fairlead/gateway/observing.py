"""Looks at the engines, each by itself: whether they are well, and what they serve."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from fairlead.errors import EngineFailed
from fairlead.gateway.listing import Listing
from fairlead.gateway.probe import Probe
from fairlead.gateway.settings import GatewaySettings
from fairlead.gateway.upstream import is_ours

if TYPE_CHECKING:
    from fairlead.gateway.workers import WatchedEngine

_log = logging.getLogger(__name__)

# An engine that is down is probed this often, so that a restart is noticed at once.
_DOWN_INTERVAL_S = 0.5


class Observing:
    """Probes engines; `welcome` hears of each that is well again, `lost` of each that is not."""

    def __init__(
        self,
        *,
        settings: Callable[[], GatewaySettings],
        is_up: Callable[["WatchedEngine"], bool],
        in_use: Callable[[], list["WatchedEngine"]],
        welcome: Callable[["WatchedEngine"], None],
        lost: Callable[["WatchedEngine"], None],
        relisted: Callable[["WatchedEngine"], None],
    ) -> None:
        self.listing = Listing(ask=self._list, watches=in_use, changed=relisted)
        self._settings = settings
        self._is_up = is_up
        self._welcome = welcome
        self._lost = lost

    async def observe(self, watch: "WatchedEngine") -> None:
        """Probe for ever."""
        while True:
            watch.soon.clear()
            try:
                healthy = await self._look(watch)
            except Exception as error:  # noqa: BLE001 - our bug, but nobody else brings engines back
                _log.error("probing %s: %s: %s", watch.engine.url, type(error).__name__, error)
                healthy = False
            pause = self._settings().health_check_interval_secs
            if not healthy or not self._is_up(watch):
                pause = min(pause, _DOWN_INTERVAL_S)
            try:
                async with asyncio.timeout(pause):
                    await watch.soon.wait()
                await asyncio.sleep(min(pause, 0.05))  # many may suspect it at once
            except TimeoutError:
                pass

    async def _look(self, watch: "WatchedEngine") -> bool:
        """Probe once and draw the conclusions; whether the engine is well."""
        settings = self._settings()
        if settings.disable_health_check and self._is_up(watch):
            await self.listing.read(watch)
            return True
        healthy = await self._probe(watch)
        up = self._is_up(watch)
        watch.failures = 0 if healthy else watch.failures + 1
        watch.successes = watch.successes + 1 if healthy else 0
        # One that is new has no past to make us wait.
        needed = self._settings().health_success_threshold if watch.was_up else 1
        if healthy and up:
            await self.listing.read(watch)
        elif healthy and watch.successes >= needed:
            self._welcome(watch)
        elif up and watch.failures >= self._settings().health_failure_threshold:
            self._lost(watch)
        return healthy

    async def _probe(self, watch: "WatchedEngine") -> bool:
        """Whether the engine says it is well; learns its models while it is not in use."""
        try:
            status, _ = await self._get(watch, self._settings().health_check_endpoint.encode())
            if status == 404:  # an engine without the route may still serve
                status, _ = await self._get(watch, b"/v1/models")
            if status != 200:
                self._note(watch, f"status {status}")
                return False
            if not self._is_up(watch):
                self.listing.came_up(watch, await self._get(watch, b"/v1/models"))
        except (OSError, ValueError, EngineFailed) as error:
            if is_ours(error):  # the engine was not asked
                return self._is_up(watch)
            self._note(watch, getattr(error, "strerror", None) or str(error) or "it took too long")
            return False
        self._note(watch, None)
        return True

    def _note(self, watch: "WatchedEngine", problem: str | None) -> None:
        """Say once what is wrong."""
        if problem is not None and problem != watch.problem:
            _log.warning("engine %s: probe failed: %s", watch.engine.url, problem)
        watch.problem = problem

    async def _get(self, watch: "WatchedEngine", path: bytes) -> tuple[int, bytes]:
        timeout_s = self._settings().health_check_timeout_secs
        return await Probe().get(watch.engine, path, timeout_s=timeout_s)

    async def _list(self, watch: "WatchedEngine", patience_s: float) -> tuple[int, bytes]:
        timeout_s = min(patience_s, self._settings().health_check_timeout_secs)
        return await Probe().get(watch.engine, b"/v1/models", timeout_s=timeout_s)

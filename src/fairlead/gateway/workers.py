"""Which engines there are and which of them answer: probes, and what is noticed in passing."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from fairlead.core.request import WorkerId
from fairlead.dispatch import Dispatcher, Ticket
from fairlead.errors import EngineFailed
from fairlead.gateway.upstream import Engine, EngineConnection, Head

_log = logging.getLogger(__name__)

# An engine that is down is probed this often, so that a restart is noticed at once.
_DOWN_INTERVAL_S = 0.5
# A list of models is a few kilobytes.
_MAX_BODY = 4 << 20


class Probe:
    """One GET request to an engine, as a listener that fills a future."""

    def __init__(self) -> None:
        self._status = 0
        self._pieces: list[bytes] = []
        self._length = 0
        loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[tuple[int, bytes]] = loop.create_future()

    def on_head(self, head: Head) -> None:
        self._status = head.status

    def on_data(self, data: bytes) -> None:
        self._length += len(data)
        if self._length <= _MAX_BODY:
            self._pieces.append(data)

    def on_end(self) -> None:
        if not self._answer.done():
            self._answer.set_result((self._status, b"".join(self._pieces)))

    def on_lost(self, *, stale: bool) -> None:
        if not self._answer.done():
            self._answer.set_exception(EngineFailed("the engine broke the connection"))

    async def get(self, engine: Engine, path: bytes, *, timeout_s: float) -> tuple[int, bytes]:
        """Status and body. Raises OSError or EngineFailed."""
        async with asyncio.timeout(timeout_s):
            connection: EngineConnection = await engine.connect()
            head = b"GET %b%b HTTP/1.1\r\n%bconnection: close\r\n\r\n"
            filled = head % (engine.path, path, engine.fixed_lines)
            connection.send(self, [filled], last=True)
            try:
                return await self._answer
            finally:
                connection.cancel(self)


@dataclass(slots=True)
class Watch:
    """One engine under observation."""

    engine: Engine
    soon: asyncio.Event
    task: asyncio.Task[None] | None = None
    failures: int = 0
    models: tuple[dict[str, object], ...] = ()  # as its /v1/models lists them


class Workers:
    """The engines by URL. `move` hears of each request that must go elsewhere."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        move: Callable[[Ticket], None],
        key: str | None,
        interval_s: float,
        timeout_s: float,
        failure_threshold: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._move = move
        self._key = key
        self._interval_s = interval_s
        self._timeout_s = timeout_s
        self._failure_threshold = failure_threshold
        self._watches: dict[WorkerId, Watch] = {}

    def __contains__(self, url: WorkerId) -> bool:
        return url in self._watches

    def engine(self, url: WorkerId) -> Engine:
        """The engine at `url`."""
        return self._watches[url].engine

    def add(self, url: WorkerId) -> None:
        """Watch the engine at `url`; it gets requests once it has answered a probe."""
        if url in self._watches:
            return
        watch = Watch(engine=Engine(url, key=self._key), soon=asyncio.Event())
        self._watches[url] = watch
        self._dispatcher.worker_down(url)  # known, and not up yet
        watch.task = asyncio.get_running_loop().create_task(self._observe(watch))

    def remove(self, url: WorkerId) -> None:
        """Stop using the engine at `url`; what it has begun to answer goes on."""
        watch = self._watches.pop(url)
        if watch.task is not None:
            watch.task.cancel()
        for ticket in self._dispatcher.forget_worker(url):
            self._move(ticket)
        watch.engine.close()

    def lost(self, url: WorkerId) -> None:
        """It cannot be reached: its waiting requests move, and it is probed until it is back."""
        watch = self._watches.get(url)
        if watch is None:
            return
        if self._dispatcher.workers[url].up:
            _log.warning("engine %s is down", url)
        for ticket in self._dispatcher.worker_down(url):
            self._move(ticket)
        watch.soon.set()

    def suspect(self, url: WorkerId) -> None:
        """Something broke: probe it now rather than at the next turn."""
        watch = self._watches.get(url)
        if watch is not None:
            watch.soon.set()

    def models(self) -> list[dict[str, object]]:
        """What the engines that are up serve, each model once, in the engines' order."""
        merged: dict[object, dict[str, object]] = {}
        for url, watch in self._watches.items():
            if self._dispatcher.workers[url].up:
                for model in watch.models:
                    merged.setdefault(model.get("id"), model)
        return list(merged.values())

    async def close(self) -> None:
        """Stop watching."""
        tasks = [watch.task for watch in self._watches.values() if watch.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for watch in self._watches.values():
            watch.engine.close()

    async def _observe(self, watch: Watch) -> None:
        """Probe for ever."""
        while True:
            watch.soon.clear()
            try:
                healthy = await self._look(watch)
            except Exception as error:  # noqa: BLE001 - our bug, but nobody else brings engines back
                _log.error("probing %s: %s: %s", watch.engine.url, type(error).__name__, error)
                healthy = False
            pause = self._interval_s if healthy else min(self._interval_s, _DOWN_INTERVAL_S)
            try:
                async with asyncio.timeout(pause):
                    await watch.soon.wait()
                await asyncio.sleep(min(pause, 0.05))  # many may suspect it at once
            except TimeoutError:
                pass

    async def _look(self, watch: Watch) -> bool:
        """Probe once and draw the conclusions; whether the engine is well."""
        healthy = await self._probe(watch)
        up = self._dispatcher.workers[watch.engine.url].up
        watch.failures = 0 if healthy else watch.failures + 1
        if healthy and not up:
            self._welcome(watch)
        elif up and watch.failures >= self._failure_threshold:
            self.lost(watch.engine.url)
        return healthy

    def _welcome(self, watch: Watch) -> None:
        url = watch.engine.url
        names = [str(model["id"]) for model in watch.models]
        self._dispatcher.worker_up(url, models=names or None)
        _log.info("engine %s is up, with %s", url, ", ".join(names) or "models it does not list")

    async def _probe(self, watch: Watch) -> bool:
        """Whether the engine says it is well; learns its models while it is not in use."""
        try:
            status, _ = await self._get(watch, b"/health")
            if status == 404:  # an engine without the route may still serve
                status, _ = await self._get(watch, b"/v1/models")
            if status != 200:
                return False
            if not self._dispatcher.workers[watch.engine.url].up:
                watch.models = _models(await self._get(watch, b"/v1/models"))
        except (OSError, ValueError, EngineFailed):
            return False
        return True

    async def _get(self, watch: Watch, path: bytes) -> tuple[int, bytes]:
        return await Probe().get(watch.engine, path, timeout_s=self._timeout_s)


def _models(answer: tuple[int, bytes]) -> tuple[dict[str, object], ...]:
    """The entries that have a name; an engine that lists nothing sensible lists nothing."""
    status, body = answer
    if status != 200:
        return ()
    try:
        listed = orjson.loads(body)["data"]
        orjson.dumps(listed)  # reads deeper nesting than it writes, and we pass the list on
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ()
    entries = listed if isinstance(listed, list) else []
    return tuple(
        entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    )

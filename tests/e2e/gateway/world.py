"""A gateway, engines that play scripts, and callers who see every byte."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import uvloop

from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings
from fairhit.routers.d2lpm import D2LPM
from tests.e2e.gateway.scripts import (
    Received,
    Script,
    chat,
)

CHAT = "/v1/chat/completions"
# Of a test for what is to happen: that costs nothing where it does, and a busy machine is no failure.
TIMEOUT_S = 30.0
# Engines are not asked for their load: over a connection kept for that, which might have been closed while
# idle, a request that breaks is sent to the same engine once more.
NO_KEPT_CONNECTION: dict[str, Any] = {"queue": "engine"}


@dataclass
class FakeEngine:
    """Plays `script` for each POST; answers probes while `healthy`."""

    script: Script
    models: tuple[str, ...] = ("m",)
    healthy: bool = True
    sick_probes: int = 0  # this many more fail
    probes: Counter[str] = field(default_factory=Counter)  # by path
    models_answer: bytes | None = None  # instead of a list of `models`
    metrics: Callable[[], bytes] | None = None  # its answer to GET /metrics
    received: list[Received] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)  # the gateway closed a connection
    url: str = ""
    server: asyncio.Server | None = None
    connections: int = 0
    open: set[asyncio.StreamWriter] = field(default_factory=set)

    async def start(self) -> "FakeEngine":
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    def stop(self) -> None:
        """As a killed process: its connections are gone too."""
        assert self.server is not None
        self.server.close()
        for writer in self.open:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        posts = 0
        self.open.add(writer)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                if head.startswith("GET"):
                    self.probe(head, writer)
                    continue
                self.connections += posts == 0
                posts += 1
                length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
                received = Received(head, await reader.readexactly(length), writer)
                self.received.append(received)
                playing = asyncio.ensure_future(self.script(received))
                gone = asyncio.ensure_future(self.watch(reader, writer, playing))
                await asyncio.wait([playing])
                gone.cancel()
                if not playing.cancelled() and playing.exception() is not None:
                    self.left.set()  # it found out by writing
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open.discard(writer)
            writer.close()

    async def watch(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, playing: Any
    ) -> None:
        while not reader.at_eof() and reader.exception() is None:
            await asyncio.sleep(0.01)
        self.left.set()
        playing.cancel()

    def probe(self, head: str, writer: asyncio.StreamWriter) -> None:
        models = [{"id": name, "object": "model"} for name in self.models]
        body = self.models_answer or json.dumps({"data": models}).encode()
        if self.metrics is not None and head.split()[1] == "/metrics":
            body = self.metrics()
        self.sick_probes -= self.sick_probes > 0
        self.probes[head.split()[1]] += 1
        status = "200 OK" if self.healthy and not self.sick_probes else "503 Service Unavailable"
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)


@dataclass
class Reply:
    """An answer as a caller got it."""

    status: int
    headers: dict[str, str]
    body: bytes

    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert "Traceback" not in error["message"] and "\n" not in error["message"]
        return error


class Connection:
    """A caller's connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, path: str, body: bytes = b"", **headers: str) -> None:
        method = "POST" if body else "GET"
        lines = [f"{method} {path} HTTP/1.1", "host: localhost", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def reply(self, *, within: float = TIMEOUT_S) -> Reply:
        async with asyncio.timeout(within):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines if line)
            if headers.get("transfer-encoding") == "chunked":
                body = b"".join([piece async for piece in self.chunks()])
            elif "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                body = await self.reader.read()
            return Reply(int(status.split()[1]), headers, body)

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            data = await self.reader.readexactly(size + 2)
            if not size:
                return
            yield data[:-2]

    async def closed(self) -> bool:
        """Whether the gateway closed it and had no more to say; bytes it left unread make a reset."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True

    def reset(self) -> None:
        self.writer.transport.abort()


@dataclass
class World:
    """A gateway, its engines, and callers."""

    gateway: Gateway
    engines: list[FakeEngine]

    async def connect(self) -> Connection:
        return Connection(*await asyncio.open_connection("127.0.0.1", self.gateway.port))

    async def ask(self, path: str = CHAT, body: bytes = b"", **headers: str) -> Reply:
        connection = await self.connect()
        connection.send(path, body or chat(), **headers)
        try:
            return await connection.reply()
        finally:
            connection.writer.close()

    async def get(self, path: str) -> Reply:
        connection = await self.connect()
        connection.send(path)
        try:
            return await connection.reply()
        finally:
            connection.writer.close()

    def received(self) -> list[Received]:
        return [received for engine in self.engines for received in engine.received]

    def spent(self, client: str = "anonymous") -> int:
        """What the client is charged over all engines, in tokens."""
        router = self.gateway.dispatcher.router
        assert isinstance(router, D2LPM)
        up = [name for name, worker in self.gateway.dispatcher.engines.items() if worker.up]
        full = router.quantum_of(client)
        return sum(full - router.deficit(client, name) for name in up) // UNITS_PER_TOKEN


def play(
    story: Callable[[World], Coroutine[Any, Any, None]],
    *scripts: Script,
    models_answer: bytes | None = None,
    **settings: Any,
) -> None:
    """Run `story` with one engine for each script; afterwards nothing may be in flight."""

    async def run() -> None:
        engines = [
            await FakeEngine(script, models_answer=models_answer).start() for script in scripts
        ]
        gateway = Gateway(
            GatewaySettings(
                port=0,
                worker_urls=tuple(engine.url for engine in engines),
                health_check_interval_secs=settings.pop("health_check_interval_secs", 60),
                shutdown_timeout_secs=settings.pop("shutdown_timeout_secs", 0.2),
                **settings,
            )
        )
        await gateway.start()
        await eventually(lambda: all(w.up for w in gateway.dispatcher.engines.values()))
        await story(World(gateway, engines))
        await gateway.stop()
        assert not any(account.in_flight for _, account in gateway.dispatcher.ledger.accounts())
        for engine in engines:
            engine.stop()

    uvloop.run(run())


async def turns(count: int = 20) -> None:
    """Let the event loop turn: what is at its sockets is read, and what follows from it is done."""
    for _ in range(count):
        await asyncio.sleep(0)


async def eventually(condition: Callable[[], bool], *, within: float = TIMEOUT_S) -> None:
    """Wait until it holds, looking often."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)

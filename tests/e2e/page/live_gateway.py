"""A gateway under load in a thread of its own: engines that stream at a steady pace, and four clients."""

import asyncio
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import uvloop

from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings
from tests.e2e.gateway.scripts import Received, begin_stream, chat, chunk
from tests.e2e.gateway.world import CHAT, Connection, FakeEngine, eventually

# Requests an engine serves at once; more are with the gateway.
ROOM = 4
TOKEN_S = 0.04
# Client -> callers at once, tokens of an answer, pause between two requests in seconds.
CLIENTS = {
    "batch": (14, 40, 0.0),
    "chat": (5, 16, 0.1),
    "search": (3, 6, 0.0),
    "nightly report": (1, 60, 1.0),
}


class Streaming:
    """An engine that knows what it has cached, as long as prompts begin alike."""

    def __init__(self) -> None:
        self._cached: set[str] = set()

    async def answer(self, received: Received) -> None:
        """As many tokens as were asked for, one after the other, and the usage."""
        asked = received.json()
        prompt = asked["messages"][0]["content"]
        head = prompt.split("|")[0]
        cached = len(head) // 4 if head in self._cached else 0
        self._cached.add(head)
        begin_stream(received)
        for _ in range(asked["max_tokens"]):
            await asyncio.sleep(TOKEN_S)
            chunk(received, b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n')
        usage = {
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": asked["max_tokens"],
            "prompt_tokens_details": {"cached_tokens": cached},
        }
        last = json.dumps({"choices": [], "usage": usage}, separators=(",", ":")).encode()
        chunk(received, b"data: " + last + b"\n\n")
        chunk(received, b"data: [DONE]\n\n")
        chunk(received, b"")


class LiveGateway:
    """Two such engines behind a gateway, and callers that go on until `stop`."""

    def __init__(self, clients: dict[str, tuple[int, int, float]], **settings: Any) -> None:
        self._clients = clients
        self._settings = settings
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._end: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.gateway: Gateway | None = None

    def __enter__(self) -> str:
        """The gateway's address, once its engines are up."""
        self._thread.start()
        assert self._up.wait(20) and self.gateway is not None
        return f"http://127.0.0.1:{self.gateway.port}"

    def __exit__(self, *exception: object) -> None:
        assert self._loop is not None and self._end is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        uvloop.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        engines = [await FakeEngine(Streaming().answer).start() for _ in range(2)]
        self.gateway = gateway = Gateway(
            GatewaySettings(
                port=0,
                worker_urls=tuple(engine.url for engine in engines),
                queue="gateway",
                max_engine_requests=ROOM,
                quantum=512,
                trust_tenant_header=True,
                shutdown_timeout_secs=0.2,
                **self._settings,
            )
        )
        await gateway.start()
        await eventually(lambda: all(each.up for each in gateway.dispatcher.engines.values()))
        callers = [
            asyncio.ensure_future(self._call(gateway.port, name, number))
            for name, (callers, _, _) in self._clients.items()
            for number in range(callers)
        ]
        self._up.set()
        await self._end.wait()
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
        await gateway.stop()
        for engine in engines:
            engine.stop()

    async def _call(self, port: int, client: str, number: int) -> None:
        _, output_len, pause_s = self._clients[client]
        rng = random.Random(f"{client} {number}")
        connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
        for turn in count():
            topic = f"{client} {rng.randrange(3)} " * 60
            text = f"{topic}|{number} {turn} " + "x" * rng.randrange(40, 600)
            messages = [{"role": "user", "content": text}]
            length = max(1, round(output_len * rng.uniform(0.5, 1.5)))
            body = chat(messages=messages, max_tokens=length, stream=True)
            connection.send(CHAT, body, x_smg_tenant_id=client.replace(" ", "-"))
            await connection.reader.readuntil(b"\r\n\r\n")  # however long it takes
            async for _ in connection.chunks():
                pass
            await asyncio.sleep(pause_s)


@contextmanager
def under_load(
    clients: dict[str, tuple[int, int, float]] | None = None, **settings: Any
) -> Iterator[str]:
    """Run a gateway under load and yield its address."""
    with LiveGateway(CLIENTS if clients is None else clients, **settings) as url:
        yield url

"""Load on a completions server: closed-loop, or at a fixed rate."""

import asyncio
import random
import re
import time
from collections import deque
from collections.abc import Iterator

from benchmarks.gateway.mock_engine import MODEL

PREFIXES, SHARED = 32, 0.75
# The mock engine writes into each event when it sent it.
_WRITTEN = re.compile(rb'"content":" ([0-9]+)"')
# Each five digits once in 65,536 words.
_TEXT = b" ".join(b"%05d" % (number * 40_503 % 65_536) for number in range(65_536))


def requests(size: int, *, seed: int, clients: int = 8, stream: bool = False) -> Iterator[bytes]:
    """Chat requests of about `size` bytes, three quarters of each one of 32 shared prefixes."""
    rng = random.Random(seed)
    shared = [_text(rng, int(size * SHARED)) for _ in range(PREFIXES)]
    while True:
        prompt = rng.choice(shared) + _text(rng, size - int(size * SHARED) - 120)
        body = b'{"model":"%b","messages":[{"role":"user","content":"%b"}],"max_tokens":50%b}' % (
            MODEL,
            prompt,
            b',"stream":true' if stream else b"",
        )
        yield (
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\nuser-agent: bench\r\n"
            b"accept: */*\r\ncontent-type: application/json\r\n"
            b"authorization: Bearer key-%d\r\ncontent-length: %d\r\n\r\n"
            % (rng.randrange(clients), len(body))
        ) + body


def _text(rng: random.Random, size: int) -> bytes:
    """Cut `size` bytes from a long text at a random offset: fast, and two texts rarely share a prefix."""
    at = rng.randrange(len(_TEXT) - size)
    return _TEXT[at : at + size]


class Caller(asyncio.Protocol):
    """A client connection: sends one request at a time and reports each answer's latency to `load`."""

    def __init__(self, load: "Load") -> None:
        self.load = load
        self.buffer = bytearray()
        self.begun = 0.0
        self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def ask(self, request: bytes, begun: float) -> None:
        self.begun = begun
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        written = _WRITTEN.findall(data)
        if written:
            now = time.monotonic_ns()
            self.load.delays_us += [(now - int(one)) / 1000 for one in written]
            self.load.events += len(written)
        if not self.complete():
            return
        assert self.buffer.startswith(b"HTTP/1.1 200"), bytes(self.buffer[:300])
        self.buffer.clear()
        self.load.answered(self, time.perf_counter() - self.begun)

    def complete(self) -> bool:
        if self.buffer.endswith(b"\r\n0\r\n\r\n"):
            return True
        at = self.buffer.find(b"content-length: ", 0, 2000)
        end = self.buffer.find(b"\r\n\r\n", 0, 2000)
        if at < 0 or end < 0 or at > end:
            return False
        length = int(self.buffer[at + 16 : self.buffer.find(b"\r", at)])
        return len(self.buffer) >= end + 4 + length

    def connection_lost(self, exc: Exception | None) -> None:
        self.load.broken(exc)


class Load:
    """Sends requests to one server over keep-alive connections."""

    def __init__(self, port: int, source: Iterator[bytes]) -> None:
        self.port = port
        self.source = source
        self.idle: list[Caller] = []
        self.overdue: deque[tuple[bytes, float]] = deque()
        self.latencies: list[float] = []
        self.delays_us: list[float] = []
        self.events = 0
        self.left = 0
        self.closing = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pending: Iterator[bytes] = iter(())

    async def connect(self, connections: int) -> "Load":
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            _, caller = await loop.create_connection(lambda: Caller(self), "127.0.0.1", self.port)
            self.idle.append(caller)
        return self

    async def closed_loop(self, count: int) -> float:
        """Send `count` requests, one after the other on each connection; return the seconds it took."""
        self.pending = iter([next(self.source) for _ in range(count)])
        self.left = count
        self.done = asyncio.get_running_loop().create_future()
        callers, self.idle = self.idle, []
        begun = time.perf_counter()
        for caller in callers:
            self.next(caller)
        await self.done
        return time.perf_counter() - begun

    async def open_loop(self, rate: float, count: int) -> list[float]:
        """Send `count` requests at `rate` per second; return their latencies since the due time, sorted."""
        bodies = [next(self.source) for _ in range(count)]
        self.left = count
        self.done = asyncio.get_running_loop().create_future()
        begun = time.perf_counter()
        for number, body in enumerate(bodies):
            due = begun + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            if self.idle:
                self.idle.pop().ask(body, due)
            else:
                self.overdue.append((body, due))
        await self.done
        return sorted(self.latencies)

    def next(self, caller: Caller) -> None:
        if self.overdue:
            caller.ask(*self.overdue.popleft())
            return
        request = next(self.pending, None)
        if request is None:
            self.idle.append(caller)
        else:
            caller.ask(request, time.perf_counter())

    def answered(self, caller: Caller, latency: float) -> None:
        self.latencies.append(latency)
        self.left -= 1
        self.next(caller)
        if not self.left:
            self.done.set_result(None)

    def broken(self, exc: Exception | None) -> None:
        if not self.closing and not self.done.done():
            self.done.set_exception(exc or ConnectionError("the server closed a connection"))

    def close(self) -> None:
        self.closing = True
        for caller in self.idle:
            caller.transport.abort()

"""Callers that each keep one streamed request in flight, and their records of the service.

Every number here is one that any tenant could measure from outside.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httptools

from fairhit.errors import EngineFailed

# A caller whose request failed sends the next one after this pause, so that an outage is no busy loop.
PAUSE_AFTER_FAILURE_S = 0.2


def now_us() -> int:
    """Return the time by the clock of all records of a run."""
    return time.monotonic_ns() // 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """An answered request: times of sending, first token and end, and the engine's usage."""

    tenant: str
    engine: str
    sent_us: int
    first_us: int
    done_us: int
    prompt_len: int
    cached_len: int
    output_len: int
    # The arrival of each chunk of the answer; the first one with the first token.
    pieces_us: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """A client of the service: its key, the number of its callers, and their requests."""

    name: str
    key: str
    callers: int
    # Caller number -> the bodies it sends, one after the other.
    bodies: Callable[[int], Iterator[bytes]]


class StreamedAnswer:
    """A streamed answer as it arrives."""

    def __init__(self) -> None:
        self.status = 0
        self.pieces_us: list[int] = []
        self._last = b""

    def feed(self, data: bytes, at_us: int) -> None:
        """Read a chunk of the body; only the event with the usage is kept."""
        self.pieces_us += [at_us] * data.count(b"data: {")
        if b'"usage":{' in data or b'"error"' in data:
            self._last = data

    def usage(self) -> tuple[str, dict[str, object]]:
        """Return the engine's name and usage. Raises EngineFailed if the answer is incomplete."""
        for line in self._last.split(b"\n"):
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                if event.get("usage"):
                    return str(event.get("system_fingerprint")), event["usage"]
        raise EngineFailed(f"status {self.status}: {self._last[:200]!r}")


class Connection(asyncio.Protocol):
    """A keep-alive connection with one request at a time, to one path. `answer` makes its answers."""

    def __init__(
        self,
        host: str,
        path: str = "/v1/chat/completions",
        answer: Callable[[], StreamedAnswer] = StreamedAnswer,
    ) -> None:
        self._host, self._path = host.encode(), path.encode()
        self._make_answer = answer
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._answer = StreamedAnswer()
        self._whole: asyncio.Future[StreamedAnswer] | None = None

    async def ask(self, key: str, body: bytes) -> StreamedAnswer:
        """Send a request and return the whole answer. Raises ConnectionError if the connection ends first."""
        if self._transport is None:
            raise ConnectionError("closed")
        self._answer = self._make_answer()
        self._parser = httptools.HttpResponseParser(self)
        self._whole = asyncio.get_running_loop().create_future()
        self._transport.write(
            b"POST %b HTTP/1.1\r\nHost: %b\r\nAuthorization: Bearer %b\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (self._path, self._host, key.encode(), len(body), body)
        )
        return await self._whole

    @property
    def is_open(self) -> bool:
        """True unless a side is known to have closed the connection."""
        return self._transport is not None

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is made."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """asyncio: some of the answer."""
        if self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"not HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the other side closed the connection."""
        self._transport = None
        self._fail(ConnectionError("the connection ended before the answer"))

    def on_headers_complete(self) -> None:
        """httptools: the status is known."""
        assert self._parser is not None
        self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """httptools: some of the body."""
        self._answer.feed(body, now_us())

    def on_message_complete(self) -> None:
        """httptools: the answer is whole."""
        if self._whole is not None and not self._whole.done():
            self._whole.set_result(self._answer)

    def _fail(self, error: Exception) -> None:
        if self._whole is not None and not self._whole.done():
            self._whole.set_exception(error)


class ClosedLoop:
    """The callers of all tenants of a service. `records` grows as answers end."""

    def __init__(self, *, host: str, port: int, tenants: tuple[Tenant, ...]) -> None:
        self.records: list[Served] = []
        self.failures: list[str] = []
        self._host, self._port = host, port
        self._tenants = tenants
        self._open = True

    async def run(self, seconds: float) -> None:
        """Send requests for `seconds`, then let those in flight end."""
        async with asyncio.TaskGroup() as group:
            for tenant in self._tenants:
                for number in range(tenant.callers):
                    group.create_task(self._call(tenant, number))
            await asyncio.sleep(seconds)
            self._open = False

    async def _call(self, tenant: Tenant, number: int) -> None:
        loop = asyncio.get_running_loop()
        connection: Connection | None = None
        try:
            for body in tenant.bodies(number):
                if not self._open:
                    break
                try:
                    if connection is None:
                        _, connection = await loop.create_connection(
                            lambda: Connection(self._host), self._host, self._port
                        )
                    await self._ask(connection, tenant, body)
                except (OSError, EngineFailed) as error:
                    self.failures.append(f"{tenant.name}: {error}")
                    if connection is not None:
                        connection.close()
                    connection = None
                    await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
        finally:
            # Also when interrupted: a service that stops would wait for this request.
            if connection is not None:
                connection.close()

    async def _ask(self, connection: Connection, tenant: Tenant, body: bytes) -> None:
        sent_us = now_us()
        answer = await connection.ask(tenant.key, body)
        done_us = now_us()
        engine, usage = answer.usage()
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else 0
        self.records.append(
            Served(
                tenant=tenant.name,
                engine=engine,
                sent_us=sent_us,
                first_us=answer.pieces_us[0],
                done_us=done_us,
                prompt_len=_tokens(usage["prompt_tokens"]),
                cached_len=_tokens(cached or 0),
                output_len=_tokens(usage["completion_tokens"]),
                pieces_us=tuple(answer.pieces_us),
            )
        )


def _tokens(value: object) -> int:
    if not isinstance(value, int):
        raise EngineFailed(f"usage is not a number of tokens: {value!r}")
    return value

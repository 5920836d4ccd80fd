"""Connections to engines: kept open, one request at a time on each, used again while they are fresh.

A connection carries bytes and passes the response to its listener; whether to retry at another engine
is the listener's decision.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from errno import EADDRNOTAVAIL, EMFILE, ENFILE, ENOBUFS, ENOMEM
from ssl import SSLContext
from time import monotonic
from typing import Any, cast
from urllib.parse import urlsplit

from fairhit.core.request import WorkerId
from fairhit.gateway.http.accept.descriptors import Descriptors
from fairhit.gateway.http.read_budget import SHORT, BudgetedReads, ReadBudget
from fairhit.gateway.http.response_parser import ResponseListener, ResponseParser
from fairhit.gateway.observability.log_exceptions import as_client_error
from fairhit.gateway.pool.circuit_breaker import BreakerRules, CircuitBreaker

# vLLM and SGLang serve with uvicorn, which closes an idle connection after 5 s.
_IDLE_S = 4.0
_MAX_IDLE = 512
# Below this, joining a request costs less than writing it in pieces.
_SMALL = 16 << 10
# What an engine answers when it is broken or full rather than asked something wrong.
ENGINE_FAULTS = frozenset((500, 502, 503, 504))
# What says that this machine has no more sockets, ports or memory.
_OUR_FAULTS = frozenset((EMFILE, ENFILE, EADDRNOTAVAIL, ENOBUFS, ENOMEM))


class Fault(Enum):
    """How an engine fails a request; the values are metric labels."""

    CONNECT = "connect"
    STATUS = "status"  # 500, 502, 503, 504
    TIMEOUT = "timeout"
    BROKEN = "broken"  # the connection, or the answer


def is_ours(error: Exception) -> bool:
    """Whether no engine is to blame that there is no connection to it."""
    return isinstance(error, OSError) and error.errno in _OUR_FAULTS


def reason_of(error: Exception) -> str:
    """What the system said."""
    return getattr(error, "strerror", None) or str(error)


class EngineConnection(asyncio.Protocol):
    """One connection to an engine."""

    def __init__(self, engine: "EngineConnections") -> None:
        self._engine = engine
        self._reads = BudgetedReads(engine.turns, self.data_received)
        self._late = self._reads.late
        self._response = ResponseParser()
        self._transport: asyncio.Transport | None = None
        self._requests = 0
        self._last = False
        self._paused = False
        self.idle_since = 0.0

    # -- for the listener

    def send(
        self,
        listener: ResponseListener,
        request: Sequence[bytes | bytearray | memoryview],
        *,
        last: bool = False,
    ) -> None:
        """Send `request`; `listener` receives the response. `last`: the connection is not used again."""
        assert self._response.listener is None and self._transport is not None
        self._response.listener = listener
        self._last = last
        self._requests += 1
        if sum(map(len, request)) < _SMALL:
            self._transport.write(b"".join(request))  # one system call, by a shorter path
        else:
            self._transport.writelines(request)

    def cancel(self, listener: ResponseListener) -> None:
        """Close the connection so that the engine aborts the request of `listener`.

        Without effect after the end of its response: the connection may serve another request by now.
        """
        if self._response.listener is listener:
            self.abort()

    def abort(self) -> None:
        """Close without a call of the listener."""
        self._response.listener = None
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading: the client reads slowly."""
        if self.is_open and not self._paused:
            self._paused = True
            self._reads.hold()

    def resume(self) -> None:
        """Read again: the client has caught up."""
        if self._paused and self.is_open:
            self._paused = False
            self._reads.go_on()

    @property
    def is_paused(self) -> bool:
        """True while a slow client keeps the connection from being read."""
        return self._paused

    @property
    def is_open(self) -> bool:
        """True if another request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    # -- from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._engine.descriptors.engines += 1
        self._reads.connected(self._transport)

    def data_received(self, data: bytes) -> None:
        if (len(data) > SHORT or self._late) and self._reads.defer(data):
            return
        response = self._response
        if response.listener is None:  # bytes that no request asked for
            self.abort()
            return
        response.feed(data)
        if response.is_broken:
            self._lose()
        elif response.is_complete and response.listener is not None:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        response = self._response
        self._reads.lost(hand_on=response.listener is not None)
        self._engine.forget(self)
        self._engine.descriptors.give_back()
        self._transport = None
        response.close()
        if response.listener is None:
            return
        if exc is None and response.end_of_connection():
            self._finish()
        else:
            self._lose()

    # -- inside

    def _finish(self) -> None:
        """Make the connection idle or close it, then report the end of the response."""
        response = self._response
        listener, response.listener = response.listener, None
        assert listener is not None
        keep = response.head.framed and response.head.keep_alive and not self._last
        if keep and self.is_open:
            response.reset()
            self.resume()  # a slow client may have had the end of its response while paused
            self._engine.give_back(self)
        elif self._transport is not None:
            self._transport.close()
        try:
            listener.on_end()
        except Exception as error:  # noqa: BLE001 - the connection may serve another request by now
            as_client_error(error)

    def _lose(self) -> None:
        response = self._response
        listener, response.listener = response.listener, None
        stale = self._requests > 1 and not response.has_data
        self.abort()
        if listener is not None:
            listener.on_lost(stale=stale)


class EngineConnections:
    """One engine: its address and the connections to it that are idle."""

    def __init__(
        self,
        url: WorkerId,
        *,
        key: str | None = None,
        breaker: CircuitBreaker | None = None,
        connect_timeout_s: float = 5.0,
        tls: SSLContext | None = None,
        turns: ReadBudget | None = None,
        unknown: Callable[[], object] = lambda: None,
        descriptors: Descriptors | None = None,
    ) -> None:
        self.descriptors = Descriptors(1 << 30) if descriptors is None else descriptors
        # It has answered 404: maybe its list of models is another by now.
        self.unknown = unknown
        self.breaker = breaker or CircuitBreaker(BreakerRules())
        self.connect_timeout_s = connect_timeout_s
        self.turns = turns or ReadBudget()
        parts = urlsplit(url)
        assert parts.hostname is not None, url
        self.url = url
        self.path = parts.path.encode()
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        default = 443 if parts.scheme == "https" else 80
        self._address = (parts.hostname, parts.port or default)
        assert tls is not None or parts.scheme != "https", "it says whom to believe"
        self._tls = tls
        self._idle: dict[EngineConnection, None] = {}  # the last to come is the first to go
        self._closed = False
        self._connecting: set[asyncio.Task[None]] = set()
        credentials = f"authorization: Bearer {key}\r\n" if key else ""
        self.has_key = key is not None
        # The same first lines for every request: only path and length differ.
        self.fixed_lines = f"host: {host}:{self._address[1]}\r\n{credentials}".encode()

    def head(self, target: bytes, lines: bytes, length: int) -> bytes:
        """Of a request with a body of so many bytes."""
        return b"POST %b%b HTTP/1.1\r\n%b%bcontent-length: %d\r\n\r\n" % (
            self.path, target, self.fixed_lines, lines, length,
        )  # fmt: skip

    def take(self) -> EngineConnection | None:
        """An idle connection that the engine has most likely not closed yet."""
        now = monotonic()
        while self._idle:
            connection = self._idle.popitem()[0]
            if connection.is_open and now - connection.idle_since < _IDLE_S:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: EngineConnection) -> None:
        """`connection` is idle."""
        if self._closed or len(self._idle) >= _MAX_IDLE:
            connection.abort()
            return
        connection.idle_since = monotonic()
        self._idle[connection] = None

    def close_idle(self) -> bool:
        """Close the connection that has been idle for longest; whether there was one. O(1)."""
        connection = next(iter(self._idle), None)
        if connection is None:
            return False
        del self._idle[connection]
        connection.abort()
        return True

    def forget(self, connection: EngineConnection) -> None:
        """`connection` is closed. O(1)."""
        self._idle.pop(connection, None)

    async def connect(self) -> EngineConnection:
        """A new connection. Raises OSError, TimeoutError included."""
        try:
            with self.descriptors.one():  # while it is made; what is open counts by itself
                async with asyncio.timeout(self.connect_timeout_s):
                    _, connection = await asyncio.get_running_loop().create_connection(
                        lambda: EngineConnection(self), *self._address, ssl=self._tls
                    )
        except OSError as error:
            if is_ours(error):
                self.descriptors.ran_out(error)
            raise
        return connection

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, which connects, beside what goes on."""
        task = asyncio.get_running_loop().create_task(work)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def close(self) -> None:
        """Close what is idle and give up what is connecting; requests under way go on."""
        self._closed = True  # who has an answer yet to come gives its connection back later
        for connection in list(self._idle):
            connection.abort()
        self._idle.clear()
        for task in self._connecting:
            task.cancel()

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
# Statuses of an engine that is broken or overloaded; others are the fault of the request.
ENGINE_FAULTS = frozenset((500, 502, 503, 504))
# Errors of a machine without free sockets, ports or memory.
_OUR_FAULTS = frozenset((EMFILE, ENFILE, EADDRNOTAVAIL, ENOBUFS, ENOMEM))


class Fault(Enum):
    """Ways in which an engine fails a request; the values are metric labels."""

    CONNECT = "connect"
    STATUS = "status"  # 500, 502, 503, 504
    TIMEOUT = "timeout"
    BROKEN = "broken"  # the connection, or the response


def is_local(error: Exception) -> bool:
    """True if no connection was made for want of this machine's resources."""
    return isinstance(error, OSError) and error.errno in _OUR_FAULTS


def reason_of(error: Exception) -> str:
    """The operating system's text of an error."""
    return getattr(error, "strerror", None) or str(error)


class EngineConnection(asyncio.Protocol):
    """A connection to an engine, with at most one request at a time."""

    def __init__(self, engine: "EngineConnections") -> None:
        self._engine = engine
        self._reads = BudgetedReads(engine.read_budget, self.data_received)
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
        """Close the connection without notifying its listener."""
        self._response.listener = None
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        """Stop reading: the client reads slowly."""
        if self.is_open and not self._paused:
            self._paused = True
            self._reads.pause()

    def resume(self) -> None:
        """Read again: the client has caught up."""
        if self._paused and self.is_open:
            self._paused = False
            self._reads.resume()

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
        self._reads.close(pass_on=response.listener is not None)
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
    """The address of one engine, and the idle connections to it."""

    def __init__(
        self,
        url: WorkerId,
        *,
        key: str | None = None,
        breaker: CircuitBreaker | None = None,
        connect_timeout_s: float = 5.0,
        tls: SSLContext | None = None,
        read_budget: ReadBudget | None = None,
        on_unknown_model: Callable[[], object] = lambda: None,
        descriptors: Descriptors | None = None,
    ) -> None:
        self.descriptors = Descriptors(1 << 30) if descriptors is None else descriptors
        # Called on a 404: the engine's model list may have changed.
        self.on_unknown_model = on_unknown_model
        self.breaker = breaker or CircuitBreaker(BreakerRules())
        self.connect_timeout_s = connect_timeout_s
        self.read_budget = read_budget or ReadBudget()
        parts = urlsplit(url)
        assert parts.hostname is not None, url
        self.url = url
        self.path = parts.path.encode()
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        default = 443 if parts.scheme == "https" else 80
        self._address = (parts.hostname, parts.port or default)
        assert tls is not None or parts.scheme != "https", "the context has the trusted authorities"
        self._tls = tls
        self._idle: dict[EngineConnection, None] = {}  # the last one idle is taken first
        self._closed = False
        self._connecting: set[asyncio.Task[None]] = set()
        credentials = f"authorization: Bearer {key}\r\n" if key else ""
        self.has_key = key is not None
        # Lines of every request's head.
        self.fixed_lines = f"host: {host}:{self._address[1]}\r\n{credentials}".encode()

    def head(self, target: bytes, lines: bytes, length: int) -> bytes:
        """Head of a request with a body of `length` bytes."""
        return b"POST %b%b HTTP/1.1\r\n%b%bcontent-length: %d\r\n\r\n" % (
            self.path, target, self.fixed_lines, lines, length,
        )  # fmt: skip

    def take(self) -> EngineConnection | None:
        """Remove and return an idle connection that the engine has most likely not closed; None: none."""
        now = monotonic()
        while self._idle:
            connection = self._idle.popitem()[0]
            if connection.is_open and now - connection.idle_since < _IDLE_S:
                return connection
            connection.abort()
        return None

    def give_back(self, connection: EngineConnection) -> None:
        """Keep `connection`, which is idle, for another request."""
        if self._closed or len(self._idle) >= _MAX_IDLE:
            connection.abort()
            return
        connection.idle_since = monotonic()
        self._idle[connection] = None

    def close_idle(self) -> bool:
        """Close the connection that has been idle for longest; False if there is none. O(1)."""
        connection = next(iter(self._idle), None)
        if connection is None:
            return False
        del self._idle[connection]
        connection.abort()
        return True

    def forget(self, connection: EngineConnection) -> None:
        """Forget `connection`, which is closed. O(1)."""
        self._idle.pop(connection, None)

    async def connect(self) -> EngineConnection:
        """Make a new connection. Raises OSError, TimeoutError included."""
        try:
            with self.descriptors.connecting():  # an open connection counts itself
                async with asyncio.timeout(self.connect_timeout_s):
                    _, connection = await asyncio.get_running_loop().create_connection(
                        lambda: EngineConnection(self), *self._address, ssl=self._tls
                    )
        except OSError as error:
            if is_local(error):
                self.descriptors.ran_out(error)
            raise
        return connection

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`, which connects, as a task."""
        task = asyncio.get_running_loop().create_task(work)
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def close(self) -> None:
        """Close idle connections and cancel connecting ones; requests under way go on."""
        self._closed = True  # connections with a request are closed at its end
        for connection in list(self._idle):
            connection.abort()
        self._idle.clear()
        for task in self._connecting:
            task.cancel()

"""Connections of clients: keep-alive, pipelined requests answered in order, time limits, framing.

What a request means is decided by the site, which is the gateway or the page of metrics.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

from fairhit.errors import BadRequest, FairhitError, GatewayFull, MethodNotAllowed
from fairhit.gateway.api.endpoints import endpoint_of, path_of
from fairhit.gateway.api.endpoints.errors import openai_error, retry_after, status_of
from fairhit.gateway.http.accept.connections import Connections
from fairhit.gateway.http.head_cache import HeadCache
from fairhit.gateway.http.read_budget import SHORT, BudgetedReads, ReadBudget
from fairhit.gateway.http.request_parser import RequestParser
from fairhit.gateway.http.response_head import BODILESS, REASONS, ResponseHead, without_names
from fairhit.gateway.observability.log_exceptions import as_client_error
from fairhit.gateway.proxy.incoming_request import BodyBudget, IncomingRequest, RequestHead
from fairhit.gateway.proxy.interfaces import OngoingRequest

# Paths that are answered on connections beyond the limit: for probes and for finding the cause.
PROBES = frozenset((b"/health", b"/readiness", b"/metrics"))
# Idle time of a kept connection; longer than clients keep theirs, shorter than NATs do.
_IDLE_S = 75.0
# Where all slots are taken a request may take this long to arrive, rather than --client-timeout-secs.
_SLOW_S = 10.0
# After the last response of a connection its client may still be sending: closing a socket with unread
# bytes resets the connection, and the response may be lost. So bytes are read and discarded until the
# client has closed, too: for half a minute, as nginx does, while they arrive at a real rate.
_LINGER_S = 30.0
_LINGER_SILENT_S = 2.0
_LINGER_MIN_LEN = 16 << 10  # fewer bytes count as silence
_LINGER_MAX_LEN = 256 << 20
# Nothing of a response has been sent for so long: the client has stopped reading without closing.
_STUCK_S = 10.0
# Bytes sent that restart the timer of a slow reader: a byte now and then is not reading.
_MIN_READ = 16 << 10


class Site(Protocol):
    """Server of the requests on client connections: the gateway, or the page of metrics."""

    max_payload_size: int
    client_timeout_s: float
    connections: "Connections[ClientConnection]"
    body_budget: BodyBudget
    head_cache: HeadCache[RequestHead]
    read_budget: ReadBudget
    date: bytes  # the Date header, a second old at most

    def admit(self, request: IncomingRequest) -> bool:
        """Check a request whose head is complete: True if its body is wanted. Raises FairhitError."""
        ...

    def handle(
        self, connection: "ClientConnection", request: IncomingRequest
    ) -> OngoingRequest | None:
        """Respond now and return None, or begin the request and return it. Raises FairhitError."""
        ...

    def count(self, status: int) -> None:
        """Count a response with this status."""
        ...

    def refused(self, request: IncomingRequest, status: int) -> None:
        """Log a request that is refused with this status before any engine received it."""
        ...


class SlowReaderTimer:
    """Seconds for which a client has read next to nothing."""

    __slots__ = ("_left", "_since")

    def __init__(self) -> None:
        self._left = -1  # bytes in the write buffer when the timer started
        self._since = 0.0

    def reset(self) -> None:
        """Stop the timer: the client has caught up."""
        self._left = -1

    def seconds(self, left: int, now: float) -> float:
        """Seconds since the client last read, where `left` bytes are in the write buffer now."""
        if self._left < 0 or self._left - left >= _MIN_READ:
            self._left, self._since = left, now
        return now - self._since


class ClientConnection(asyncio.Protocol):
    """Reads requests, has the site handle one at a time, and frames the responses."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = RequestParser(
            max_body_len=site.max_payload_size,
            admit=site.admit,
            body_budget=site.body_budget,
            head_cache=site.head_cache,
        )
        self._reads = BudgetedReads(site.read_budget, self.data_received)
        self._late = self._reads.late
        self._since = 0.0  # start of the request being received, of idleness, or of silence
        self._lingers_since = 0.0  # start of lingering after the last response; 0: not lingering
        self._discarded_len = 0
        self._stopping = False  # the gateway shuts down
        self._current = IncomingRequest(RequestHead())  # the request being answered
        self._ongoing: OngoingRequest | None = None
        self._streaming = False
        self._paused = False
        self._slow_reader = SlowReaderTimer()
        self._is_new = True  # no head has been received
        self._is_active = False  # a request was admitted

    # -- from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._reads.connected(self._transport)
        self._since = self._loop.time()
        if not self._site.connections.add(self):
            self._reader.admit_by(self._admit_probe)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader.stopped:
            self._discard(len(data))
            return
        if (len(data) > SHORT or self._late) and self._reads.defer(data):
            return
        was_receiving = reader.receiving
        reader.feed(data)
        if reader.receiving and not was_receiving:  # empty lines alone are no request
            self._since = self._loop.time()
        if not self._is_active and (reader.ready or reader.has_head):
            self._is_new, self._is_active = False, reader.admitted
            self._site.connections.on_request(self)
        if reader.wants_continue:
            self._continue()
        if reader.ready:
            self._advance()

    def eof_received(self) -> None:
        """Treat a half-closed connection as closed, as engines' servers do."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._reads.close(pass_on=False)
        self._reader.close()
        if self._ongoing is not None:
            ongoing, self._ongoing = self._ongoing, None
            ongoing.on_disconnect()
        self._site.connections.discard(self)

    def pause_writing(self) -> None:
        self._paused = True
        if self._ongoing is not None:
            self._ongoing.pause()

    def resume_writing(self) -> None:
        self._paused = False
        if self._ongoing is not None:
            self._ongoing.resume()
        else:
            self._advance()

    # -- responses

    def write_stream(self, head: ResponseHead | None, data: bytes) -> None:
        """Write a piece of a response of unknown length, after its head if that is given."""
        if not self._current.head.http10:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if head is not None:
            self._streaming = True
            self._release_body()
            framing = b"" if head.dated else self._site.date
            if not self._current.head.http10:
                framing += b"transfer-encoding: chunked\r\n"
            data = self._head(head.status, head.lines, framing) + data
        if self._transport is not None:
            self._transport.write(data)

    def end_stream(self, last: bytes = b"") -> None:
        """End a response of unknown length, after `last`."""
        if self._transport is not None:
            if last:
                self.write_stream(None, last)
            if not self._current.head.http10:
                self._transport.write(b"0\r\n\r\n")
        self._streaming = False
        self._on_response_end()

    def write_whole(self, head: ResponseHead, body: bytes, more: Sequence[bytes] = ()) -> None:
        """Write a response in one piece: `body`, and after it `more`."""
        framing = b"" if head.dated else self._site.date
        if body or head.status not in BODILESS:  # whose Content-Length is that of another response
            length = len(body) + sum(map(len, more)) if more else len(body)
            framing = b"content-length: %d\r\n%b" % (length, framing)
        self._write(self._head(head.status, head.lines, framing) + body, more)

    def write_json(self, body: bytes, *, status: int = 200, lines: tuple[bytes, ...] = ()) -> None:
        """Write a JSON response of the gateway's own."""
        self.write_body(body, b"application/json", status=status, lines=lines)

    def write_body(
        self, body: bytes, content_type: bytes, *, status: int = 200, lines: tuple[bytes, ...] = ()
    ) -> None:
        """Write a response of the gateway's own, of any content type."""
        framing = b"%bcontent-type: %b\r\ncontent-length: %d\r\n" % (
            self._site.date, content_type, len(body)
        )  # fmt: skip
        if self._current.head.method == b"HEAD":
            body = b""
        self._write(self._head(status, lines, framing) + body)

    def write_error(self, error: Exception, *, status: int | None = None) -> None:
        """Write `error` in the shape of the path's API; as the last event where a stream has begun."""
        status = status or status_of(error)
        endpoint = endpoint_of(self._current.head.target)
        if self._streaming:
            assert endpoint is not None, "only engines stream"
            self.end_stream(endpoint.error_event(error, status))
            return
        body = (endpoint.error_body if endpoint else openai_error)(error, status)
        retry_after_s = retry_after(error, status)
        lines = (b"retry-after: %d\r\n" % retry_after_s,) if retry_after_s else ()
        if isinstance(error, MethodNotAllowed):
            lines = (b"allow: " + error.allow.encode() + b"\r\n",)
        self.write_json(body, status=status, lines=lines)

    def refuse(self, error: Exception, *, status: int | None = None) -> None:
        """Write the error response of a request that no engine has received."""
        self._site.refused(self._current, status or status_of(error))
        self.write_error(error, status=status)

    def _head(self, status: int, lines: Iterable[bytes], framing: bytes) -> bytes:
        """The head of a response with these header `lines`, and count the response."""
        self._site.count(status)
        close = b"" if self._current.keep_alive else b"connection: close\r\n"
        fields = b"".join(lines)
        reason = REASONS.get(status, b"")  # optional, and ignored by clients (RFC 9112, 4)
        echo = self._current.echo
        if echo:
            fields = without_names(fields, echo)
        return b"HTTP/1.1 %d %b\r\n%b%b%b%b\r\n" % (status, reason, fields, echo, framing, close)

    def _write(self, data: bytes, more: Sequence[bytes] = ()) -> None:
        if self._transport is not None:
            self._transport.write(data)
            if more:
                self._transport.writelines(more)
        self._on_response_end()

    # -- order and time limits

    def tick(self, now: float) -> None:
        """Enforce the time limits; called once a second."""
        reader = self._reader
        if self._is_stuck(now):
            self.abort()
        elif self._lingers_since:
            if now - self._since > _LINGER_SILENT_S or now - self._lingers_since > _LINGER_S:
                self.close()
        elif self._ongoing is not None:
            self._ongoing.tick(now)
        elif reader.receiving:
            if now - self._since > self._site.client_timeout_s:
                reader.refuse(BadRequest("the request took too long to arrive"), status=408)
                self._advance()
        elif not reader.ready and now - self._since > _IDLE_S:
            self.close()

    def _is_stuck(self, now: float) -> bool:
        """True if the client has not read for too long: longer where that blocks an engine, too."""
        transport = self._transport
        if transport is None or not (self._paused or transport.is_closing()):
            self._slow_reader.reset()
            return False
        limit_s = _STUCK_S if self._ongoing is None else self._site.client_timeout_s
        return self._slow_reader.seconds(transport.get_write_buffer_size(), now) > limit_s

    def close(self) -> None:
        """Close once the write buffer is empty."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now, whatever is in the write buffer."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def is_admitted(self) -> bool:
        """True once a request to an engine was admitted on this connection."""
        return self._reader.admitted

    @property
    def is_spare(self) -> bool:
        """True between two requests, and after the last response."""
        reader = self._reader
        idle = self._ongoing is None and not reader.ready
        return idle and (reader.stopped or not reader.receiving)

    @property
    def is_slow(self) -> bool:
        """True if the request has been arriving for longer than allowed while all slots are taken."""
        is_arriving = self._ongoing is None and self._reader.receiving and not self._reader.stopped
        return is_arriving and self._loop.time() - self._since > _SLOW_S

    def turn_away(self, error: FairhitError) -> None:
        """Close to free the slot; respond with `error` if a request is arriving or may be on its way."""
        reader = self._reader
        if reader.stopped or not (self._is_new or reader.receiving):
            self.close()
            return
        self._current = IncomingRequest(RequestHead())
        self._current.keep_alive = False
        self.write_error(error)
        if not self._reader.receiving:
            self.close()  # no lingering: slot and descriptor are needed

    def peer(self) -> str | None:
        """The client's address; None if it has none or the connection is closed."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(name[0]) if isinstance(name, tuple) and name else None

    def finish(self) -> None:
        """Close once the request being answered or received is answered: the gateway shuts down."""
        self._stopping = True
        if self._lingers_since:
            self._linger()
            return
        if self._ongoing is None and not self._reader.ready and self._reader.receiving:
            self._reader.accept_no_more()
            return
        self._reader.stopped = True
        self._current.keep_alive = False
        if self._ongoing is None and not self._reader.ready:
            self.close()

    def cut(self, error: FairhitError) -> None:
        """Respond with `error` to the request under way, and close: the time to shut down is over."""
        if self._ongoing is not None:
            self._ongoing.stop(error, status=503)
        elif self._reader.receiving and not self._lingers_since:
            self._reader.refuse(error, status=503)
            self._advance()  # and lingers: the client may still be sending
            return
        self.close()

    def proceed(self, begin: Callable[[], OngoingRequest]) -> None:
        """Replace a pending request, which is prepared now, by the request that `begin` returns."""
        assert self._ongoing is not None, "the client has disconnected"
        try:
            self._ongoing = begin()
        except Exception as error:  # noqa: BLE001 - a bug included, as in `_advance`
            self.refuse(as_client_error(error))

    def _admit_probe(self, request: IncomingRequest) -> bool:
        """Admit nothing but one request for health or metrics. Raises FairhitError."""
        request.keep_alive = False
        if path_of(request.head.target) not in PROBES:
            raise GatewayFull("this gateway has too many connections")
        return self._site.admit(request)

    def _advance(self) -> None:
        """Handle the requests received so far, in order, until one takes time."""
        reader = self._reader
        while reader.ready and self._ongoing is None and not self._paused:
            request = self._current = reader.take()
            if request.refusal is not None:
                self.refuse(request.refusal, status=request.status)
                continue
            try:
                self._ongoing = self._site.handle(self, request)
            # A bug included: this request and those behind it must be answered.
            except Exception as error:  # noqa: BLE001
                self.refuse(as_client_error(error))

    def _continue(self) -> None:
        """Write the 100 Continue that the client waits for before it sends the body."""
        self._reader.wants_continue = False
        if self._reader.receiving and self._ongoing is None and not self._reader.stopped:
            if self._transport is not None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _on_response_end(self) -> None:
        had_ongoing = self._ongoing is not None
        self._ongoing = None
        self._release_body()
        self._since = self._loop.time()
        if not self._current.keep_alive:
            self._reader.drop()
            self._linger()
        elif had_ongoing and self._reader.ready:
            self._loop.call_soon(self._advance)  # not now: charges are trued up after the response

    def _release_body(self) -> None:
        """Free the body of the request being answered: it is sent to no engine again."""
        self._current.body = b""
        self._reader.release()

    def _linger(self) -> None:
        """Half-close, and close once the client has: see `_LINGER_S`."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._lingers_since = self._lingers_since or self._since
        may_lose = self._reader.receiving or self._reader.has_discarded
        if transport.can_write_eof() and (may_lose or not self._stopping):
            transport.write_eof()
        elif not may_lose:  # TLS has no half-close
            self.close()

    def _discard(self, length: int) -> None:
        """Note that `length` bytes were received and discarded."""
        self._reader.has_discarded = True
        before = self._discarded_len
        self._discarded_len += length
        if self._discarded_len // _LINGER_MIN_LEN > before // _LINGER_MIN_LEN:
            self._since = self._loop.time()
        if self._discarded_len > _LINGER_MAX_LEN:
            self.close()

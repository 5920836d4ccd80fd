"""The callers' side: one protocol per connection, keep-alive, pipelined requests answered in order.

It frames answers and enforces the order and the time limits; what a request means is the gateway's
business.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, cast

from fairhit.errors import BadRequest, FairhitError, GatewayFull, MethodNotAllowed
from fairhit.gateway.api.endpoints import path_of, surface_of
from fairhit.gateway.api.endpoints.errors import openai_error, retry_after, status_of
from fairhit.gateway.http.head_cache import HeadCache
from fairhit.gateway.http.read_budget import Reads, Turns
from fairhit.gateway.http.request_parser import RequestReader
from fairhit.gateway.http.response_head import BODILESS, REASONS, ResponseHead, without_names
from fairhit.gateway.http.slow_reader_timer import Unread
from fairhit.gateway.http.step_bounds import SHORT
from fairhit.gateway.observability.log_exceptions import told
from fairhit.gateway.proxy.incoming_request import BodyBudget, Incoming, RequestHead

# What is answered on connections beyond the limit: to probes and to who looks why they fail.
PROBES = frozenset((b"/health", b"/readiness", b"/metrics"))
# A kept connection may be idle this long; longer than clients keep theirs, shorter than NATs do.
_IDLE_S = 75.0
# Where all places are taken a request may take this long to arrive, rather than --client-timeout-secs.
_SLOW_S = 10.0
# After the last answer of a connection its caller may still be sending: a socket that closes with bytes
# unread resets the connection, and the answer may be lost on the way. So what comes is read and thrown
# away until the caller has closed, too: for half a minute, as nginx does, as long as it really sends.
_LINGER_S = 30.0
_LINGER_SILENT_S = 2.0
_LINGER_LEAST = 16 << 10  # a byte now and then is silence
_LINGER_LEN = 256 << 20
# Nothing of an answer has gone out for so long: its caller has stopped reading without leaving.
_STUCK_S = 10.0


class Work(Protocol):
    """What a connection waits for: an exchange, or what must come before one."""

    deadline: float

    def caller_gone(self) -> None:
        """Nobody waits any more."""
        ...

    def tick(self, now: float) -> None:
        """A second has passed: enforce the limits on time."""
        ...

    def stop(self, error: FairhitError, *, status: int) -> None:
        """End it now, with this answer."""
        ...

    def pause(self) -> None:
        """The caller reads slowly."""
        ...

    def resume(self) -> None:
        """It has caught up."""
        ...


class Site(Protocol):
    """The gateway as a connection sees it."""

    max_payload_size: int
    client_timeout_s: float
    arrived: BodyBudget
    head_cache: HeadCache[RequestHead]
    turns: Turns
    date: bytes  # the header line, a second old at most

    def opened(self, connection: "CallerConnection") -> bool:
        """A caller connected; False: it may only ask whether the gateway is well."""
        ...

    def asked(self, connection: "CallerConnection") -> None:
        """The whole head of a request has come, and none before was admitted."""
        ...

    def closed(self, connection: "CallerConnection") -> None:
        """It left."""
        ...

    def admit(self, request: Incoming) -> bool:
        """Its head is complete: whether its body is wanted. Raises FairhitError."""
        ...

    def handle(self, connection: "CallerConnection", request: Incoming) -> Work | None:
        """Answer now and return None, or begin the work that will. Raises FairhitError."""
        ...

    def count(self, status: int) -> None:
        """An answer with this status begins."""
        ...

    def refused(self, request: Incoming, status: int) -> None:
        """It is answered with this error, and no engine has heard of it."""
        ...


class CallerConnection(asyncio.Protocol):
    """Reads requests, has the gateway answer one at a time, and frames the answers."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = RequestReader(
            max_body_len=site.max_payload_size,
            admit=site.admit,
            arrived=site.arrived,
            head_cache=site.head_cache,
        )
        self._reads = Reads(site.turns, self.data_received)
        self._late = self._reads.late
        self._since = 0.0  # receiving since, or else idle since, or nothing to throw away since
        self._lingers_since = 0.0  # all is answered, and its caller has yet to close; 0: not so
        self._thrown_away = 0  # bytes
        self._stopping = False  # the gateway shuts down
        self._current = Incoming(RequestHead())  # the request being answered
        self._work: Work | None = None
        self._streaming = False
        self._paused = False
        self._unread = Unread()
        self._is_new = True  # the head of its first request has not come
        self._is_unasked = True  # nor that of one that was admitted

    # -- from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._reads.connected(self._transport)
        self._since = self._loop.time()
        if not self._site.opened(self):
            self._reader.admit_by(self._admit_probe)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if reader.deaf:
            self._throw_away(len(data))
            return
        if (len(data) > SHORT or self._late) and self._reads.put_off(data):
            return
        was_receiving = reader.receiving
        reader.feed(data)
        if reader.receiving and not was_receiving:  # empty lines alone are no request
            self._since = self._loop.time()
        if self._is_unasked and (reader.ready or reader.has_head):
            self._is_new, self._is_unasked = False, not reader.admitted
            self._site.asked(self)
        if reader.wants_continue:
            self._continue()
        if reader.ready:
            self._advance()

    def eof_received(self) -> None:
        """Half-closing is leaving: so do the servers of the engines see it."""

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._reads.lost(hand_on=False)
        self._reader.close()
        if self._work is not None:
            work, self._work = self._work, None
            work.caller_gone()
        self._site.closed(self)

    def pause_writing(self) -> None:
        self._paused = True
        if self._work is not None:
            self._work.pause()

    def resume_writing(self) -> None:
        self._paused = False
        if self._work is not None:
            self._work.resume()
        else:
            self._advance()

    # -- answering

    def write_stream(self, head: ResponseHead | None, data: bytes) -> None:
        """A piece of an answer of unknown length, after its head if that is given."""
        if not self._current.head.http10:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        if head is not None:
            self._streaming = True
            self._let_go()
            framing = b"" if head.dated else self._site.date
            if not self._current.head.http10:
                framing += b"transfer-encoding: chunked\r\n"
            data = self._head(head.status, head.lines, framing) + data
        if self._transport is not None:
            self._transport.write(data)

    def end_stream(self, last: bytes = b"") -> None:
        """The end of it, after `last`."""
        if self._transport is not None:
            if last:
                self.write_stream(None, last)
            if not self._current.head.http10:
                self._transport.write(b"0\r\n\r\n")
        self._streaming = False
        self._answered()

    def write_whole(self, head: ResponseHead, body: bytes, more: Sequence[bytes] = ()) -> None:
        """An answer in one piece: `body`, and after it `more`."""
        self._site.count(head.status)
        last = b"" if self._current.keep_alive else b"connection: close\r\n"
        if not head.dated:
            last += self._site.date
        lines, echo = b"".join(head.lines), self._current.echo
        if echo:
            lines = without_names(lines, echo)
        if body or head.status not in BODILESS:  # whose Content-Length is that of another response
            length = len(body) + sum(map(len, more)) if more else len(body)
            last = b"content-length: %d\r\n%b" % (length, last)
        reason = REASONS.get(head.status, b"")
        start = b"HTTP/1.1 %d %b\r\n%b%b%b\r\n" % (head.status, reason, lines, echo, last)
        self._write(start + body, more)

    def write_json(self, body: bytes, *, status: int = 200, lines: tuple[bytes, ...] = ()) -> None:
        """An answer of the gateway's own."""
        self.write_body(body, b"application/json", status=status, lines=lines)

    def write_body(
        self, body: bytes, content_type: bytes, *, status: int = 200, lines: tuple[bytes, ...] = ()
    ) -> None:
        """The same of any type."""
        framing = b"%bcontent-type: %b\r\ncontent-length: %d\r\n" % (
            self._site.date, content_type, len(body)
        )  # fmt: skip
        if self._current.head.method == b"HEAD":
            body = b""
        self._write(self._head(status, lines, framing) + body)

    def write_error(self, error: Exception, *, status: int | None = None) -> None:
        """`error` in the path's own shape; as an event, and then the end, where a stream has begun."""
        status = status or status_of(error)
        surface = surface_of(self._current.head.target)
        if self._streaming:
            assert surface is not None, "only engines stream"
            self.end_stream(surface.error_event(error, status))
            return
        body = (surface.error_body if surface else openai_error)(error, status)
        wait = retry_after(error, status)
        lines = (b"retry-after: %d\r\n" % wait,) if wait else ()
        if isinstance(error, MethodNotAllowed):
            lines = (b"allow: " + error.allow.encode() + b"\r\n",)
        self.write_json(body, status=status, lines=lines)

    def refuse(self, error: Exception, *, status: int | None = None) -> None:
        """The same for a request that no engine has heard of."""
        self._site.refused(self._current, status or status_of(error))
        self.write_error(error, status=status)

    def _head(self, status: int, lines: Iterable[bytes], framing: bytes) -> bytes:
        self._site.count(status)
        close = b"" if self._current.keep_alive else b"connection: close\r\n"
        fields = b"".join(lines)
        reason = REASONS.get(status, b"")  # optional, and nobody reads it (RFC 9112, 4)
        echo = self._current.echo
        if echo:
            fields = without_names(fields, echo)
        return b"HTTP/1.1 %d %b\r\n%b%b%b%b\r\n" % (status, reason, fields, echo, framing, close)

    def _write(self, data: bytes, more: Sequence[bytes] = ()) -> None:
        if self._transport is not None:
            self._transport.write(data)
            if more:
                self._transport.writelines(more)
        self._answered()

    # -- the order of things

    def tick(self, now: float) -> None:
        """A second has passed: enforce the limits on time."""
        reader = self._reader
        if self._is_stuck(now):
            self.abort()
        elif self._lingers_since:
            if now - self._since > _LINGER_SILENT_S or now - self._lingers_since > _LINGER_S:
                self.close()
        elif self._work is not None:
            self._work.tick(now)
        elif reader.receiving:
            if now - self._since > self._site.client_timeout_s:
                reader.refuse(BadRequest("the request took too long to arrive"), status=408)
                self._advance()
        elif not reader.ready and now - self._since > _IDLE_S:
            self.close()

    def _is_stuck(self, now: float) -> bool:
        """Whether what has been written is not read: for long, where an engine is kept waiting too."""
        transport = self._transport
        if transport is None or not (self._paused or transport.is_closing()):
            self._unread.forget()
            return False
        patience_s = _STUCK_S if self._work is None else self._site.client_timeout_s
        return self._unread.for_s(transport.get_write_buffer_size(), now) > patience_s

    def close(self) -> None:
        """Close once what was written has gone out."""
        if self._transport is not None:
            self._transport.close()

    @property
    def is_admitted(self) -> bool:
        """Whether it has asked for something of an engine, and might."""
        return self._reader.admitted

    @property
    def is_spare(self) -> bool:
        """Whether it is between two requests, or answered for the last time."""
        reader = self._reader
        return self._work is None and not reader.ready and (reader.deaf or not reader.receiving)

    @property
    def is_slow(self) -> bool:
        """Whether its request has been arriving for longer than it may where others find no place."""
        is_arriving = self._work is None and self._reader.receiving and not self._reader.deaf
        return is_arriving and self._loop.time() - self._since > _SLOW_S

    def turn_away(self, error: FairhitError) -> None:
        """Close it for others, and answer `error` to a caller that has begun to ask, or may be about to."""
        reader = self._reader
        if reader.deaf or not (self._is_new or reader.receiving):
            self.close()
            return
        self._current = Incoming(RequestHead())
        self._current.keep_alive = False
        self.write_error(error)
        if not self._reader.receiving:
            self.close()  # its place or its descriptor is another's

    def abort(self) -> None:
        """Close now, whatever has not gone out."""
        if self._transport is not None:
            self._transport.abort()

    def peer(self) -> str | None:
        """The address at the other end, None where it has none or is gone."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(name[0]) if isinstance(name, tuple) and name else None

    def cut(self, error: FairhitError) -> None:
        """There is no more time for what is under way: tell the caller, and close."""
        if self._work is not None:
            self._work.stop(error, status=503)
        elif self._reader.receiving and not self._lingers_since:
            self._reader.refuse(error, status=503)
            self._advance()  # and closes after a while: its caller may still be sending
            return
        self.close()

    def finish(self) -> None:
        """Answer what is under way or half here, then close: the gateway is shutting down."""
        self._stopping = True
        if self._lingers_since:
            self._hang_up()
            return
        if self._work is None and not self._reader.ready and self._reader.receiving:
            self._reader.end()
            return
        self._reader.deaf = True
        self._current.keep_alive = False
        if self._work is None and not self._reader.ready:
            self.close()

    def proceed(self, begin: Callable[[], Work]) -> None:
        """What had to come first is done: the work itself begins."""
        assert self._work is not None, "the caller is gone"
        try:
            self._work = begin()
        except Exception as error:  # noqa: BLE001 - or a bug of ours: as below
            self.refuse(told(error))

    def _admit_probe(self, request: Incoming) -> bool:
        """Admit only what asks how the gateway is, and that once. Raises FairhitError."""
        request.keep_alive = False
        if path_of(request.head.target) not in PROBES:
            raise GatewayFull("this gateway has too many connections")
        return self._site.admit(request)

    def _advance(self) -> None:
        """Answer what has come, in order, until something takes time."""
        reader = self._reader
        while reader.ready and self._work is None and not self._paused:
            request = self._current = reader.take()
            if request.refusal is not None:
                self.refuse(request.refusal, status=request.status)
                continue
            try:
                self._work = self._site.handle(self, request)
            # Or a bug of ours: nobody would answer this caller, or whoever is behind it.
            except Exception as error:  # noqa: BLE001
                self.refuse(told(error))

    def _continue(self) -> None:
        """The caller waits for a word before it sends its body."""
        self._reader.wants_continue = False
        if self._reader.receiving and self._work is None and not self._reader.deaf:
            if self._transport is not None:
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _answered(self) -> None:
        waited = self._work is not None
        self._work = None
        self._let_go()
        self._since = self._loop.time()
        if not self._current.keep_alive:
            self._reader.drop()
            self._hang_up()
        elif waited and self._reader.ready:
            self._loop.call_soon(self._advance)  # not within the answer: it has yet to be settled

    def _let_go(self) -> None:
        """No engine will be sent the body of the request being answered again."""
        self._current.body = b""
        self._reader.release()

    def _hang_up(self) -> None:
        """Say that nothing more comes, and close once the caller has: see `_LINGER_S`."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._lingers_since = self._lingers_since or self._since
        may_lose = self._reader.receiving or self._reader.unread
        if transport.can_write_eof() and (may_lose or not self._stopping):
            transport.write_eof()
        elif not may_lose:  # over TLS to end is to close
            self.close()

    def _throw_away(self, length: int) -> None:
        """So many bytes came that nobody reads."""
        self._reader.unread = True
        before = self._thrown_away
        self._thrown_away += length
        if self._thrown_away // _LINGER_LEAST > before // _LINGER_LEAST:
            self._since = self._loop.time()
        if self._thrown_away > _LINGER_LEN:
            self.close()

"""Requests as they come off the wire: one reader per connection, headers looked at once, by name.

What is wrong with a request becomes its `refusal`, to be answered when its turn comes. Every header
the gateway has no use for is kept as it came. A head that says the same as one before is not read
again (`repeated`).
"""

from collections import deque
from collections.abc import Callable

import httptools

from fairhit.errors import BadRequest, FairhitError, TooLarge
from fairhit.gateway.api.endpoints import surface_of
from fairhit.gateway.http.head_cache import HeadCache
from fairhit.gateway.http.head_reader import HeadReader, check_host, too_long
from fairhit.gateway.http.step_bounds import STEP
from fairhit.gateway.proxy.incoming_request import Body, BodyBudget, Incoming, RequestHead

# As uvicorn and nginx: generous for keys and traces, small enough to hold ten thousand of.
MAX_HEAD = 64 << 10
# The size of a chunk and its line ends, at most: what is more is extensions or zeros, which all chunks of
# a body have together as much of as a head.
_CHUNK = 20
# Requests a connection may send ahead of their answers; HTTP clients of today send none. Beyond it
# the rest is not read, and the connection closes once these are answered (RFC 9112, 9.3.2).
_MAX_AHEAD = 32
# Of a body: a list of many costs more than the bytes in them.
_MAX_PIECES = 64


class RequestReader:
    """Turns bytes into requests, in order; `ready` holds those whose turn has not come.

    `admit` sees each request once its head is complete: whether its body is wanted, or a
    FairhitError that refuses it before the body has come.
    """

    def __init__(
        self,
        *,
        max_body_len: int,
        admit: Callable[[Incoming], bool],
        arrived: BodyBudget,
        head_cache: HeadCache[RequestHead] | None = None,
    ) -> None:
        self.ready: deque[Incoming] = deque()
        self.receiving = False  # a request has begun to arrive and is not complete
        self.deaf = False  # whatever else comes is not read
        self.unread = False  # something else came
        self.wants_continue = False
        self._max_body_len = max_body_len
        self._admit = admit
        self._arrived = arrived
        self._parser = httptools.HttpRequestParser(self)
        self._incoming = self._taken = Incoming(RequestHead())
        self._heading: HeadReader | None = None  # of the head that comes
        self._again = False  # the head that comes is only the framing of one that has been read
        self._keeps_body = False
        self.admitted = False  # a request has been whose body is wanted
        self._other_len = 0  # since the head began or ended, without bodies and the sizes of chunks
        self._pieces: list[bytes | memoryview] = []
        self._gathered = bytearray()  # instead, of a body that is long or comes in many
        self._body_len = 0
        self._ahead_len = 0  # of `ready`
        self._begun = 0  # messages that the parser has begun
        self._head_cache: HeadCache[RequestHead] = HeadCache() if head_cache is None else head_cache
        self._closed = False  # the parser accepts nothing more
        self._missing = 0  # of a body after a head that was known

    @property
    def has_head(self) -> bool:
        """Whether the head of what is arriving is there."""
        return self.receiving and self._heading is None

    def admit_by(self, admit: Callable[[Incoming], bool]) -> None:
        """Have `admit` see the heads from now on."""
        self._admit = admit

    def feed(self, data: bytes) -> None:
        """Read `data`; nothing is raised."""
        while data and not self.deaf:
            if self._missing:
                data = self._continue_body(data)
                continue
            cached = None if self.receiving or self._closed else self._head_cache.find(data)
            if cached is None or cached[2] > self._max_body_len:
                self._feed_parser(data)
                return
            data = self._begin_cached(*cached, data)
        self.unread |= bool(data)

    def _feed_parser(self, data: bytes) -> None:
        begun, at_start, whole = self._begun, not self.receiving, data
        self._other_len += len(data)
        while data and not self.deaf:
            data = self._parse(data)
        if self.receiving and self._other_len > MAX_HEAD:  # a head, extensions, or trailers
            self._refuse_head()
        if at_start and not self.deaf and self._begun == begun + 1 and self._heading is None:
            self._learn(whole)

    def _learn(self, data: bytes) -> None:
        """Remember the head that `data` began with, if the next may well be the same."""
        incoming = self._incoming
        usual = incoming.keep_alive and incoming.head.framing.startswith(b"content-length")
        if usual and self._keeps_body and not self._again and data.startswith(b"POST "):
            self._head_cache.add(data, incoming.head)

    def _begin_cached(self, head: RequestHead, body_at: int, length: int, data: bytes) -> bytes:
        """Begin a request whose head is cached; returns what follows it in `data`."""
        incoming = self._incoming = Incoming(head)
        self.receiving = True
        try:
            self._keeps_body = self._admit(incoming)
        except FairhitError as error:
            self.refuse(error)
            return b""
        self.admitted |= self._keeps_body
        end = body_at + length
        if end > len(data):
            self._missing = end - len(data)
            self._keep(memoryview(data)[body_at:])  # it is joined with the rest: one copy is enough
            return b""
        body = b""
        if self._keeps_body:
            body = data[body_at:end]
            self._hold(length)
        if not self.deaf:
            self._complete(body)
        return data[end:] if end < len(data) else b""

    def _continue_body(self, data: bytes) -> bytes:
        """More of the body after such a head; what follows it in `data`."""
        missing = self._missing
        came = data if len(data) <= missing else data[:missing]
        self._missing = missing - len(came)
        self._keep(came)
        if not self._missing and not self.deaf:
            self._complete(self._joined())
        return data[missing:] if missing < len(data) else b""

    def _keep(self, piece: bytes | memoryview) -> None:
        """A piece of a body that is not too long."""
        if self._keeps_body and not self.deaf:
            if self._gathered:
                self._gathered += piece
            else:
                self._pieces.append(piece)
                if self._incoming.held > STEP or len(self._pieces) >= _MAX_PIECES:
                    for one in self._pieces:
                        self._gathered += one
                    self._pieces.clear()
            self._hold(len(piece))

    def _joined(self) -> Body:
        """The body that came in pieces, which are let go."""
        if self._gathered:
            body, self._gathered = self._gathered, bytearray()
            return body
        return b"".join(self._pieces)

    def _complete(self, body: Body) -> None:
        """The request that was arriving is there."""
        self.receiving = False
        self._other_len = 0
        self._incoming.body = body
        self._pieces.clear()
        self.ready.append(self._incoming)
        self._ahead_len += len(body)
        if self._closed:  # the last of its connection: nothing after it is a request
            self.deaf = True
        too_much = len(self.ready) > 1 and self._ahead_len > self._max_body_len
        if too_much or len(self.ready) > _MAX_AHEAD:
            self._incoming.keep_alive = False
            self.deaf = True

    def take(self) -> Incoming:
        """The request whose turn it is; its body counts until `release`."""
        request = self._taken = self.ready.popleft()
        self._ahead_len -= len(request.body)
        return request

    def release(self) -> None:
        """Nobody keeps the body of the request whose turn it was."""
        self._free(self._taken)

    def end(self) -> None:
        """What is arriving is the last."""
        self._closed = True
        self._incoming.keep_alive = False

    def drop(self) -> None:
        """Forget what waits, and read no more."""
        self.deaf = True
        for request in (*self.ready, self._taken, self._incoming):
            self._free(request)
        self.ready.clear()
        self._pieces.clear()
        self._gathered = bytearray()
        self._ahead_len = 0

    def close(self) -> None:
        """The connection is closed: the parser, which holds us, need not wait for the collector."""
        self.drop()
        self._parser = None

    def refuse(self, error: FairhitError, *, status: int | None = None) -> None:
        """Answer `error` to what is arriving, and read no more of this connection."""
        if self.deaf:
            return
        self.deaf = True
        if not self.receiving:  # what was wrong came after a request that was right
            self._incoming = Incoming(RequestHead())
        elif self._heading is not None:
            head = self._heading.finish()
            self._incoming.lines, head.surface = head.lines, surface_of(head.target)
        self._incoming.refusal = error.with_traceback(None)  # whose frames hold us
        self._incoming.status = status
        self._incoming.keep_alive = False
        self._pieces.clear()
        self._gathered = bytearray()
        self._free(self._incoming)
        self.ready.append(self._incoming)

    def _refuse_head(self) -> None:
        self.refuse(TooLarge(f"the headers are longer than {MAX_HEAD} bytes"), status=431)

    # -- from the parser

    def on_message_begin(self) -> None:
        if self._again:
            return
        self._begun += 1
        self._heading = HeadReader(self._max_body_len)
        self._incoming = Incoming(self._heading.head)
        self.receiving = True
        self._pieces.clear()
        self._body_len = 0

    def on_url(self, url: bytes) -> None:
        if self._heading is not None:
            self._heading.head.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._heading is None:  # a trailer, or read before
            return
        try:
            self._heading.add(name, value)
        except FairhitError as error:
            self.refuse(error)

    def on_headers_complete(self) -> None:
        if self._again:
            self._again = False
            return
        assert self._heading is not None, "a message has begun"
        incoming, head = self._incoming, self._heading.finish()
        expects = self._heading.expects
        self._heading = None
        incoming.lines = head.lines  # also if nobody admits it
        self._other_len = 0
        head.method = self._parser.get_method()
        version = self._parser.get_http_version()
        head.http10 = version == "1.0"
        self.wants_continue = expects and not head.http10  # RFC 9110, 10.1.1
        if head.http10 or not self._parser.should_keep_alive():
            # HTTP/1.0 has no chunks: an answer of unknown length ends with its connection.
            incoming.keep_alive = False
            self._closed = True
        if self.deaf:
            return
        if len(head.target) + len(head.lines) > MAX_HEAD:  # all of it in one piece
            self._refuse_head()
            return
        if wrong := self._wrong_start(version):
            self.refuse(BadRequest(wrong))
            return
        self._again = self._parser.should_upgrade()
        head.surface = surface_of(head.target)
        try:
            self._keeps_body = self._admit(incoming)
        except FairhitError as error:
            self.refuse(error)
            return
        self.admitted |= self._keeps_body

    def on_chunk_header(self) -> None:
        self._other_len -= _CHUNK

    def on_body(self, body: bytes) -> None:
        length = len(body)
        self._other_len -= length
        self._body_len += length
        if self._body_len > self._max_body_len:
            self.refuse(too_long(self._max_body_len))
        else:
            self._keep(body)

    def on_message_complete(self) -> None:
        if self.deaf or self._again:
            return
        self._complete(self._joined())

    # -- inside

    def _wrong_start(self, version: str) -> str:
        """What the parser lets pass of a head and the gateway does not; empty if nothing is."""
        head = self._incoming.head
        if head.method == b"CONNECT":
            return "the gateway is no tunnel"
        if version not in {"1.1", "1.0"}:
            return "only HTTP/1.1 and HTTP/1.0 are spoken here"
        if head.http10 and head.framing.startswith(b"transfer-encoding"):
            return "HTTP/1.0 has no Transfer-Encoding"
        return check_host(head)

    def _parse(self, data: bytes) -> bytes:
        """What is left to parse of `data`, which is nothing except after a wish to upgrade."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switch:
            # HTTP/2 in the clear, as Java's client asks for it, is declined by not mentioning it
            # (RFC 9110, 7.8). Only the parser believes that the body is of another protocol.
            self._parser = httptools.HttpRequestParser(self)
            version = b"1.0" if self._incoming.head.http10 else b"1.1"
            head = b"POST / HTTP/%b\r\n%b\r\n" % (version, self._incoming.head.framing)
            return head + data[switch.args[0] :]
        except httptools.HttpParserError as error:
            self.refuse(BadRequest(f"not a valid HTTP request: {error}"))
        return b""

    def _hold(self, length: int) -> None:
        """So much more of what is arriving is kept."""
        if length:
            incoming = self._incoming
            incoming.held += length
            full = self._arrived.add(incoming.client, length, most=self._max_body_len)
            if full is not None:
                self.refuse(full)

    def _free(self, request: Incoming) -> None:
        """Nothing of it is kept."""
        if request.held:
            self._arrived.remove(request.client, request.held)
            request.held = 0

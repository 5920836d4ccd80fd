"""Parser of requests: one per client connection.

A malformed request becomes one with a `refusal`, which is answered in order. Headers that the gateway has
no use for are kept as received. A head in the cache (`repeated`) is not parsed again.
"""

from collections import deque
from collections.abc import Callable

import httptools

from fairhit.errors import BadRequest, FairhitError, TooLarge
from fairhit.gateway.api.endpoints import endpoint_of
from fairhit.gateway.http.head_cache import HeadCache
from fairhit.gateway.http.head_reader import HeadReader, check_host, too_long
from fairhit.gateway.http.read_budget import STEP
from fairhit.gateway.proxy.incoming_request import Body, BodyBudget, IncomingRequest, RequestHead

# As uvicorn and nginx: generous for keys and traces, small enough to hold ten thousand heads.
MAX_HEAD = 64 << 10
# Size line and line ends of a chunk, at most: more is extensions or zeros, of which all chunks of a body
# together may have as much as a head.
_CHUNK = 20
# Requests that a connection may send ahead of their responses; HTTP clients of today send none. Beyond it
# nothing is read, and the connection closes once these are answered (RFC 9112, 9.3.2).
_MAX_AHEAD = 32
# Pieces of a body in a list: a list of many costs more than the bytes in them.
_MAX_PIECES = 64


class RequestParser:
    """Parses requests, in order; `ready` holds the complete ones that are not taken yet.

    `admit` is called with each request whose head is complete: True if its body is wanted, or a
    FairhitError that refuses the request before the body is received.
    """

    def __init__(
        self,
        *,
        max_body_len: int,
        admit: Callable[[IncomingRequest], bool],
        body_budget: BodyBudget,
        head_cache: HeadCache[RequestHead] | None = None,
    ) -> None:
        self.ready: deque[IncomingRequest] = deque()
        self.receiving = False  # a request has begun and is not complete
        self.stopped = False  # nothing is read any more
        self.has_discarded = False  # bytes were received after that
        self.wants_continue = False
        self.admitted = False  # a request was admitted whose body is wanted
        self._max_body_len = max_body_len
        self._admit = admit
        self._body_budget = body_budget
        self._parser = httptools.HttpRequestParser(self)
        self._incoming = self._taken = IncomingRequest(RequestHead())
        self._heading: HeadReader | None = None  # of the head being received
        self._is_reparsed = False  # the parser reads the framing of a head that was read before
        self._keeps_body = False
        self._other_len = 0  # since the head began or ended, without bodies and sizes of chunks
        self._pieces: list[bytes | memoryview] = []
        self._gathered = bytearray()  # instead, of a long body or one in many pieces
        self._body_len = 0
        self._ahead_len = 0  # of `ready`
        self._begun = 0  # messages that the parser has begun
        self._head_cache: HeadCache[RequestHead] = HeadCache() if head_cache is None else head_cache
        self._is_last = False  # no request may follow the one being received
        self._missing = 0  # bytes of a body after a cached head

    @property
    def has_head(self) -> bool:
        """True if a request is being received whose head is complete."""
        return self.receiving and self._heading is None

    def admit_by(self, admit: Callable[[IncomingRequest], bool]) -> None:
        """Call `admit` for heads from now on."""
        self._admit = admit

    def feed(self, data: bytes) -> None:
        """Read `data`; nothing is raised. O(data)."""
        while data and not self.stopped:
            if self._missing:
                data = self._continue_body(data)
                continue
            cached = None if self.receiving or self._is_last else self._head_cache.find(data)
            if cached is None or cached[2] > self._max_body_len:
                self._feed_parser(data)
                return
            data = self._begin_cached(*cached, data)
        self.has_discarded |= bool(data)

    def take(self) -> IncomingRequest:
        """Remove and return the oldest complete request; its body counts until `release`."""
        request = self._taken = self.ready.popleft()
        self._ahead_len -= len(request.body)
        return request

    def release(self) -> None:
        """Stop counting the body of the request taken last."""
        self._free(self._taken)

    def accept_no_more(self) -> None:
        """Make the request being received the last of its connection."""
        self._is_last = True
        self._incoming.keep_alive = False

    def drop(self) -> None:
        """Drop all requests, and read no more."""
        self.stopped = True
        for request in (*self.ready, self._taken, self._incoming):
            self._free(request)
        self.ready.clear()
        self._pieces.clear()
        self._gathered = bytearray()
        self._ahead_len = 0

    def close(self) -> None:
        """The connection is closed: drop the parser, too, which refers to this object."""
        self.drop()
        self._parser = None

    def refuse(self, error: FairhitError, *, status: int | None = None) -> None:
        """Make `error` the response to the request being received, and read no more."""
        if self.stopped:
            return
        self.stopped = True
        if not self.receiving:  # the malformed bytes follow a good request
            self._incoming = IncomingRequest(RequestHead())
        elif self._heading is not None:
            head = self._heading.finish()
            self._incoming.lines, head.endpoint = head.lines, endpoint_of(head.target)
        self._incoming.refusal = error.with_traceback(None)  # whose frames refer to this object
        self._incoming.status = status
        self._incoming.keep_alive = False
        self._pieces.clear()
        self._gathered = bytearray()
        self._free(self._incoming)
        self.ready.append(self._incoming)

    # -- requests with a cached head

    def _begin_cached(self, head: RequestHead, body_at: int, length: int, data: bytes) -> bytes:
        """Begin a request whose head is cached; returns what follows it in `data`."""
        incoming = self._incoming = IncomingRequest(head)
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
            self._count(length)
        if not self.stopped:
            self._complete(body)
        return data[end:] if end < len(data) else b""

    def _continue_body(self, data: bytes) -> bytes:
        """Read more of the body after a cached head; returns what follows it in `data`."""
        missing = self._missing
        piece = data if len(data) <= missing else data[:missing]
        self._missing = missing - len(piece)
        self._keep(piece)
        if not self._missing and not self.stopped:
            self._complete(self._joined())
        return data[missing:] if missing < len(data) else b""

    # -- all other requests

    def _feed_parser(self, data: bytes) -> None:
        begun, at_start, whole = self._begun, not self.receiving, data
        self._other_len += len(data)
        while data and not self.stopped:
            data = self._parse(data)
        if self.receiving and self._other_len > MAX_HEAD:  # a head, extensions, or trailers
            self._refuse_head()
        if at_start and not self.stopped and self._begun == begun + 1 and self._heading is None:
            self._cache_head(whole)

    def _parse(self, data: bytes) -> bytes:
        """Parse `data`; returns what is left to parse, which is nothing but after an Upgrade header."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as switch:
            # An upgrade to HTTP/2, which Java's client asks for, is declined by ignoring it (RFC 9110,
            # 7.8). The parser takes the body for another protocol, and is replaced.
            self._parser = httptools.HttpRequestParser(self)
            version = b"1.0" if self._incoming.head.http10 else b"1.1"
            head = b"POST / HTTP/%b\r\n%b\r\n" % (version, self._incoming.head.framing)
            return head + data[switch.args[0] :]
        except httptools.HttpParserError as error:
            self.refuse(BadRequest(f"not a valid HTTP request: {error}"))
        return b""

    def _cache_head(self, data: bytes) -> None:
        """Cache the head that `data` begins with, if the next one may well be the same."""
        incoming = self._incoming
        usual = incoming.keep_alive and incoming.head.framing.startswith(b"content-length")
        if usual and self._keeps_body and not self._is_reparsed and data.startswith(b"POST "):
            self._head_cache.add(data, incoming.head)

    # -- called by httptools

    def on_message_begin(self) -> None:
        if self._is_reparsed:
            return
        self._begun += 1
        self._heading = HeadReader(self._max_body_len)
        self._incoming = IncomingRequest(self._heading.head)
        self.receiving = True
        self._pieces.clear()
        self._body_len = 0

    def on_url(self, url: bytes) -> None:
        if self._heading is not None:
            self._heading.head.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._heading is None:  # a trailer, or parsed again
            return
        try:
            self._heading.add(name, value)
        except FairhitError as error:
            self.refuse(error)

    def on_headers_complete(self) -> None:
        if self._is_reparsed:
            self._is_reparsed = False
            return
        assert self._heading is not None, "a message has begun"
        incoming, head = self._incoming, self._heading.finish()
        expects = self._heading.expects
        self._heading = None
        incoming.lines = head.lines  # also if the request is not admitted
        self._other_len = 0
        head.method = self._parser.get_method()
        version = self._parser.get_http_version()
        head.http10 = version == "1.0"
        self.wants_continue = expects and not head.http10  # RFC 9110, 10.1.1
        if head.http10 or not self._parser.should_keep_alive():
            # HTTP/1.0 has no chunks: a response of unknown length ends with its connection.
            incoming.keep_alive = False
            self._is_last = True
        if self.stopped:
            return
        if len(head.target) + len(head.lines) > MAX_HEAD:  # all of it in one piece
            self._refuse_head()
            return
        if wrong := self._wrong_start(version):
            self.refuse(BadRequest(wrong))
            return
        self._is_reparsed = self._parser.should_upgrade()
        head.endpoint = endpoint_of(head.target)
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
        if self.stopped or self._is_reparsed:
            return
        self._complete(self._joined())

    # -- inside

    def _wrong_start(self, version: str) -> str:
        """The defect of a head that the parser accepts and the gateway does not; empty if there is none."""
        head = self._incoming.head
        if head.method == b"CONNECT":
            return "the gateway is no tunnel"
        if version not in {"1.1", "1.0"}:
            return "only HTTP/1.1 and HTTP/1.0 are supported"
        if head.http10 and head.framing.startswith(b"transfer-encoding"):
            return "HTTP/1.0 has no Transfer-Encoding"
        return check_host(head)

    def _refuse_head(self) -> None:
        self.refuse(TooLarge(f"the headers are longer than {MAX_HEAD} bytes"), status=431)

    def _keep(self, piece: bytes | memoryview) -> None:
        """Append a piece to the body; its length has been checked."""
        if self._keeps_body and not self.stopped:
            if self._gathered:
                self._gathered += piece
            else:
                self._pieces.append(piece)
                if self._incoming.held > STEP or len(self._pieces) >= _MAX_PIECES:
                    for one in self._pieces:
                        self._gathered += one
                    self._pieces.clear()
            self._count(len(piece))

    def _joined(self) -> Body:
        """The body received in pieces."""
        if self._gathered:
            body, self._gathered = self._gathered, bytearray()
            return body
        return b"".join(self._pieces)

    def _complete(self, body: Body) -> None:
        """The request being received is complete."""
        self.receiving = False
        self._other_len = 0
        self._incoming.body = body
        self._pieces.clear()
        self.ready.append(self._incoming)
        self._ahead_len += len(body)
        if self._is_last:  # what follows is no request
            self.stopped = True
        too_much = len(self.ready) > 1 and self._ahead_len > self._max_body_len
        if too_much or len(self.ready) > _MAX_AHEAD:
            self._incoming.keep_alive = False
            self.stopped = True

    def _count(self, length: int) -> None:
        """Count `length` more bytes of the request being received."""
        if length:
            incoming = self._incoming
            incoming.held += length
            full = self._body_budget.add(incoming.client, length, most=self._max_body_len)
            if full is not None:
                self.refuse(full)

    def _free(self, request: IncomingRequest) -> None:
        """Stop counting the body of `request`."""
        if request.held:
            self._body_budget.remove(request.client, request.held)
            request.held = 0

"""Requests as they come off the wire: one reader per connection, headers looked at once, by name.

What is wrong with a request becomes its `refusal`, to be answered when its turn comes. Every header
the gateway has no use for is kept as it came.
"""

from collections import deque

import httptools

from fairlead.errors import BadRequest, FairleadError, TooLarge
from fairlead.gateway.identity import TENANT_HEADERS

# As uvicorn and nginx: generous for keys and traces, small enough to hold ten thousand of.
MAX_HEAD = 64 << 10
# Requests a connection may send ahead of their answers; HTTP clients of today send none. Beyond it
# the rest is not read, and the connection closes once these are answered (RFC 9112, 9.3.2).
_MAX_AHEAD = 32
_AUTHORIZATION, _TENANT, _DROPPED, _LENGTH, _EXPECT = range(5)
# Not passed on: what belongs to one connection, what the gateway sets, and compression, because the
# answer is read on its way. Every other header is passed on as it came.
_HEADERS: dict[bytes, int] = {
    b"authorization": _AUTHORIZATION,
    **dict.fromkeys(TENANT_HEADERS, _TENANT),
    **dict.fromkeys(
        (b"host", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"te", b"trailer"),
        _DROPPED,
    ),
    **dict.fromkeys(
        (b"connection", b"upgrade", b"accept-encoding", b"proxy-authorization"), _DROPPED
    ),
    b"content-length": _LENGTH,
    b"expect": _EXPECT,
}


class Incoming:
    """One request as it came; `refusal` if it need not be looked at further."""

    __slots__ = (
        "authorization", "body", "http10", "keep_alive", "lines", "method", "refusal", "status",
        "target", "tenant", "tenant_rank",
    )  # fmt: skip

    def __init__(self) -> None:
        self.method = self.target = self.body = b""
        self.lines: list[bytes] = []
        self.authorization = self.tenant = b""
        self.tenant_rank = len(TENANT_HEADERS)
        self.http10 = False
        self.keep_alive = True
        self.refusal: FairleadError | None = None
        self.status: int | None = None


class RequestReader:
    """Turns bytes into requests, in order; `ready` holds those whose turn has not come."""

    def __init__(self, *, max_body_len: int) -> None:
        self.ready: deque[Incoming] = deque()
        self.receiving = False  # a request has begun to arrive and is not complete
        self.deaf = False  # whatever else comes is not read
        self.wants_continue = False
        self._max_body_len = max_body_len
        self._parser = httptools.HttpRequestParser(self)
        self._incoming = Incoming()
        self._in_head = False
        self._head_len = 0
        self._pieces: list[bytes] = []
        self._body_len = 0
        self._ahead_len = 0

    def feed(self, data: bytes) -> None:
        """Read `data`; nothing is raised."""
        if self.deaf:
            return
        if self._in_head or not self.receiving:
            self._head_len += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.refuse(BadRequest("the gateway speaks HTTP/1.1 only"))
        except httptools.HttpParserError as error:
            self.refuse(BadRequest(f"not a valid HTTP request: {error}"))
        if self._in_head and self._head_len > MAX_HEAD:
            self.refuse(TooLarge(f"the headers are longer than {MAX_HEAD} bytes"), status=431)

    def take(self) -> Incoming:
        """The request whose turn it is."""
        request = self.ready.popleft()
        self._ahead_len -= len(request.body)
        return request

    def refuse(self, error: FairleadError, *, status: int | None = None) -> None:
        """Answer `error` to what is arriving, and read no more of this connection."""
        if self.deaf:
            return
        self.deaf = True
        self._incoming.refusal = error
        self._incoming.status = status
        self._incoming.keep_alive = False
        self._pieces.clear()
        self.ready.append(self._incoming)

    # -- from the parser

    def on_message_begin(self) -> None:
        self._incoming = Incoming()
        self._in_head = self.receiving = True
        self._pieces.clear()
        self._body_len = 0

    def on_url(self, url: bytes) -> None:
        self._incoming.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:  # a trailer
            return
        lowered = name.lower()
        rule = _HEADERS.get(lowered)
        if rule is None:
            self._incoming.lines.append(name + b": " + value + b"\r\n")
        elif rule != _DROPPED:
            self._note_header(rule, lowered, value)

    def on_headers_complete(self) -> None:
        incoming = self._incoming
        self._in_head = False
        self._head_len = 0
        incoming.method = self._parser.get_method()
        incoming.http10 = self._parser.get_http_version() == "1.0"
        if incoming.http10 or not self._parser.should_keep_alive():
            # HTTP/1.0 has no chunks: an answer of unknown length ends with its connection.
            incoming.keep_alive = False

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._body_len += len(body)
        if self._body_len > self._max_body_len:
            self._refuse_body()

    def on_message_complete(self) -> None:
        if self.deaf:
            return
        self.receiving = False
        self._incoming.body = b"".join(self._pieces)
        self._pieces.clear()
        self.ready.append(self._incoming)
        self._ahead_len += self._body_len
        too_much = len(self.ready) > 1 and self._ahead_len > self._max_body_len
        if too_much or len(self.ready) > _MAX_AHEAD:
            self._incoming.keep_alive = False
            self.deaf = True

    # -- inside

    def _note_header(self, rule: int, name: bytes, value: bytes) -> None:
        incoming = self._incoming
        if rule == _AUTHORIZATION:
            if incoming.authorization:
                self.refuse(BadRequest("more than one Authorization header"))
            incoming.authorization = value
        elif rule == _TENANT:
            rank = TENANT_HEADERS.index(name)
            if rank < incoming.tenant_rank:
                incoming.tenant, incoming.tenant_rank = value, rank
        elif rule == _LENGTH:
            # The parser has checked that it is a number, or will refuse it.
            if value.isdigit() and int(value[:20]) > self._max_body_len:
                self._refuse_body()
        elif rule == _EXPECT:
            self.wants_continue = True

    def _refuse_body(self) -> None:
        self.refuse(TooLarge(f"the body is longer than {self._max_body_len} bytes"))

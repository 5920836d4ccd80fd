"""Parser of engines' responses: one response at a time, passed on to a listener as it is received."""

from typing import Protocol

import httptools

from fairhit.gateway.http.response_head import ResponseHead

# Headers that belong to one connection (RFC 9110, 7.6.1), or that the framing towards the client
# replaces. Headers named by `connection` are dropped, too.
_DROPPED = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"upgrade", b"trailer")
)
_USUAL_CONNECTION = (b"keep-alive", b"close")
# Bytes up to the end of the head, interim responses (100 Continue) included: far more than any engine
# sends.
_MAX_HEAD = 256 << 10
_FIRST_STATUS = 100


class ResponseListener(Protocol):
    """Receives the parts of one response; after `on_end` or `on_lost` no call follows."""

    def on_head(self, head: ResponseHead) -> None:
        """Take status and headers."""
        ...

    def on_data(self, data: bytes) -> None:
        """Take the next piece of the body."""
        ...

    def on_end(self) -> None:
        """The response is complete."""
        ...

    def on_lost(self, *, stale: bool) -> None:
        """The connection broke; `stale`: the engine had probably closed it while it was idle."""
        ...


class ResponseParser:
    """Parses responses and passes head and body to `listener`, which may reset itself to None at any call.

    `is_complete` and `is_broken` are the result; the connection reacts to them.
    """

    def __init__(self) -> None:
        self.listener: ResponseListener | None = None
        self.head = ResponseHead()  # valid once `has_head`
        self._parser = httptools.HttpResponseParser(self)
        self.reset()

    def reset(self) -> None:
        """Begin the next response."""
        self.has_head = self.has_data = self.is_complete = False
        # Not HTTP, or valid HTTP that cannot be the response to one request.
        self.is_broken = False
        self._passed_head = False
        self._pieces: list[bytes] = []
        self._head_len = 0
        self._of_connection = b""  # names listed by unusual Connection headers

    def close(self) -> None:
        """Drop httptools' parser: parser and protocol refer to each other."""
        self._parser = None

    def feed(self, data: bytes) -> None:
        """Parse `data` and pass its parts to the listener. O(data)."""
        self.has_data = True
        if not self.has_head:
            self._head_len += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.is_broken = True  # the gateway asks for no other protocol
        if self._head_len > _MAX_HEAD and not self.has_head:
            self.is_broken = True
        if self.is_broken:
            return
        if self.has_head and not self._passed_head:
            self._passed_head = True
            if self.listener is not None:
                self.listener.on_head(self.head)
        if self._pieces and self.listener is not None:
            piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            self.listener.on_data(piece)

    def end_of_connection(self) -> bool:
        """The engine closed the connection: True if that completes the response (no length was given)."""
        self.is_complete = self.has_head and not self.head.framed and not self.is_broken
        return self.is_complete

    # -- called by httptools, which must not be re-entered: parts are passed on once it has returned

    def on_message_begin(self) -> None:
        # A second response to one request: which of them is meant cannot be known.
        self.is_broken |= self.is_complete
        self.head = ResponseHead()  # the one before was that of an interim response

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.has_head:  # a trailer
            return
        lowered = name.lower()
        if lowered == b"content-type":
            self.head.content_type = value.lower()
        elif lowered in _DROPPED:
            if lowered in {b"content-length", b"transfer-encoding"}:
                self.head.framed = True
            elif lowered == b"connection" and value.lower() not in _USUAL_CONNECTION:
                self._of_connection += b"," + value.lower()
            return
        elif lowered == b"date":
            self.head.dated = True
        self.head.lines.append(name + b": " + value + b"\r\n")

    def on_headers_complete(self) -> None:
        self.head.status = self._parser.get_status_code()
        self.is_broken |= self.head.status < _FIRST_STATUS
        self.head.keep_alive = self._parser.should_keep_alive()
        if self._of_connection:
            self._drop_of_connection()
        if self.head.status >= 200:
            self.has_head = True

    def on_body(self, data: bytes) -> None:
        if self.has_head:  # else the body of an interim response, which has none
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        self.is_complete = self.has_head  # else an interim response

    def _drop_of_connection(self) -> None:
        """Drop the headers that the engine's Connection header names."""
        names = {name.strip(b" \t") for name in self._of_connection.split(b",")}
        self._of_connection = b""
        head = self.head
        head.lines = [line for line in head.lines if line.partition(b":")[0].lower() not in names]
        head.dated = head.dated and b"date" not in names

"""Answers as they come off an engine's connection, told to whoever asked.

An answer that opens like the one before from its engine, and comes whole or in whole chunks, passes
without a parser (`repeated`, `chunks`). All others are the parser's, from their first byte.
"""

import asyncio
from typing import Protocol

import httptools

from fairlead.gateway.at_once import SHORT
from fairlead.gateway.chunks import one_chunk, whole_chunks
from fairlead.gateway.repeated import Remembered, RepeatedHead
from fairlead.gateway.turns import Reads, Turns

# Headers that belong to one connection (RFC 9110, 7.6.1), or that the framing to the caller replaces.
# Those that `connection` names do, too.
_DROPPED = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"upgrade", b"trailer")
)
_USUAL_CONNECTION = (b"keep-alive", b"close")
# Answers without a body, whatever their headers say (RFC 9110, 15.3.5 and 15.4.5).
BODILESS = frozenset((204, 304))
# Bytes before the head of an answer is complete, with all that are only a 100 Continue: far more than
# any engine has to say there.
_MAX_HEAD = 256 << 10
_FIRST_STATUS = 100


class Listener(Protocol):
    """Hears about one request to an engine; after `on_end` or `on_lost` nothing more comes."""

    def on_head(self, head: "Head") -> None:
        """Status and headers."""
        ...

    def on_data(self, data: bytes) -> None:
        """A piece of the body."""
        ...

    def on_end(self) -> None:
        """The answer is complete."""
        ...

    def on_lost(self, *, stale: bool) -> None:
        """The connection broke; `stale`: an idle one that the engine had closed meanwhile."""
        ...


class Head:
    """Status line and headers of an answer; many answers may share one."""

    __slots__ = ("content_type", "dated", "framed", "keep_alive", "lines", "opening", "status")

    def __init__(self) -> None:
        self.status = 0
        self.lines: list[bytes] = []  # as they came, those of the connection left out
        self.opening = b""  # both as a caller gets them, once one has
        self.content_type = b""
        self.dated = False  # says when it was made
        self.framed = False  # says where its body ends
        self.keep_alive = False


class AnswerReader(asyncio.Protocol):
    """Reads one answer at a time and tells `_listener`; what its end means is for a subclass.

    `openings` are how answers of this engine opened last: those in one piece, and streams.
    """

    def __init__(
        self, openings: tuple[Remembered[Head], Remembered[Head]], turns: Turns | None = None
    ) -> None:
        self._openings = openings
        self._reads = Reads(turns or Turns(), self.data_received)
        self._late = self._reads.late
        self._listener: Listener | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._head = Head()  # means nothing before `_has_head`
        self._reset()

    def _reset(self) -> None:
        self._unparsed = b""  # the head of an answer that the parser has seen nothing of
        self._pieces: list[bytes] = []
        self._heard = self._has_head = self._told_head = self._complete = False
        self._broken = False  # the parser takes it for HTTP, and yet it is no answer to one request
        self._head_len = 0
        self._of_connection = b""  # what its Connection headers list, where that is unusual

    def abort(self) -> None:
        """Close, and tell nobody."""
        raise NotImplementedError

    def _finish(self) -> None:
        """The answer is complete."""
        raise NotImplementedError

    def _lose(self) -> None:
        """What came is no answer."""
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        if (len(data) > SHORT or self._late) and self._reads.put_off(data):
            return
        listener = self._listener
        if listener is None:  # bytes nobody asked for
            self.abort()
            return
        if self._unparsed and (piece := one_chunk(data)):
            listener.on_data(piece)
            return
        opens = not self._heard
        self._heard = True
        if opens:
            if self._hear_known(data):
                return
        elif self._unparsed and self._hear_chunks(data):
            return
        if not self._has_head:
            self._head_len += len(data)
        try:
            self._parse(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._broken = True  # we ask for no other protocol
        if self._broken or (self._head_len > _MAX_HEAD and not self._has_head):
            self._lose()
            return
        if opens and self._has_head:
            self._learn(data)
        self._tell()

    def _tell(self) -> None:
        """Pass on what came. The listener may cancel at any step, and is then not told more."""
        if self._has_head and not self._told_head:
            self._told_head = True
            if self._listener is not None:
                self._listener.on_head(self._head)
        if self._pieces and self._listener is not None:
            data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            self._listener.on_data(data)
        if self._complete and self._listener is not None:
            self._finish()

    # -- without the parser

    def _learn(self, data: bytes) -> None:
        """`data` opened the answer that the parser has made a head of."""
        head = self._head
        usual = head.status == 200 and head.framed and head.keep_alive
        if usual and data.startswith(b"HTTP/1.1 200 "):
            is_stream = head.content_type.startswith(b"text/event-stream")
            self._openings[is_stream].learn(data, head)

    def _hear_known(self, data: bytes) -> bool:
        """Tell of an answer whose head is known, and of as much as came; False: it is not known."""
        for remembered in self._openings:
            known, head = remembered.head, remembered.meaning
            if known is not None and head is not None:
                at = known.body_at(data)
                if at:
                    return self._hear_answer(known, head, data, at)
        return False

    def _hear_answer(self, known: RepeatedHead, head: Head, data: bytes, at: int) -> bool:
        """The same with the body from `at` on; False: it is the parser's to read."""
        if not known.chunked:
            if known.length(data, at) != len(data) - at:
                return False
            self._head = head
            self._tell_all(data[at:], is_complete=True)
            return True
        came = whole_chunks(data[at:]) if at < len(data) else (b"", False)
        if came is None:
            return False
        self._head = head
        self._unparsed = data[:at]
        self._tell_all(came[0], is_complete=came[1])
        return True

    def _hear_chunks(self, data: bytes) -> bool:
        """Tell of more chunks of such an answer; False: they are the parser's to read."""
        came = whole_chunks(data)
        if came is None:
            return False
        piece, is_last = came
        if is_last:
            self._tell_all(piece, is_complete=True)
        elif self._listener is not None:
            self._listener.on_data(piece)
        return True

    def _tell_all(self, body: bytes, *, is_complete: bool) -> None:
        self._has_head = True
        self._complete = is_complete
        if body:
            self._pieces.append(body)
        self._tell()

    def _parse(self, data: bytes) -> None:
        """Have the parser read `data`, and what it has not seen before it."""
        if self._unparsed:
            head, self._unparsed = self._unparsed, b""
            self._has_head = False  # or its headers would be taken for trailers
            self._parser.feed_data(head)
        self._parser.feed_data(data)

    # -- from the parser; what they gather is told once the parser has returned

    def on_message_begin(self) -> None:
        # A second answer to one request: nobody can tell which is meant, or whose the rest will be.
        self._broken |= self._complete
        self._head = Head()  # the one before may be shared, or that of a 100 Continue or its like

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:  # a trailer
            return
        lowered = name.lower()
        if lowered == b"content-type":
            self._head.content_type = value.lower()
        elif lowered in _DROPPED:
            if lowered in {b"content-length", b"transfer-encoding"}:
                self._head.framed = True
            elif lowered == b"connection" and value.lower() not in _USUAL_CONNECTION:
                self._of_connection += b"," + value.lower()
            return
        elif lowered == b"date":
            self._head.dated = True
        self._head.lines.append(name + b": " + value + b"\r\n")

    def on_headers_complete(self) -> None:
        self._head.status = self._parser.get_status_code()
        self._broken |= self._head.status < _FIRST_STATUS
        self._head.keep_alive = self._parser.should_keep_alive()
        if self._of_connection:
            self._drop_of_connection()
        if self._head.status >= 200:
            self._has_head = True

    def _drop_of_connection(self) -> None:
        """What the engine says is of this connection goes no further."""
        names = {name.strip(b" \t") for name in self._of_connection.split(b",")}
        self._of_connection = b""
        head = self._head
        head.lines = [line for line in head.lines if line.partition(b":")[0].lower() not in names]
        head.dated = head.dated and b"date" not in names

    def on_body(self, data: bytes) -> None:
        if self._has_head:  # or it belongs to a 1xx, which has none
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._complete = self._has_head  # or it was a 100 Continue or its like

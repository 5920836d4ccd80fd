"""What an engine's answer says: tokens used and text, read while the bytes pass by.

Only the event with the usage is parsed; the others are counted and their text is cut out. A partial
event is held until the rest of it comes, since the caller could not read it either, and so is what an
engine says before it has taken the request in. The events of a stream differ in nothing but their text:
one that begins and ends like one before is not searched. An event longer than `STEP` is not read: it
passes as it comes, its length stands for its text, and only its end is searched, for the usage.
"""

import logging
import re
from typing import Any, Final

import orjson

from fairhit.dispatch import Usage
from fairhit.dispatch.accounting.token_scale import TokenScale
from fairhit.gateway.api.endpoints.endpoint import Endpoint
from fairhit.gateway.api.endpoints.usage import last_usage
from fairhit.gateway.http.read_budget import ITERATION, SHORT, STEP

_log = logging.getLogger(__name__)

_USAGE = re.compile(rb'"usage": *\{')
_END = re.compile(rb"\r\n\r\n|\n\n")  # of an event; a stream may have both
_END_LEN: Final = 4
# As numbers: to look for one in bytes costs a tenth of what looking for bytes does.
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
# Answers are remembered up to here for the prefix index.
_MAX_TEXT: Final = ITERATION
# The end of an event that is not read, where its usage is.
_LAST_LEN: Final = 16 << 10
# Of an answer in one piece: a list of many costs more than the bytes in them.
_MAX_PIECES: Final = 64
# Events of a stream that are looked at for what its events have in common. The first and the last
# are of other shapes; where each has a shape of its own, looking costs more than it saves.
_MAX_LOOKS = 6
# Where the text says so many times more tokens than there were events, each brought several. Less than
# that may be a text whose tokens are long.
_SEVERAL = 2


class StreamedResponse:
    """Server-sent events, forwarded byte for byte except a usage event the caller did not ask for."""

    __slots__ = (
        "_after",
        "_before",
        "_begin",
        "_end",
        "_endpoint",
        "_find",
        "_greets",
        "_held",
        "_hide_usage",
        "_is_long",
        "_long_len",
        "_looks",
        "_other_len",
        "_pieces",
        "_said",
        "_tail",
        "_text_len",
        "_thoughts",
        "_used",
        "output_len",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, *, hide_usage: bool) -> None:
        self._endpoint = endpoint
        self._find = endpoint.stream_format.find
        self._said = endpoint.stream_format.answer_kinds
        self._greets = endpoint.stream_format.is_preamble  # None: it has said more than that
        self._held = b""  # while it greets
        self._hide_usage = hide_usage
        self._tail = bytearray()  # the beginning of an event, or the end so far of one that is long
        self._is_long = False
        # An event around its text, and where the text is; 0: none is known.
        self._before = self._after = b""
        self._begin = self._end = 0
        self._looks = _MAX_LOOKS
        self._pieces: list[bytes] = []
        self._text_len = 0
        self._other_len = 0  # of thoughts, and of tools' arguments
        self._long_len = 0  # of events that are not read
        self._thoughts = b""  # the name they come under
        self.output_len = 0  # events with text, a lower bound of tokens, until usage says more
        self._used: Usage | None = None

    @property
    def usage(self) -> Usage | None:
        """What the engine said, None if it did not. An event that begins a stream knows the prompt
        alone: if no other came, what was counted stands for the rest.
        """
        used = self._used
        if used is not None and not used.output_len:
            return used._replace(output_len=self.output_len)
        return used

    def counted(self, scale: TokenScale, *, most: int) -> int:
        """Outputs of a stream that ends here, at least: by its events, or by the length of its text where
        that says far more, since engines may put several tokens in an event. What it reports goes before.
        Events that are not read have no more than the `most` that were asked for: they may repeat the prompt.
        """
        if self._used is None or not self._used.output_len:
            by_text = scale.tokens(self._text_len + self._other_len)
            by_text += min(scale.tokens(self._long_len), most)
            if by_text > _SEVERAL * self.output_len:
                self.output_len = by_text
        return self.output_len

    def feed(self, data: bytes) -> bytes:
        """What of `data`, and of what was held before it, goes to the caller now."""
        begin = self._begin
        if (
            begin
            and data.startswith(self._before)
            and data.endswith(self._after)
            and len(data) >= begin - self._end  # or the two have bytes in common
            and not self._tail
        ):
            text = data[begin : self._end]
            # Of these two a text's own end could be made of.
            if text and _QUOTE not in text and text[-1] != _BACKSLASH:
                self._say(text)
                return data
        return self._search(data)

    def _search(self, data: bytes) -> bytes:
        """The same for data of any shape."""
        if self._is_long:
            passed, data = self._more_of_long(data)
            return passed + self._search(data) if data else passed
        data = self._whole_events(data)
        if data:
            data = self._read(data)
        # A preamble is compared once, which is quick, before it is given up.
        most = STEP if self._greets is None else ITERATION
        return data + self._begin_long() if len(self._tail) > most else data

    def _read(self, data: bytes) -> bytes:
        """The same for whole events."""
        if self._greets is not None and not (data := self._after_greeting(data)):
            return b""
        found = self._find(data)
        self._count(found)
        if _USAGE.search(data):
            return self._read_usage(data)
        if self._looks and len(found) == 1:
            self._look(data, *found[0])
        return data

    def _whole_events(self, data: bytes) -> bytes:
        """The events that `data` completes; what follows them is held. O(data), however it was cut."""
        tail = self._tail
        if not tail:
            end = _end_of_last(data, 0)
            if end < len(data):
                tail += data[end:]
                data = data[:end]
            return data
        begin = max(0, len(tail) - _END_LEN + 1)
        tail += data
        end = _end_of_last(tail, begin)
        whole = bytes(tail[:end])
        del tail[:end]
        return whole

    def _begin_long(self) -> bytes:
        """All that was held, now that the event it begins is too long to be read."""
        tail = self._tail
        held, self._held = self._held + bytes(tail), b""
        self._greets = None
        self._is_long = True
        self._long_len += len(tail)
        self.output_len += 1
        del tail[:-_LAST_LEN]
        return held

    def _more_of_long(self, data: bytes) -> tuple[bytes, bytes]:
        """What of `data` belongs to the event that is not read, and what follows it."""
        tail, before = self._tail, len(self._tail)
        tail += data
        ends = _END.search(tail, max(0, before - _END_LEN + 1))
        if ends is None:
            self._long_len += len(data)
            del tail[:-_LAST_LEN]
            return data, b""
        length = ends.end() - before
        self._long_len += length
        usage = last_usage(bytes(tail[: ends.end()]))
        if usage is not None:
            self._use({"usage": usage})
        tail.clear()
        self._is_long = False
        return data[:length], data[length:]

    def _after_greeting(self, data: bytes) -> bytes:
        """`data`, and the greeting that was held before it; nothing while that is all.

        Or an engine that greets at once would have begun to answer, with the request still in its queue.
        """
        data, self._held = self._held + data, b""
        if len(data) <= ITERATION and self._greets is not None and self._greets(data):
            self._held = data
            return b""
        self._greets = None
        return data

    def _say(self, text: bytes) -> None:
        self._text_len += len(text)
        if self._text_len <= _MAX_TEXT:
            self._pieces.append(text)
        else:
            self._pieces.clear()
        self.output_len += 1

    def _look(self, data: bytes, name: bytes, text: bytes) -> None:
        """Remember the shape of `data`, which says this, if it is one event."""
        if name not in self._said or not text or data.find(b"\n\n") != len(data) - 2:
            return
        self._looks -= 1
        quoted = b'"%b"' % text
        at = data.find(quoted, data.find(b'"%b":' % name) + len(name) + 3) + 1
        before, after = data[:at], data[at + len(text) :]
        if at and after[1:2] in b",}" and self._find(before + b"x" + after) == [(name, b"x")]:
            self._before, self._after = before, after
            self._begin, self._end = at, -len(after)

    def rest(self) -> bytes:
        """What was held of an event that never ended. A greeting alone is no answer: nothing then."""
        if not self._tail or self._is_long:
            return b""
        held, self._held = self._held + bytes(self._tail), b""
        self._tail.clear()
        return held

    def text(self) -> str | None:
        """The answer's text; None if it was too long to keep."""
        if self._text_len > _MAX_TEXT:
            return None
        try:
            return str(orjson.loads(b'"' + b"".join(self._pieces) + b'"'))
        except orjson.JSONDecodeError:  # an engine that cuts a surrogate pair in two
            return None

    def _count(self, found: list[tuple[bytes, bytes]]) -> None:
        for name, piece in found:
            if not piece:
                continue
            if name in self._said:
                self._say(piece)
            elif not self._is_repeated(name):
                self._other_len += len(piece)
                self.output_len += 1

    def _is_repeated(self, name: bytes) -> bool:
        """Some versions of vLLM write each thought twice, under its old and its new name."""
        if name not in self._endpoint.stream_format.reasoning_kinds:
            return False
        self._thoughts = self._thoughts or name
        return name != self._thoughts

    def _read_usage(self, data: bytes) -> bytes:
        kept: list[bytes] = []
        for event in _events(data):
            if _USAGE.search(event):
                document = _document_of(event)
                is_used = self._use(document)
                if is_used and self._hide_usage and document.get("choices") == []:
                    continue
            kept.append(event)
        return b"".join(kept)

    def _use(self, document: dict[str, Any]) -> bool:
        """Whether the event says what was used; it is kept."""
        used = self._endpoint.read_usage(document)
        if used is None:
            return False
        self._used = used if used.prompt_len else _after(self._used, used)
        # Some report it with every event: whoever leaves has had that much.
        self.output_len = max(self.output_len, used.output_len)
        return True


class WholeResponse:
    """An answer in one piece. It is held back until it is complete, so that it can be retried."""

    __slots__ = ("_joined", "_pieces", "length")

    def __init__(self) -> None:
        self._joined: list[bytes] = []
        self._pieces: list[bytes] = []
        self.length = 0

    def feed(self, data: bytes) -> None:
        """Keep `data`."""
        self._pieces.append(data)
        self.length += len(data)
        if len(self._pieces) >= _MAX_PIECES:
            self._joined.append(b"".join(self._pieces))
            self._pieces.clear()

    def body(self) -> bytes:
        """All of it. O(answer): of one that is long, `pieces` are to be had without a copy."""
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes]:
        """All of it, as it came."""
        return self._joined + self._pieces


def read_whole(endpoint: Endpoint, body: bytes) -> tuple[Usage | None, str | None]:
    """Usage and text of a completed answer; None where it does not say."""
    try:
        if endpoint.scan_usage is not None:
            return endpoint.scan_usage(body), None
        document = _loads(body)
        text = endpoint.read_text(document) if endpoint.read_text is not None else None
        return endpoint.read_usage(document), text
    except Exception as error:  # noqa: BLE001 - our bug, but the accounts must be settled
        _log.error("reading the usage of an answer: %s: %s", type(error).__name__, error)
        return None, None


def read_end(endpoint: Endpoint, pieces: list[bytes]) -> Usage | None:
    """Usage of a long answer, if it is in the last mebibyte; no more is read. O(ITERATION)."""
    length = 0
    end: list[bytes] = []
    for piece in reversed(pieces):
        if length >= ITERATION:
            break
        end.append(piece)
        length += len(piece)
    try:
        return endpoint.read_usage({"usage": last_usage(b"".join(reversed(end)))})
    except Exception as error:  # noqa: BLE001 - our bug, but the accounts must be settled
        _log.error("reading the usage of an answer: %s: %s", type(error).__name__, error)
        return None


def _after(before: Usage | None, used: Usage) -> Usage:
    """`used`, and what an earlier event of the stream said about the prompt."""
    return used if before is None else before._replace(output_len=used.output_len)


def _end_of_last(data: bytes | bytearray, begin: int) -> int:
    """Where the last whole event ends, if that is behind `begin`, else 0. O(data behind `begin`)."""
    end = data.rfind(b"\n\n", begin) + 2
    if end < 2:
        end = 0
    other = data.rfind(b"\r\n\r\n", max(begin, end))
    return other + 4 if other >= 0 else end


def _events(data: bytes) -> list[bytes]:
    """The events in `data`, each with its end. O(data)."""
    ends = [found.end() for found in _END.finditer(data)]
    if not ends or ends[-1] < len(data):
        ends.append(len(data))
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _document_of(event: bytes) -> dict[str, Any]:
    """An event's data, where its name may come first; of a long one its usage alone."""
    if len(event) > SHORT:
        return {"usage": last_usage(event)}
    at = 0 if event.startswith(b"data:") else event.find(b"\ndata:") + 1
    return _loads(event[at + 5 :])


def _loads(data: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}

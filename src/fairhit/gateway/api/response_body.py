"""Response bodies: usage and answer text, extracted while the bytes are passed on.

Only the event with the usage is parsed; other events are counted and their text is cut out. A partial event
is held until it is complete, since the client could not read it either, and so are preamble events, which
engines send before a request is in their queue. Most events of a stream differ in nothing but their text:
one that begins and ends like a known one is not searched, which halves the cost of a stream. An event
longer than `STEP` is not searched: it is passed on as received, its length stands for its text, and only
its end is searched for the usage.
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
_END = re.compile(rb"\r\n\r\n|\n\n")  # of an event; a stream may contain both
_END_LEN: Final = 4
# As numbers: searching bytes for a number costs a tenth of searching for bytes.
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
# Answer text is kept up to this length for the prefix index.
_MAX_TEXT: Final = ITERATION
# The end of a long event, where its usage is.
_LAST_LEN: Final = 16 << 10
# Pieces of a response in a list: a list of many costs more than the bytes in them.
_MAX_PIECES: Final = 64
# Events of a stream whose shape is learned. The first and the last have other shapes; where each event has
# a shape of its own, learning costs more than it saves.
_MAX_LEARNED = 6
# If the text has this many times more tokens than there were events, events have several tokens each. A
# smaller ratio may be a text of long tokens.
_SEVERAL = 2


class StreamedResponse:
    """Server-sent events, passed on byte for byte except a usage event that the client did not ask for."""

    __slots__ = (
        "_after", "_answer_kinds", "_before", "_begin", "_end", "_endpoint", "_find", "_held",
        "_hide_usage", "_is_long", "_is_preamble", "_learns_left", "_long_len", "_other_len", "_pieces",
        "_reasoning_kind", "_tail", "_text_len", "_used", "output_len",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, *, hide_usage: bool) -> None:
        self._endpoint = endpoint
        self._find = endpoint.stream_format.find
        self._answer_kinds = endpoint.stream_format.answer_kinds
        self._is_preamble = endpoint.stream_format.is_preamble  # None: the preamble is over
        self._held = b""  # the preamble so far
        self._hide_usage = hide_usage
        self._tail = bytearray()  # the beginning of an event, or the end so far of a long one
        self._is_long = False
        # Bytes before and after the text of a known event, and where the text is; 0: none is known.
        self._before = self._after = b""
        self._begin = self._end = 0
        self._learns_left = _MAX_LEARNED
        self._pieces: list[bytes] = []
        self._text_len = 0
        self._other_len = 0  # of reasoning, and of arguments of tools
        self._long_len = 0  # of long events
        self._reasoning_kind = b""  # the first field name it was sent under
        self.output_len = 0  # events with text, a lower bound of tokens, until usage is reported
        self._used: Usage | None = None

    @property
    def usage(self) -> Usage | None:
        """Usage reported by the engine, None without a report. The first event of a stream reports the
        prompt alone: without another report the counted outputs are taken.
        """
        used = self._used
        if used is not None and not used.output_len:
            return used._replace(output_len=self.output_len)
        return used

    def counted(self, scale: TokenScale, *, most: int) -> int:
        """Lower bound of the outputs of a stream that ends here, unless reported: the number of its events,
        or the tokens of its text if those are far more, since an event may have several tokens. Long events
        count `most` tokens, the limit of the request, at most: they may repeat the prompt.
        """
        if self._used is None or not self._used.output_len:
            by_text = scale.tokens(self._text_len + self._other_len)
            by_text += min(scale.tokens(self._long_len), most)
            if by_text > _SEVERAL * self.output_len:
                self.output_len = by_text
        return self.output_len

    def feed(self, data: bytes) -> bytes:
        """Bytes of `data`, and of what was held before, that are passed on now. O(data)."""
        begin = self._begin
        if (
            begin
            and data.startswith(self._before)
            and data.endswith(self._after)
            and len(data) >= begin - self._end  # else before and after overlap
            and not self._tail
        ):
            text = data[begin : self._end]
            # With one of these two the text could end earlier.
            if text and _QUOTE not in text and text[-1] != _BACKSLASH:
                self._add_text(text)
                return data
        return self._search(data)

    def _search(self, data: bytes) -> bytes:
        """`feed` for data of any shape."""
        if self._is_long:
            passed, data = self._more_of_long(data)
            return passed + self._search(data) if data else passed
        data = self._whole_events(data)
        if data:
            data = self._read(data)
        # A preamble may be longer: it is only matched once.
        most = STEP if self._is_preamble is None else ITERATION
        return data + self._begin_long() if len(self._tail) > most else data

    def _read(self, data: bytes) -> bytes:
        """`feed` for complete events."""
        if self._is_preamble is not None and not (data := self._after_preamble(data)):
            return b""
        found = self._find(data)
        self._count(found)
        if _USAGE.search(data):
            return self._read_usage(data)
        if self._learns_left and len(found) == 1:
            self._learn_shape(data, *found[0])
        return data

    def _whole_events(self, data: bytes) -> bytes:
        """Events that `data` completes; the rest is held. O(data), however the stream was cut."""
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
        """Bytes held so far, now that the event is too long to be held or searched."""
        tail = self._tail
        held, self._held = self._held + bytes(tail), b""
        self._is_preamble = None
        self._is_long = True
        self._long_len += len(tail)
        self.output_len += 1
        del tail[:-_LAST_LEN]
        return held

    def _more_of_long(self, data: bytes) -> tuple[bytes, bytes]:
        """Split `data` at the end of the long event."""
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

    def _after_preamble(self, data: bytes) -> bytes:
        """The preamble events held before, and `data`; nothing while there are only preamble events.

        Passed on at once, they would mark a request as started that is still in the engine's queue.
        """
        data, self._held = self._held + data, b""
        if len(data) <= ITERATION and self._is_preamble is not None and self._is_preamble(data):
            self._held = data
            return b""
        self._is_preamble = None
        return data

    def _add_text(self, text: bytes) -> None:
        """Add the text of one event to the answer."""
        self._text_len += len(text)
        if self._text_len <= _MAX_TEXT:
            self._pieces.append(text)
        else:
            self._pieces.clear()
        self.output_len += 1

    def _learn_shape(self, data: bytes, name: bytes, text: bytes) -> None:
        """Learn the bytes around `text` in `data`, if that is one event with one piece of answer text."""
        if name not in self._answer_kinds or not text or data.find(b"\n\n") != len(data) - 2:
            return
        self._learns_left -= 1
        quoted = b'"%b"' % text
        at = data.find(quoted, data.find(b'"%b":' % name) + len(name) + 3) + 1
        before, after = data[:at], data[at + len(text) :]
        if at and after[1:2] in b",}" and self._find(before + b"x" + after) == [(name, b"x")]:
            self._before, self._after = before, after
            self._begin, self._end = at, -len(after)

    def rest(self) -> bytes:
        """Bytes held of an event that never ended; nothing if there were only preamble events."""
        if not self._tail or self._is_long:
            return b""
        held, self._held = self._held + bytes(self._tail), b""
        self._tail.clear()
        return held

    def text(self) -> str | None:
        """The answer text; None if it was too long to keep, or is not valid."""
        if self._text_len > _MAX_TEXT:
            return None
        try:
            return str(orjson.loads(b'"' + b"".join(self._pieces) + b'"'))
        except orjson.JSONDecodeError:  # some engines cut a surrogate pair in two
            return None

    def _count(self, found: list[tuple[bytes, bytes]]) -> None:
        """Count outputs of the pieces of text in an event: one for each with text."""
        for name, piece in found:
            if not piece:
                continue
            if name in self._answer_kinds:
                self._add_text(piece)
            elif not self._is_repeated(name):
                self._other_len += len(piece)
                self.output_len += 1

    def _is_repeated(self, name: bytes) -> bool:
        """True for reasoning under a second name: some versions of vLLM send it under two."""
        if name not in self._endpoint.stream_format.reasoning_kinds:
            return False
        self._reasoning_kind = self._reasoning_kind or name
        return name != self._reasoning_kind

    def _read_usage(self, data: bytes) -> bytes:
        """Parse the events with usage; returns the events that are passed on."""
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
        """Keep the usage that an event reports; False if it reports none."""
        used = self._endpoint.read_usage(document)
        if used is None:
            return False
        self._used = used if used.prompt_len else _after(self._used, used)
        # Some engines report usage in every event: on a disconnect the last report counts.
        self.output_len = max(self.output_len, used.output_len)
        return True


class WholeResponse:
    """A response in one piece, held until it is complete so that the request can be retried."""

    __slots__ = ("_joined", "_pieces", "length")

    def __init__(self) -> None:
        self._joined: list[bytes] = []
        self._pieces: list[bytes] = []
        self.length = 0

    def feed(self, data: bytes) -> None:
        """Append `data`."""
        self._pieces.append(data)
        self.length += len(data)
        if len(self._pieces) >= _MAX_PIECES:
            self._joined.append(b"".join(self._pieces))
            self._pieces.clear()

    def body(self) -> bytes:
        """The body as one bytes object. O(response); `pieces` needs no copy."""
        return b"".join(self.pieces())

    def pieces(self) -> list[bytes]:
        """The body in pieces."""
        return self._joined + self._pieces


def read_whole(endpoint: Endpoint, body: bytes) -> tuple[Usage | None, str | None]:
    """Usage and text of a complete response; None for what it does not contain. O(body)."""
    try:
        if endpoint.scan_usage is not None:
            return endpoint.scan_usage(body), None
        document = _loads(body)
        text = endpoint.read_text(document) if endpoint.read_text is not None else None
        return endpoint.read_usage(document), text
    except Exception as error:  # noqa: BLE001 - a bug, but charges must be trued up
        _log.error("reading the usage of a response: %s: %s", type(error).__name__, error)
        return None, None


def read_end(endpoint: Endpoint, pieces: list[bytes]) -> Usage | None:
    """Usage of a long response, searched for in its last mebibyte only. O(ITERATION)."""
    length = 0
    end: list[bytes] = []
    for piece in reversed(pieces):
        if length >= ITERATION:
            break
        end.append(piece)
        length += len(piece)
    try:
        return endpoint.read_usage({"usage": last_usage(b"".join(reversed(end)))})
    except Exception as error:  # noqa: BLE001 - a bug, but charges must be trued up
        _log.error("reading the usage of a response: %s: %s", type(error).__name__, error)
        return None


def _after(before: Usage | None, used: Usage) -> Usage:
    """Usage with the outputs of `used` and the prompt that an earlier event reported."""
    return used if before is None else before._replace(output_len=used.output_len)


def _end_of_last(data: bytes | bytearray, begin: int) -> int:
    """End of the last complete event, if that is behind `begin`, else 0. O(data behind `begin`)."""
    end = data.rfind(b"\n\n", begin) + 2
    if end < 2:
        end = 0
    other = data.rfind(b"\r\n\r\n", max(begin, end))
    return other + 4 if other >= 0 else end


def _events(data: bytes) -> list[bytes]:
    """Events in `data`, each with its end. O(data)."""
    ends = [found.end() for found in _END.finditer(data)]
    if not ends or ends[-1] < len(data):
        ends.append(len(data))
    return [data[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _document_of(event: bytes) -> dict[str, Any]:
    """The JSON of an event, behind its name if it has one; of a long event the usage alone."""
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

"""What an engine's answer says: tokens used and text, read while the bytes pass by.

Only the event with the usage is parsed; the others are counted and their text is cut out. A partial
event is held until the rest of it comes, since the caller could not read it either.
"""

import re
from typing import Any

import orjson

from fairlead.dispatch import Usage

# What a chat delta or a completion brings: text, thoughts, a tool's arguments. Inside a JSON string a
# quote is escaped, so text that quotes this pattern cannot match it.
_TEXT = re.compile(rb'"(content|text|reasoning_content|reasoning|arguments)": *"((?:[^"\\]|\\.)*)"')
_USAGE = re.compile(rb'"usage": *\{')
# What the next turn of the conversation repeats.
_SAID = frozenset((b"content", b"text"))
# Answers are remembered up to here for the prefix index, and partial events held up to here.
_MAX_TEXT = 1 << 20


class StreamedAnswer:
    """Server-sent events, forwarded byte for byte except a usage event the caller did not ask for."""

    __slots__ = (
        "_hide_usage", "_pieces", "_tail", "_text_len", "_thoughts", "output_len", "usage",
    )  # fmt: skip

    def __init__(self, *, hide_usage: bool) -> None:
        self._hide_usage = hide_usage
        self._tail = b""
        self._pieces: list[bytes] = []
        self._text_len = 0
        self._thoughts = b""  # the name they come under
        self.output_len = 0  # events with text, a lower bound of tokens, until usage says more
        self.usage: Usage | None = None

    def feed(self, data: bytes) -> bytes:
        """What of `data`, and of what was held before it, goes to the caller now."""
        if self._tail:
            data, self._tail = self._tail + data, b""
        end = data.rfind(b"\n\n") + 2
        if end == 1:
            end = data.rfind(b"\r\n\r\n") + 4
            if end == 3:
                end = len(data) if len(data) > _MAX_TEXT else 0
        if end != len(data):
            data, self._tail = data[:end], data[end:]
        self._read_text(data)
        if _USAGE.search(data):
            return self._read_usage(data)
        return data

    def rest(self) -> bytes:
        """What was held of an event that never ended."""
        tail, self._tail = self._tail, b""
        return tail

    def text(self) -> str | None:
        """The answer's text; None if it was too long to keep."""
        if self._text_len > _MAX_TEXT:
            return None
        try:
            return str(orjson.loads(b'"' + b"".join(self._pieces) + b'"'))
        except orjson.JSONDecodeError:  # an engine that cuts a surrogate pair in two
            return None

    def _read_text(self, data: bytes) -> None:
        for name, piece in _TEXT.findall(data):
            if not piece:
                continue
            if name in _SAID:
                self._text_len += len(piece)
                if self._text_len <= _MAX_TEXT:
                    self._pieces.append(piece)
            elif name != b"arguments":
                # Some versions of vLLM write each thought twice, under its old and its new name.
                self._thoughts = self._thoughts or name
                if name != self._thoughts:
                    continue
            self.output_len += 1

    def _read_usage(self, data: bytes) -> bytes:
        kept = []
        end = b"\r\n\r\n" if b"\r\n\r\n" in data else b"\n\n"
        for event in data.split(end):
            if event.startswith(b"data:") and _USAGE.search(event):
                document = _loads(event[5:])
                usage = read_usage(document)
                if usage is not None:
                    self.usage = usage
                    # Some report it with every event: whoever leaves has had that much.
                    self.output_len = max(self.output_len, usage.output_len)
                    if self._hide_usage and document.get("choices") == []:
                        continue
            kept.append(event)
        return end.join(kept)


class WholeAnswer:
    """An answer in one piece. It is held back until it is complete, so that it can be retried."""

    __slots__ = ("_pieces", "length")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.length = 0

    def feed(self, data: bytes) -> None:
        """Keep `data`."""
        self._pieces.append(data)
        self.length += len(data)

    def body(self) -> bytes:
        """All of it."""
        return b"".join(self._pieces)


def read_whole(body: bytes) -> tuple[Usage | None, str | None]:
    """Usage and text of a completed answer; None where it does not say."""
    document = _loads(body)
    choices = document.get("choices")
    text = None
    if isinstance(choices, list) and len(choices) == 1 and isinstance(choices[0], dict):
        message = choices[0].get("message")
        text = message.get("content") if isinstance(message, dict) else choices[0].get("text")
    return read_usage(document), text if isinstance(text, str) else None


def read_usage(document: dict[str, Any]) -> Usage | None:
    """The usage in an answer or an event, None unless it is complete and plausible."""
    usage = document.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt_len = _count(usage.get("prompt_tokens"))
    output_len = _count(usage.get("completion_tokens", 0))
    if prompt_len is None or output_len is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached_len = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    if cached_len is not None and cached_len > prompt_len:
        cached_len = None
    return Usage(prompt_len=prompt_len, output_len=output_len, cached_len=cached_len)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _loads(data: bytes) -> dict[str, Any]:
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}

"""OpenAI's formats, as little of them as routing needs: fields of a body, fields added, errors.

A body goes to the engine as it came. Fields of ours are appended before its last brace; only where
the caller sent the same field is the body written anew.
"""

import json
from array import array
from dataclasses import dataclass
from typing import Any

import orjson

from fairlead.errors import BadRequest, CallerError, FairleadError, QueueFull

# What a socket takes without a copy being made first.
Buffer = bytes | memoryview

# Assumed where the caller sets no limit: routers only use it to cap what they expect of a request.
_UNLIMITED = 1 << 20
# OpenAI's default for the older endpoint.
_COMPLETION_TOKENS = 16
# Messages of a request, and parts of a message: conversations have hundreds, and each is looked at
# on the event loop.
_MAX_PARTS = 4096
# Parts a prompt in the index; cannot occur in a model's name or a role as the engines accept them.
_SEPARATOR = "\0"
# What json.dumps writes is ASCII, so that no lone surrogate can make it fail.
_COMPACT = (",", ":")


@dataclass(slots=True)
class Call:
    """What is read of one request's body."""

    document: dict[str, Any]
    head: str  # what splits an engine's cache: model and cache salt
    parts: list[str]  # the prompt in canonical form: a prefix of it is a prefix of the prompt
    tokens: bytes | None  # instead of parts, for prompts that come as tokens; 4 bytes each
    model: str | None
    stream: bool
    asks_usage: bool  # and so is to see it as the engine sends it
    user: str | None
    max_tokens: int
    chat: bool

    def text(self) -> bytes:
        """All that a cached prefix depends on, as bytes."""
        if self.tokens is not None:
            return self.head.encode("utf-8", "surrogatepass") + b"\0" + self.tokens
        return _SEPARATOR.join((self.head, *self.parts)).encode("utf-8", "surrogatepass")


def read_call(body: bytes, *, chat: bool) -> Call:
    """The fields the gateway needs; what else is wrong the engine will say. Raises BadRequest."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadRequest("the body must be a JSON object")
    model = _optional(document, "model", str, "a string")
    options = _optional(document, "stream_options", dict, "an object") or {}
    parts, tokens = (_chat_parts(document), None) if chat else _prompt_parts(document)
    return Call(
        document=document,
        head=f"{model or ''}{_SEPARATOR}{document.get('cache_salt') or ''}",
        parts=parts,
        tokens=tokens,
        model=model,
        stream=bool(_optional(document, "stream", bool, "true or false")),
        asks_usage=_asks_usage(options),
        user=_optional(document, "user", str, "a string"),
        max_tokens=_max_tokens(document, chat=chat),
        chat=chat,
    )


def answer_parts(answer: str, *, chat: bool) -> list[str]:
    """What the next turn's prompt has after this one's, in the same form."""
    return ["assistant", answer] if chat else [answer]


def answer_text(answer: str, *, chat: bool) -> bytes:
    """The same as bytes."""
    text = _SEPARATOR.join(("", *answer_parts(answer, chat=True))) if chat else answer
    return text.encode("utf-8", "surrogatepass")


class Fields:
    """What the gateway adds to a body; made once for many requests."""

    __slots__ = ("_encoded", "_fields")

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self._encoded = orjson.dumps(fields)[1:-1]

    def added_to(self, body: bytes, document: dict[str, Any]) -> tuple[Buffer, ...]:
        """`body` with the fields, in pieces; byte for byte where it has none of them.

        `document` is the parsed body: a name that came escaped or twice is found there too. Where
        the caller sent a field of the same name, ours wins inside it and the rest of it stays.
        """
        if not self._fields:
            return (body,)
        if document.keys().isdisjoint(self._fields):
            end = body.rindex(b"}")
            comma = b"," if document else b""
            return memoryview(body)[:end], comma + self._encoded + body[end:]
        return (self._merged(body),)

    def _merged(self, body: bytes) -> bytes:
        """The body written anew. The standard library keeps integers of any size; of two equal
        names the last wins, as it does in the engines.
        """
        try:
            merged = json.loads(body)
        except (RecursionError, ValueError):  # nested a thousand deep, a number of 5,000 digits
            raise BadRequest("the body is nested too deeply or has too long a number") from None
        for name, value in self._fields.items():
            theirs = merged.get(name)
            both = isinstance(theirs, dict) and isinstance(value, dict)
            merged[name] = {**theirs, **value} if both else value
        return json.dumps(merged, separators=_COMPACT).encode()


def error_body(error: Exception, status: int) -> bytes:
    """OpenAI's error shape."""
    kind, code = _ERROR_KINDS.get(status, ("server_error", None))
    param = error.param if isinstance(error, CallerError) else None
    if status == 404 and param == "model":
        code = "model_not_found"
    message = str(error) or "internal error"
    return orjson.dumps({"error": {"message": message, "type": kind, "param": param, "code": code}})


def status_of(error: Exception) -> int:
    """The HTTP status of one of our errors; 500 for our own bugs."""
    return int(getattr(error, "status", 500)) if isinstance(error, FairleadError) else 500


def retry_after(error: Exception, status: int) -> int | None:
    """Seconds to wait before asking again, where asking again can help."""
    return 1 if status in {502, 503} or isinstance(error, QueueFull) else None


_ERROR_KINDS: dict[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    404: ("invalid_request_error", None),
    405: ("invalid_request_error", None),
    408: ("invalid_request_error", "request_timeout"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    431: ("invalid_request_error", "headers_too_large"),
    502: ("server_error", "engine_failed"),
    503: ("server_error", "no_engine"),
    504: ("server_error", "engine_timeout"),
}


def _optional(document: dict[str, Any], name: str, kind: type, expected: str) -> Any:
    value = document.get(name)
    if value is None or isinstance(value, kind):
        return value
    raise BadRequest(f"{name} must be {expected}", param=name)


def _asks_usage(options: dict[str, Any]) -> bool:
    """Whether usage must not be hidden, or not be asked for: with `continuous_usage_stats` it would
    come in every event. Engines take more than true for yes, so only a clear no is one.
    """
    if options.get("continuous_usage_stats"):
        return True
    return options.get("include_usage") not in (None, False)


def _max_tokens(document: dict[str, Any], *, chat: bool) -> int:
    for name in ("max_completion_tokens", "max_tokens"):
        value = document.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise BadRequest(f"{name} must be a whole number, 0 or more", param=name)
        return max(1, value)
    return _UNLIMITED if chat else _COMPLETION_TOKENS


def _chat_parts(document: dict[str, Any]) -> list[str]:
    """Role and content of each message in order; tools come first, as templates put them there."""
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("messages must be a list of at least one message", param="messages")
    _check_count(messages, "messages")
    parts = [_dumped(document["tools"])] if document.get("tools") else []
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            where = f"messages[{number}]"
            raise BadRequest(f"{where} must be an object with a string `role`", param=where)
        content = message.get("content")
        parts.append(message["role"])
        if isinstance(content, str):
            parts.append(content)
        elif isinstance(content, list):
            parts.append(_content_text(content, f"messages[{number}].content"))
        elif content is not None:
            where = f"messages[{number}].content"
            raise BadRequest(f"{where} must be a string or a list of parts", param=where)
        if len(message) > 2:
            rest = {k: v for k, v in message.items() if k not in {"role", "content"}}
            parts.append(_dumped(rest))
    return parts


def _content_text(content: list[object], where: str) -> str:
    """Parts of text are their text; with an image or a sound among them, all as they came."""
    _check_count(content, where)
    texts = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
        if not isinstance(text, str):
            return _dumped(content)
        texts.append(text)
    return "".join(texts)


def _check_count(items: list[object], where: str) -> None:
    if len(items) > _MAX_PARTS:
        raise BadRequest(f"{where} must have {_MAX_PARTS} entries at most", param=where)


def _prompt_parts(document: dict[str, Any]) -> tuple[list[str], bytes | None]:
    """The prompt's parts, or its tokens if it came as tokens."""
    prompt = document.get("prompt")
    if isinstance(prompt, str):
        return [prompt], None
    if prompt is None and document.get("prompt_embeds") is not None:
        return [], None
    if isinstance(prompt, list) and prompt:
        if isinstance(prompt[0], str) and all(isinstance(item, str) for item in prompt):
            _check_count(prompt, "prompt")
            return prompt, None
        batch = prompt if isinstance(prompt[0], list) else [prompt]
        _check_count(batch, "prompt")
        try:
            return [], b"".join(array("I", tokens).tobytes() for tokens in batch)
        except (TypeError, OverflowError):
            pass
    raise BadRequest("prompt must be a string, or a list of strings or tokens", param="prompt")


def _dumped(value: object) -> str:
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        raise BadRequest("the body is nested too deeply", param="messages") from None

"""Request bodies: the few fields that routing needs, at any endpoint, and injecting fields.

A body is passed on as received. Injected fields are appended before its last brace; only if the client
sent a field of the same name is the body serialized again.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

import orjson

from fairhit.errors import BadRequest
from fairhit.gateway.api.endpoints import Endpoint
from fairhit.gateway.api.long_body import Outline
from fairhit.gateway.http.read_budget import STEP
from fairhit.gateway.proxy.incoming_request import Body

# Types that a socket sends without a copy.
Buffer = bytes | bytearray | memoryview

# Length of a model's name, which is used as a label and in logs.
_MAX_MODEL_LEN = 256
# OpenAI's limit on `n`; engines may have others, and report errors of their own.
_MAX_CHOICES = 128
# A whole number as a string, of the length that engines accept.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0{0,18})?")
# Separates the parts of a prompt in the index; engines accept no model name or role with it.
_SEPARATOR = "\0"
# json.dumps writes ASCII, so that lone surrogates are no error.
_COMPACT = (",", ":")
# Fields in which the plug-ins of vLLM and SGLang expect the client, and its name there.
_IDENTITY_FIELDS = frozenset(("vllm_xargs", "custom_params"))
_CLIENT = "fair_client"


@dataclass(slots=True)
class ParsedBody:
    """The fields of one request's body that the gateway uses."""

    endpoint: Endpoint
    document: dict[str, Any]
    salt: str  # `cache_salt`: no cache hits among prompts with different salts
    parts: list[str]  # the prompt in canonical form, of which a prefix is a prefix of the prompt
    tokens: bytes | None  # instead of parts, for prompts sent as tokens; 4 bytes each
    answers: int  # prompts times choices
    model: str | None
    stream: bool
    asks_usage: bool  # the client asks for usage, and gets it as the engine sends it
    user: str | None
    max_tokens: int  # for one answer
    outline: Outline | None = None  # of a long body, of which a part was parsed
    unparsed: float = 0.0  # bytes not parsed, per parsed byte

    @property
    def head(self) -> str:
        """Model and salt: prompts with different ones share no cached prefix."""
        return f"{self.model or ''}{_SEPARATOR}{self.salt}"

    def text(self) -> bytes:
        """Model, salt and prompt as bytes: all that cached prefixes depend on."""
        if self.tokens is not None:
            return self.head.encode() + b"\0" + self.tokens
        return _SEPARATOR.join((self.head, *self.parts)).encode()


def parse_body(body: Body, endpoint: Endpoint) -> ParsedBody:
    """Parse the fields that the gateway uses; engines validate the rest. Raises BadRequest."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadRequest("the body must be a JSON object")
    model, user, stream = document.get("model"), document.get("user"), document.get("stream")
    if model is not None and not isinstance(model, str):
        raise _wrong("model", "a string")
    if model is not None and len(model) > _MAX_MODEL_LEN:
        raise _wrong("model", f"a name of {_MAX_MODEL_LEN} characters at most")
    if user is not None and not isinstance(user, str):
        raise _wrong("user", "a string")
    if stream is not None and not isinstance(stream, bool):
        raise _wrong("stream", "true or false")
    parts, tokens, prompts = endpoint.read_prompt(document)
    choices = document.get("n")
    if choices is not None:
        prompts *= _choices(choices)
    return ParsedBody(  # positional: keywords would cost as much as all the parsing
        endpoint,
        document,
        str(document.get("cache_salt") or ""),
        parts,
        tokens,
        prompts,
        model,
        bool(stream),
        not endpoint.usage_option or _asks_usage(document),
        user,
        _max_tokens(document, endpoint),
    )


def parse_long_body(body: Body, outline: Outline, endpoint: Endpoint) -> ParsedBody:
    """Parse a long body: of long fields only the beginning. Raises BadRequest."""
    short = outline.shortened(body)
    parsed = parse_body(short, endpoint)
    parsed.outline = outline
    parsed.unparsed = max(0, len(body) - len(short)) / len(short)
    return parsed


def answer_parts(answer: str) -> list[str]:
    """An answer in canonical form, as a message of the conversation's next prompt."""
    return ["assistant", answer]


def answer_text(answer: str, endpoint: Endpoint) -> bytes:
    """Bytes by which the conversation's next prompt extends this one, beginning with the answer."""
    text = _SEPARATOR.join(("", *answer_parts(answer))) if endpoint.is_conversation else answer
    return text.encode("utf-8", "surrogatepass")


class InjectedFields:
    """Fields injected into bodies; one object for many requests.

    A client identity that the sender put into a body is removed, even if nothing is injected.
    """

    __slots__ = ("_fields", "_more", "_names", "_watched")

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self._names = frozenset(fields)
        self._watched = self._names | _IDENTITY_FIELDS
        self._more = b"," + orjson.dumps(fields)[1:-1]

    def added_to(
        self, body: Body, document: dict[str, Any], outline: Outline | None = None
    ) -> tuple[Buffer, ...]:
        """`body` with the fields, in pieces; unchanged but for them if it has neither such a field nor a
        client identity.

        `document` is the parsed body, in which escaped and repeated names are found, too. In a field that
        the client sent as well, the injected values win and others stay. Of a long body, which has an
        `outline`, only that field is serialized again.
        """
        if outline is not None:
            return self._spliced(body, outline)
        if not self._watched.isdisjoint(document) and self._must_merge(body, document):
            return (self._merged(body),)
        if not self._names:
            return (body,)
        end = body.rindex(b"}")
        more = self._more if document else self._more[1:]
        return memoryview(body)[:end], more + body[end:]

    def _spliced(self, body: Body, outline: Outline) -> tuple[Buffer, ...]:
        """A long body with the fields; those that the client sent are replaced in place."""
        whole, at = memoryview(body), 0
        pieces: list[Buffer] = []
        sent = {field.name: field for field in outline.fields if field.name in self._watched}
        values = {name: self._value(name, whole[f.begin : f.end]) for name, f in sent.items()}
        for field in outline.fields:
            if field.name in values:
                pieces += (whole[at : field.begin], values[field.name])
                at = field.end
        end = body.rindex(b"}")
        pieces.append(whole[at:end])
        more = {name: value for name, value in self._fields.items() if name not in sent}
        added = orjson.dumps(more)[1:]  # with the brace that ends all of it
        pieces.append(b"," + added if more and outline.fields else added)
        return (*pieces, whole[end + 1 :])

    def _value(self, name: str, written: memoryview) -> bytes:
        """The value of a watched field with the injected values, without the sender's identity."""
        if len(written) > STEP:
            raise BadRequest(f"{name} may have {STEP} bytes at most", param=name)
        try:
            theirs, ours = json.loads(bytes(written)), self._fields.get(name)
        except (RecursionError, ValueError):
            raise BadRequest(
                f"{name} is not valid JSON, or nested too deeply", param=name
            ) from None
        if isinstance(theirs, dict):
            theirs.pop(_CLIENT, None)
        merged = ours if name in self._names else theirs
        if isinstance(theirs, dict) and isinstance(ours, dict):
            merged = {**theirs, **ours}
        return json.dumps(merged, separators=_COMPACT).encode()

    def _must_merge(self, body: Body, document: dict[str, Any]) -> bool:
        """True if the body has one of the fields, or may have a client identity, perhaps escaped or in the
        first of two equal names. O(body), and only for bodies with a watched field.
        """
        if not self._names.isdisjoint(document):
            return True
        return _CLIENT.encode() in body or b"\\u" in body

    def _merged(self, body: Body) -> bytes:
        """Serialize the body again. The standard library keeps integers of any size; of two equal names the
        last wins, as in the engines.
        """
        try:
            merged = json.loads(body)
        except (RecursionError, ValueError):  # nested a thousand deep, a number of 5,000 digits
            raise BadRequest("the body is nested too deeply or has too long a number") from None
        for name, value in self._fields.items():
            theirs = merged.get(name)
            both = isinstance(theirs, dict) and isinstance(value, dict)
            merged[name] = {**theirs, **value} if both else value
        for name in _IDENTITY_FIELDS - self._names:
            claimed = merged.get(name)
            if isinstance(claimed, dict):
                claimed.pop(_CLIENT, None)
        return json.dumps(merged, separators=_COMPACT).encode()


def _wrong(name: str, expected: str) -> BadRequest:
    return BadRequest(f"{name} must be {expected}", param=name)


def _asks_usage(document: dict[str, Any]) -> bool:
    """True if the client gets usage as the engine sends it. Engines take more values than true for yes, so
    only a plain no counts as one. With `continuous_usage_stats` usage is in every event.
    """
    options = document.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict):
        raise _wrong("stream_options", "an object")
    if options.get("continuous_usage_stats"):
        return True
    return options.get("include_usage") not in (None, False)


def _whole(value: object) -> int | None:
    """The whole number that engines, by pydantic, read from 5, 5.0 or "5"; None from anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value.partition(".")[0])
    return None


def _choices(value: object) -> int:
    """The value of `n`, between 1 and the limit."""
    return min(max(1, _whole(value) or 1), _MAX_CHOICES)


def _max_tokens(document: dict[str, Any], endpoint: Endpoint) -> int:
    for name in endpoint.limits:
        value = document.get(name)
        if value is None:
            continue
        number = _whole(value)
        if number is None or number < 0:
            raise _wrong(name, "a whole number, 0 or more")
        return max(1, number)
    return endpoint.default_limit

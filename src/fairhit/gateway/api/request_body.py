"""The few fields of a body that routing needs, whatever its path, and the fields added to one.

A body goes to the engine as it came. Fields of ours are appended before its last brace; only where
the caller sent the same field is the body written anew.
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

# What a socket takes without a copy being made first.
Buffer = bytes | bytearray | memoryview

# Of a model's name; as a label and in logs it outlives its request.
_MAX_MODEL_LEN = 256
# OpenAI's limit on the answers to one prompt; an engine that allows more will say so.
_MAX_CHOICES = 128
# A whole number as a text; longer ones no engine takes.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}(\.0{0,18})?")
# Parts a prompt in the index; cannot occur in a model's name or a role as the engines accept them.
_SEPARATOR = "\0"
# What json.dumps writes is ASCII, so that no lone surrogate can make it fail.
_COMPACT = (",", ":")
# Where engines' plug-ins look for the client, vLLM's and SGLang's, and under what name.
_HOLDERS = frozenset(("vllm_xargs", "custom_params"))
_CLIENT = "fair_client"


@dataclass(slots=True)
class ParsedBody:
    """What is read of one request's body."""

    endpoint: Endpoint
    document: dict[str, Any]
    salt: str  # what splits an engine's cache beside the model
    parts: list[str]  # the prompt in canonical form: a prefix of it is a prefix of the prompt
    tokens: bytes | None  # instead of parts, for prompts that come as tokens; 4 bytes each
    answers: int  # how many are asked for: prompts times choices
    model: str | None
    stream: bool
    asks_usage: bool  # and so is to see it as the engine sends it
    user: str | None
    max_tokens: int  # of one answer
    outline: Outline | None = None  # of a long body, of which not all was read
    unread: float = 0.0  # bytes that were not read, for each that was

    @property
    def head(self) -> str:
        """What splits an engine's cache."""
        return f"{self.model or ''}{_SEPARATOR}{self.salt}"

    def text(self) -> bytes:
        """All that a cached prefix depends on, as bytes."""
        if self.tokens is not None:
            return self.head.encode() + b"\0" + self.tokens
        return _SEPARATOR.join((self.head, *self.parts)).encode()


def parse_body(body: Body, endpoint: Endpoint) -> ParsedBody:
    """The fields the gateway needs; what else is wrong the engine will say. Raises BadRequest."""
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
    return ParsedBody(  # in order: names would cost as much as all the reading
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
    """The same of a long body: as much of each field as there is time to read. Raises BadRequest."""
    short = outline.shortened(body)
    call = parse_body(short, endpoint)
    call.outline = outline
    call.unread = max(0, len(body) - len(short)) / len(short)
    return call


def answer_parts(answer: str) -> list[str]:
    """The answer as a message of the next turn's prompt, in canonical form."""
    return ["assistant", answer]


def answer_text(answer: str, endpoint: Endpoint) -> bytes:
    """What the next turn's prompt has after this one's, as bytes."""
    text = _SEPARATOR.join(("", *answer_parts(answer))) if endpoint.turns else answer
    return text.encode("utf-8", "surrogatepass")


class InjectedFields:
    """What the gateway adds to a body; made once for many requests.

    What a caller says in it about who it is, for whichever engine, is taken out, even if nothing is added.
    """

    __slots__ = ("_fields", "_more", "_names", "_watched")

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self._names = frozenset(fields)
        self._watched = self._names | _HOLDERS
        self._more = b"," + orjson.dumps(fields)[1:-1]

    def added_to(
        self, body: Body, document: dict[str, Any], outline: Outline | None = None
    ) -> tuple[Buffer, ...]:
        """`body` with the fields, in pieces; byte for byte where it has none of them and claims nothing.

        `document` is the parsed body: a name that came escaped or twice is found there too. Where
        the caller sent a field of the same name, ours wins inside it and the rest of it stays. Of a
        long body, which has an `outline`, that field alone is written anew.
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
        """A long body with the fields; those that the caller sent are replaced wherever they stand."""
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
        """The value of a watched field as it goes on: ours in it, and nobody's claim to be somebody."""
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
        """Whether it has one of the fields, or may claim to be somebody, plainly or escaped, if only
        in the first of two equal names. O(body), and only for who sends such a field.
        """
        if not self._names.isdisjoint(document):
            return True
        return _CLIENT.encode() in body or b"\\u" in body

    def _merged(self, body: Body) -> bytes:
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
        for name in _HOLDERS - self._names:
            claimed = merged.get(name)
            if isinstance(claimed, dict):
                claimed.pop(_CLIENT, None)
        return json.dumps(merged, separators=_COMPACT).encode()


def _wrong(name: str, expected: str) -> BadRequest:
    return BadRequest(f"{name} must be {expected}", param=name)


def _asks_usage(document: dict[str, Any]) -> bool:
    """Whether usage must not be hidden, or not be asked for: with `continuous_usage_stats` it would
    come in every event. Engines take more than true for yes, so only a clear no is one.
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
    """The whole number that engines take `value` for, as pydantic does: 5, 5.0, "5"; None for none."""
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
    """`n`, where it is a number that an engine can serve."""
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

"""Targets of the fuzzers: each takes bytes and raises AssertionError if the code under test breaks a rule.

A target is deterministic: how its bytes are cut into pieces is in the first four of them.
"""

import json
import random
import re
from collections.abc import Callable

import orjson

from fairhit.errors import FairhitError
from fairhit.gateway.api.endpoints import ENDPOINTS
from fairhit.gateway.api.injected_fields import FieldInjector
from fairhit.gateway.api.request_body import ParsedBody, parse_body
from fairhit.gateway.api.response_body import StreamedResponse, read_whole
from fairhit.gateway.http.head_cache import HeadCache
from fairhit.gateway.http.request_parser import RequestParser
from fairhit.gateway.proxy.incoming_request import BodyBudget, IncomingRequest, RequestHead
from fairhit.gateway.settings import GatewaySettings
from tests.wire.recording import LINE, RecordingListener

SEED_LEN = 4
MAX_BODY = 300
_WARM = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b"
_INJECTOR = FieldInjector(GatewaySettings(isolate_prefixes=True, isolation_secret="fuzz"))
# The last where a stream has both.
_CUT_EVENTS = (rb"\n\n", rb"\r\n\r\n", rb"[\r\n]{2,}")


def cut(data: bytes) -> list[bytes]:
    """The bytes in pieces, sometimes in one."""
    rng, data = random.Random(data[:SEED_LEN]), data[SEED_LEN:]
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice((0, 0, 1, 3, 9))))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


class _Forgetful(RequestParser):
    def _learn(self, data: bytes) -> None:
        """Remembers nothing: the parser reads it all."""


def _requests_of(kind: type[RequestParser], pieces: list[bytes]) -> list[object]:
    body_budget, heads = BodyBudget(), HeadCache[RequestHead]()
    warm = kind(
        max_body_len=MAX_BODY, admit=lambda _: True, body_budget=body_budget, head_cache=heads
    )
    warm.feed(_WARM % (5, b"hello"))
    warm.take()
    warm.release()
    reader = kind(
        max_body_len=MAX_BODY, admit=lambda _: True, body_budget=body_budget, head_cache=heads
    )
    for piece in pieces:
        reader.feed(piece)
    seen: list[object] = [reader.receiving, reader.stopped]
    while reader.ready:
        one = reader.take()
        head = one.head
        seen.append((head.method, head.target, head.lines, one.body, head.shown(), head.tenants,
                     one.keep_alive, head.http10, one.status, str(one.refusal)))  # fmt: skip
        if one.refusal is None:
            check_forwarded(one)
        reader.release()
    reader.drop()
    assert body_budget.length == 0, "bytes of freed bodies are still counted"
    refusals = [one for one in seen[2:] if isinstance(one, tuple) and one[-1] != "None"]
    assert len(refusals) <= 1 and seen[-len(refusals) :][: len(refusals)] == refusals
    return seen


def check_forwarded(request: IncomingRequest) -> None:
    """Assert that the bytes sent to an engine are exactly one request for every HTTP parser."""
    assert len(request.body) <= MAX_BODY
    assert re.fullmatch(rb"[!-~]+", request.head.target), request.head.target
    lines = request.head.lines
    assert b"".join(LINE.findall(lines)) == lines, lines
    names = [line.partition(b":")[0].lower().replace(b"_", b"-") for line in lines.split(b"\r\n")]
    for name in (
        b"content-length",
        b"transfer-encoding",
        b"host",
        b"connection",
        b"x-smg-tenant-id",
    ):
        assert name not in names, lines


def requests(data: bytes) -> None:
    """Neither a request more nor one less than the parser alone would see, nor another one."""
    pieces = cut(data)
    assert _requests_of(RequestParser, pieces) == _requests_of(_Forgetful, pieces)


_ANSWERS = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi",
    (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n0\r\n\r\n"
    ),
)


def answers(data: bytes) -> None:
    """After two good responses any bytes are responses of which each is complete, or lost, once."""
    reader = RecordingListener()
    for response in (*_ANSWERS, *cut(data)):
        reader.data_received(response)
    assert reader.received[2] == reader.received[5] == "end"
    assert reader.received.count("lost") <= 1


def streams(data: bytes) -> None:
    """A forwarded stream equals the engine's, in order, but for whole events left out or a preamble event
    that nothing follows.
    """
    pieces = cut(data)
    whole = b"".join(pieces)
    for endpoint in ENDPOINTS.values():
        for hide in (False, True):
            answer = StreamedResponse(endpoint, hide_usage=hide)
            said = b"".join(map(answer.feed, pieces)) + answer.rest()
            is_preamble = endpoint.stream_format.is_preamble
            if (
                said or is_preamble is None or not is_preamble(whole)
            ):  # a preamble event alone is no answer
                assert said == whole if not hide else is_within(said, whole)
            assert answer.output_len >= 0
            answer.text()
        read_whole(endpoint, whole)


def is_within(part: bytes, whole: bytes) -> bool:
    """Return whether `part` is `whole` without some of its events."""
    for end in _CUT_EVENTS:
        events = iter(re.split(end, whole))
        if all(event in events for event in re.split(end, part)):
            return True
    return False


def bodies(data: bytes) -> None:
    """Any body is refused in our words, or goes on saying what it said, and who asks."""
    body = data[SEED_LEN:]
    for endpoint in ENDPOINTS.values():
        try:
            call = parse_body(body, endpoint)
            _INJECTOR.isolate(call, "alice")
            asks = _INJECTOR.asks_usage(call)
            fields = _INJECTOR.fields(call, "alice", ask_usage=asks)
            sent = b"".join(fields.added_to(body, call.document))
        except FairhitError:
            continue
        check_sent(orjson.loads(sent), call)


def check_sent(sent: dict[str, object], call: ParsedBody) -> None:
    """The body has our fields and the caller's, but for an identity claimed for another kind of engine."""
    ours = {"vllm_xargs", "cache_salt", "stream_options"}
    claim = call.document.get("custom_params")
    if isinstance(claim, dict):
        claim.pop("fair_client", None)
    before = {name: value for name, value in call.document.items() if name not in ours}
    assert json.dumps({k: v for k, v in sent.items() if k not in ours}) == json.dumps(before)
    if call.endpoint.identity:
        xargs = sent["vllm_xargs"]
        assert isinstance(xargs, dict) and xargs["fair_client"] == "alice"
    if call.endpoint.charged:
        assert sent["cache_salt"] == call.salt


TARGETS: dict[str, Callable[[bytes], None]] = {
    "requests": requests, "answers": answers, "streams": streams, "bodies": bodies
}  # fmt: skip

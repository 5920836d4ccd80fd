"""Whatever JSON a caller sends is sent on, or refused with the reason: nothing else is raised."""

import random
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from fairhit.errors import CallerError
from fairhit.gateway.api.endpoints import ENDPOINTS
from fairhit.gateway.http.client_connection import ClientConnection
from fairhit.gateway.proxy.exchange import Exchange
from fairhit.gateway.proxy.incoming_request import IncomingRequest, RequestHead
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings

ENGINE = "http://127.0.0.1:9"
# Names that some path reads, inside and outside of a prompt.
NAMES = (
    "model", "messages", "prompt", "prompt_embeds", "input", "n", "stream", "stream_options",
    "max_tokens", "max_completion_tokens", "max_output_tokens", "user", "cache_salt", "vllm_xargs",
    "custom_params", "fair_client", "tools", "system", "instructions", "query", "documents", "text_1",
    "previous_response_id", "background", "include_usage", "role", "content", "type", "text",
)  # fmt: skip
PLAIN = (
    None, True, False, 0, 1, -1, 3, 1 << 31, 1 << 63, 1.5, 1e300, "", "x", "a\\0b", "é😀", "user", "text",
    "input_text", {}, [],
)  # fmt: skip


def value(rng: random.Random, depth: int) -> Any:
    """Anything JSON can say, of names that mean something."""
    shape = rng.random()
    if depth > 3 or shape < 0.35:
        return rng.choice(PLAIN)
    if shape < 0.6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {rng.choice(NAMES): value(rng, depth + 1) for _ in range(rng.randrange(6))}


def content(rng: random.Random) -> Any:
    """Of a message: anything, or what looks like parts."""
    if rng.random() < 0.5:
        return value(rng, 2)
    return [{"type": value(rng, 3), "text": value(rng, 4)} for _ in range(2)]


def document(rng: random.Random) -> dict[str, Any]:
    """One in two has what paths ask for first, so that they read on."""
    made = {name: value(rng, 1) for name in rng.sample(NAMES, rng.randrange(9))}
    if rng.random() < 0.6:
        turns = [{"role": "user", "content": content(rng)} for _ in range(2)]
        made[rng.choice(("messages", "input"))] = turns
    for name in ("n", "stream", "user", "stream_options", "max_tokens"):
        if rng.random() < 0.7:
            made.pop(name, None)
    if rng.random() < 0.7:
        made["model"] = "m"
    return made


def asked(path: bytes, body: bytes) -> IncomingRequest:
    head = RequestHead()
    head.method, head.target, head.endpoint = b"POST", path, ENDPOINTS[path]
    request = IncomingRequest(head)
    request.body = body
    return request


@pytest.mark.parametrize("isolated", [False, True])
def test_any_document_is_sent_or_refused_with_the_reason(
    isolated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Exchange, "send", lambda _: None)
    gateway = Gateway(
        GatewaySettings(worker_urls=(), identity_field="both", isolate_prefixes=isolated)
    )
    gateway.dispatcher.engine_up(ENGINE)
    no_one = cast("ClientConnection", SimpleNamespace())
    rng, sent = random.Random(5), 0
    for _ in range(2000):
        path, body = rng.choice(list(ENDPOINTS)), orjson.dumps(document(rng))
        try:
            work = gateway.handle(no_one, asked(path, body))
        except CallerError:
            continue
        assert work is not None, body
        work.on_disconnect()
        sent += 1

    assert 200 < sent < 1900
    assert not gateway.dispatcher.engines[ENGINE].tickets

"""With `--isolate-prefixes` an engine tells a client nothing of what others have asked it."""

import asyncio
import http.client
import importlib.util
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed", allow_module_level=True)
pytestmark = [pytest.mark.e2e, pytest.mark.vllm]

from fairhit.gateway.api.endpoints import ENDPOINTS  # noqa: E402
from fairhit.gateway.api.injected_fields import PrefixIsolation  # noqa: E402
from fairhit.gateway.api.request_body import parse_body  # noqa: E402
from fairhit.gateway.api.response_body import read_whole  # noqa: E402
from fairhit.local.engine_process import HOST  # noqa: E402
from fairhit.routers.prefix_index.precise import Knowledge  # noqa: E402
from tests.e2e.kv_events.engine import (  # noqa: E402
    BLOCK_LEN,
    Engine,
    Pair,
    gateway_before,
    running,
)
from tests.e2e.kv_events.prompts import CHAT, COMPLETIONS  # noqa: E402

SECRET = "of this test"
ISOLATED: dict[str, Any] = {
    "isolate_prefixes": True,
    "isolation_secret": SECRET,
    "tenant_api_key": ("alice:key-a", "bob:key-b"),
}
KEYS = {"alice": "key-a", "bob": "key-b"}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with running(tmp_path_factory.mktemp("engine")) as one:
        yield one


def text(seed: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(["the", "quick", "brown", "fox", "jumps"]) for _ in range(150))


def said(seed: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": text(seed)}]


BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": said(1), "max_tokens": 2},
    COMPLETIONS: {"prompt": text(2), "max_tokens": 2},
    "/v1/messages": {"messages": said(3), "max_tokens": 2},
    "/v1/responses": {"input": text(4), "max_output_tokens": 2},
}


def ask(pair: Pair, client: str, path: str, fields: dict[str, Any]) -> int:
    """How many tokens of the prompt the engine had."""
    connection = http.client.HTTPConnection(HOST, pair.gateway.port, timeout=120)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEYS[client]}"}
    connection.request("POST", path, json.dumps({"model": "demo", **fields}).encode(), headers)
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, body
    connection.close()
    usage, _ = read_whole(ENDPOINTS[path.encode()], body)
    assert usage is not None, body
    return usage.cached_len or 0


def test_a_second_tenants_prompt_is_never_cached_and_ones_own_is(engine: Engine) -> None:
    async def story() -> None:
        async with gateway_before(engine, **ISOLATED) as pair:
            for path, body in BODIES.items():
                for client in KEYS:
                    first = await asyncio.to_thread(ask, pair, client, path, body)
                    again = await asyncio.to_thread(ask, pair, client, path, body)
                    assert (path, client, first, again > 0) == (path, client, 0, True)

    uvloop.run(story())


def test_the_gateways_index_is_split_as_the_engines_cache_is(engine: Engine) -> None:
    """What the engine's events say a salt has left there is known to be that client's alone."""

    async def story() -> None:
        async with gateway_before(engine, **ISOLATED) as pair:
            await pair.until(Knowledge.COMPLETE)
            fields = {"prompt": text(5), "max_tokens": 2}
            await asyncio.to_thread(ask, pair, "alice", COMPLETIONS, fields)
            await pair.heard()
            expected = {client: matched(pair, client, fields) for client in KEYS}
            again = await asyncio.to_thread(ask, pair, "alice", COMPLETIONS, fields)
            assert expected == {"alice": again, "bob": 0}
            assert again > 0

    uvloop.run(story())


def matched(pair: Pair, client: str, fields: dict[str, Any]) -> int:
    """The tokens that the gateway's index has of this client's prompt."""
    tokenizer = pair.gateway._caches.tokenizer
    assert tokenizer is not None
    body = json.dumps({"model": "demo", **fields}).encode()
    call = parse_body(body, ENDPOINTS[COMPLETIONS.encode()])
    call.salt = PrefixIsolation(SECRET).salt(client, "")
    return pair.index.match(tokenizer.prompt(call).reusable).of(pair.engine.url) * BLOCK_LEN

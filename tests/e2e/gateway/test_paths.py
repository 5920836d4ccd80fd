"""Every path to an engine that plays: what it gets to the byte, what its caller gets, what is charged."""

import json
from typing import Any

import pytest

from fairhit.gateway.api.endpoints import ENDPOINTS
from tests.e2e.gateway.path_scripts import PATHS, STREAMS, any_path, path_of
from tests.e2e.gateway.scripts import Received, begin_stream, chat, chunk, good, whole
from tests.e2e.gateway.world import CHAT, World, play

NAMED = b',"vllm_xargs":{"fair_client":"anonymous"}}'
NAMELESS = ("count_tokens", "embeddings", "score", "rerank", "tokenize")


def test_every_path_is_tried_here() -> None:
    tried = {path.partition("?")[0] for path in PATHS}
    spelt_otherwise = {"/v2/rerank", "/rerank"}

    assert {path.decode() for path in ENDPOINTS} == tried | spelt_otherwise


# What no JSON library would write: it must arrive as it was sent.
ODD = (
    rb' { "model" :"m", "a\u0062c":1e300, "big":123456789012345678901234567890 ,"\ud83d\uDE00":"\u0000",'
    rb'"twice":1,"twice":{"x" : [ ]},"tools":[{"type":"function","function":{"name":"f"}}],'
    rb'"logprobs":true,"n":2,"response_format":{"type":"json_schema"} , %b } '
)


@pytest.mark.parametrize("path", PATHS)
def test_an_engine_gets_the_bytes_that_were_sent(path: str) -> None:
    fields = dict(PATHS[path])
    last = json.dumps(fields).encode()[1:-1]
    body = ODD % last

    async def story(world: World) -> None:
        assert (await world.ask(path, body)).status == 200
        received = world.received()[0]
        assert received.head.startswith(f"POST {path} HTTP/1.1\r\n")
        if any(name in path for name in NAMELESS):
            assert received.body == body
        else:
            assert received.body == body.rpartition(b"}")[0] + NAMED + b" "

    play(story, any_path)


def test_with_both_fields_off_every_body_is_untouched() -> None:
    async def story(world: World) -> None:
        bodies = [
            json.dumps({"model": "m", **fields, "stream": path in STREAMS}).encode()
            for path, fields in PATHS.items()
        ]
        for path, body in zip(PATHS, bodies, strict=True):
            await world.ask(path, body)

        assert [received.body for received in world.received()] == bodies

    play(story, any_path, identity_field="none", usage_field="none")


def test_usage_can_be_asked_for_without_naming_the_client() -> None:
    """Stock engines of any make know `stream_options`; few know what `vllm_xargs` is."""

    async def story(world: World) -> None:
        await world.ask(body=chat(stream=True))
        asked = world.received()[0].json()

        assert asked["stream_options"] == {"include_usage": True}
        assert "vllm_xargs" not in asked
        assert world.spent() == 18 + 2 * 3

    play(story, good, identity_field="none")


@pytest.mark.parametrize("path", STREAMS)
def test_streams_of_named_events_reach_the_caller_to_the_byte(path: str) -> None:
    async def story(world: World) -> None:
        body = json.dumps({"model": "m", "stream": True, **PATHS[path]}).encode()
        reply = await world.ask(path, body)

        assert reply.body == b"".join(STREAMS[path])
        assert b"stream_options" not in world.received()[0].body
        assert world.spent() == 18 + 2 * 3

    play(story, any_path)


@pytest.mark.parametrize(
    ("path", "spent"),
    [
        ("/v1/responses", 18 + 2 * 3),
        ("/v1/messages", 18 + 2 * 3),
        ("/v1/embeddings", 18),
        ("/v1/score", 18),
        ("/v1/rerank", 18),
        ("/tokenize", 0),
        ("/detokenize", 0),
        ("/v1/messages/count_tokens", 0),
    ],
)
def test_each_path_is_charged_for_what_its_answer_says(path: str, spent: int) -> None:
    """Twice the same: what is embedded is not taken to be cached the second time."""

    async def story(world: World) -> None:
        body = json.dumps({"model": "m", **PATHS[path]}).encode()
        for _ in range(2):
            assert (await world.ask(path, body)).status == 200

        assert world.spent() == 2 * spent

    play(story, any_path)


def test_what_responses_say_of_the_cache_is_no_promise_of_the_other_paths() -> None:
    """vLLM always says it there, and elsewhere only if started so: silence must not become zero."""
    usage = {"prompt_tokens": 500, "completion_tokens": 1}

    async def silent(received: Received) -> None:
        if path_of(received) == "/v1/responses":
            await any_path(received)
        else:
            whole(received, 200, json.dumps({"choices": [], "usage": usage}).encode())

    async def story(world: World) -> None:
        await world.ask("/v1/responses", b'{"model":"m","input":"hi"}')
        workers = json.loads((await world.get("/workers")).body)["workers"]
        assert workers[0]["fairness"] == "not known yet"
        await world.ask()
        workers = json.loads((await world.get("/workers")).body)["workers"]
        assert workers[0]["fairness"] == "fair in estimated extend"

    play(story, silent)


@pytest.mark.parametrize(
    ("fields", "remembered"),
    [({"n": 1}, True), ({"n": 2}, False), ({"n": 1, "prompt": ["x" * 300, "y"]}, False)],
)
def test_only_a_single_answer_is_what_a_next_turn_begins_with(
    fields: dict[str, Any], remembered: bool
) -> None:
    said = "z" * 600
    used = {"prompt_tokens": 90, "completion_tokens": 9}

    async def long(received: Received) -> None:
        begin_stream(received)
        event = {"choices": [{"index": 0, "text": said}], "usage": used}
        chunk(received, b"data: " + json.dumps(event).encode() + b"\n\n")
        chunk(received, b"data: [DONE]\n\n")
        chunk(received, b"")

    async def story(world: World) -> None:
        body = {"model": "m", "prompt": "x" * 300, "stream": True, **fields}
        index = world.gateway.dispatcher.index
        await world.ask("/v1/completions", json.dumps(body).encode())

        assert (index.size(world.engines[0].url) > 1) is remembered

    play(story, long)


# -- errors


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_errors_of_ours_are_in_the_shape_of_the_path(path: str) -> None:
    async def story(world: World) -> None:
        async def kind(body: bytes, **headers: str) -> tuple[int, str]:
            reply = await world.ask(path, body, authorization="Bearer k", **headers)
            error = json.loads(reply.body)
            assert error["type"] == "error"
            return reply.status, error["error"]["type"]

        other = json.dumps({**PATHS[path], "model": "other"}).encode()
        assert await kind(b"{") == (400, "invalid_request_error")
        assert await kind(other) == (404, "not_found_error")
        assert await kind(b" " * 2000) == (413, "request_too_large")
        stranger = await world.ask(path, other)
        assert json.loads(stranger.body)["error"]["type"] == "authentication_error"
        assert json.loads((await world.get(path)).body)["error"]["type"] == "authentication_error"

    play(story, any_path, tenant_api_key=("alice:k",), max_payload_size=1000)


def test_paths_that_are_not_served_are_named() -> None:
    async def story(world: World) -> None:
        for path in ("/v1/audio/transcriptions", "/v1/responses/r1", "/v1/batches", "/pooling"):
            reply = await world.ask(path)
            assert reply.status == 404
            assert reply.error()["message"] == f"no such path: {path}"
        assert (await world.get("/v1/embeddings")).status == 405
        assert world.received() == []

    play(story, any_path)


def test_an_engines_refusal_reaches_the_caller_as_it_is() -> None:
    refusal = b'{"type":"error","error":{"type":"NotFoundError","message":"no"}}'

    async def refuse(received: Received) -> None:
        whole(received, 404, refusal)

    async def story(world: World) -> None:
        reply = await world.ask("/v1/messages", json.dumps(PATHS["/v1/messages"]).encode())
        assert (reply.status, reply.body) == (404, refusal)
        assert world.spent() == 0

    play(story, refuse)


# -- keys and models


@pytest.mark.parametrize("ours", [True, False])
def test_anthropics_header_shows_a_key(ours: bool) -> None:
    """The header counts like `authorization`, and is passed on only if the gateway has no keys."""

    async def story(world: World) -> None:
        body = json.dumps({"model": "m", **PATHS["/v1/messages"]}).encode()
        known = await world.ask("/v1/messages", body, x_api_key="k1")
        head = world.received()[0].head.lower()
        stranger = await world.ask("/v1/messages", body, x_api_key="k2")
        both = await world.ask("/v1/messages", body, x_api_key="k1", authorization="Bearer k2")

        assert known.status == 200
        assert ("x-api-key: k1\r\n" in head) is not ours
        assert [stranger.status, both.status] == ([401, 401] if ours else [200, 200])
        if ours:
            assert world.received()[0].json()["vllm_xargs"] == {"fair_client": "alice"}

    play(story, any_path, tenant_api_key=("alice:k1",) if ours else ())


def test_a_key_shown_twice_is_refused() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        caller.send(CHAT, chat(), x_api_key="k1", X_API_key="k2")
        assert (await caller.reply()).status == 400

    play(story, any_path, tenant_api_key=("alice:k1",))


def test_one_model_by_its_name() -> None:
    name = "org/the model"
    listed = json.dumps({"data": [{"id": "m", "x": 1}, {"id": name, "owned_by": "o"}]}).encode()

    async def story(world: World) -> None:
        async def get(path: str, key: str = "Bearer k") -> Any:
            caller = await world.connect()
            caller.send(path, authorization=key)
            return await caller.reply()

        assert json.loads((await get("/v1/models/m")).body) == {"id": "m", "x": 1}
        for path in ("/v1/models/org/the%20model", "/v1/models/org%2Fthe%20model?x=1"):
            assert json.loads((await get(path)).body)["owned_by"] == "o"
        unknown = await get("/v1/models/other")
        assert (unknown.status, unknown.error()["code"]) == (404, "model_not_found")
        assert (await get("/v1/models/m", "Bearer no")).status == 401
        assert "version" in json.loads((await get("/version")).body)

    play(story, any_path, models_answer=listed, tenant_api_key=("alice:k",))

"""Every path to an engine that plays: what it gets to the byte, what its caller gets, what is charged."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import openai
import pytest

from fairlead.gateway.surface import SURFACES
from tests.e2e.gateway.scripts import (
    Received,
    begin_stream,
    broken,
    chat,
    chunk,
    good,
    hang,
    whole,
)
from tests.e2e.gateway.world import CHAT, World, eventually, play

NAMED = b',"vllm_xargs":{"fair_client":"anonymous"}}'
ASKED = [{"role": "user", "content": "hi"}]
PATHS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": ASKED},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": ASKED, "max_tokens": 5},
    "/v1/messages?beta=true": {"messages": ASKED, "max_tokens": 5},
    "/v1/messages/count_tokens": {"messages": ASKED},
    "/v1/embeddings": {"input": ["hi"]},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/score": {"text_1": "a", "text_2": "b"},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
    "/tokenize": {"prompt": "hi"},
    "/detokenize": {"tokens": [1]},
}
NAMELESS = ("count_tokens", "embeddings", "score", "rerank", "tokenize")

RESPONSE = {
    "output": [{"type": "message", "content": [{"type": "output_text", "text": "abc"}]}],
    "usage": {
        "input_tokens": 50,
        "output_tokens": 3,
        "input_tokens_details": {"cached_tokens": 32},
    },
}
MESSAGE = {
    "content": [{"type": "text", "text": "abc"}],
    "usage": {"input_tokens": 18, "output_tokens": 3, "cache_read_input_tokens": 32},
}
VECTORS = {"data": [{"embedding": [0.5]}], "usage": {"prompt_tokens": 18, "total_tokens": 18}}
COUNTED = {"input_tokens": 50, "usage": {"prompt_tokens": 50}}


def named(name: str, **data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def text(piece: str) -> dict[str, str]:
    return {"type": "text_delta", "text": piece}


STREAMS: dict[str, list[bytes]] = {
    "/v1/responses": [
        named("response.created", response={"id": "r", "output": [], "usage": None}),
        *(named("response.output_text.delta", delta=piece) for piece in "abc"),
        named("response.completed", response=RESPONSE),
    ],
    "/v1/messages": [
        named("message_start", message={**MESSAGE, "id": "m", "role": "assistant", "content": []}),
        named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(named("content_block_delta", index=0, delta=text(piece)) for piece in "abc"),
        named("content_block_stop", index=0),
        named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3}),
        named("message_stop"),
    ],
}


def path_of(received: Received) -> str:
    return received.head.split()[1].partition("?")[0]


async def any_path(received: Received) -> None:
    """What an engine answers on each of its paths."""
    path, request = path_of(received), received.json()
    if request.get("stream") and path in STREAMS:
        begin_stream(received)
        for event in STREAMS[path]:
            chunk(received, event)
        chunk(received, b"")
        return
    answers = {"/v1/responses": RESPONSE, "/v1/messages": MESSAGE, "/v1/embeddings": VECTORS}
    for name in ("score", "rerank"):
        answers |= {f"/{name}": VECTORS, f"/v1/{name}": VECTORS}
    for path_without in ("/tokenize", "/detokenize", "/v1/messages/count_tokens"):
        answers[path_without] = COUNTED
    if path in answers:
        whole(received, 200, json.dumps(answers[path]).encode())
    else:
        await good(received)


def stops_after(pieces: int) -> Callable[[Received], Awaitable[None]]:
    async def script(received: Received) -> None:
        begin_stream(received)
        for event in STREAMS[path_of(received)][:pieces]:
            chunk(received, event)
        await asyncio.sleep(0.05)
        received.writer.close()

    return script


def test_every_path_is_tried_here() -> None:
    tried = {path.partition("?")[0] for path in PATHS}
    spelt_otherwise = {"/v2/rerank", "/rerank"}

    assert {path.decode() for path in SURFACES} == tried | spelt_otherwise


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
    """It is believed as HTTP's own header is, and like that passed on only where it is not ours."""

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


# -- the official clients


def by_openai(world: World) -> openai.AsyncOpenAI:
    url = f"http://127.0.0.1:{world.gateway.port}/v1"
    return openai.AsyncOpenAI(base_url=url, api_key="k", max_retries=0)


def by_anthropic(world: World) -> anthropic.AsyncAnthropic:
    url = f"http://127.0.0.1:{world.gateway.port}"
    return anthropic.AsyncAnthropic(base_url=url, api_key="k", max_retries=0)


async def message(world: World) -> None:
    made = by_anthropic(world).messages
    async with made.stream(model="m", max_tokens=5, messages=ASKED) as stream:  # type: ignore[arg-type]
        async for _ in stream:
            pass


async def response(world: World) -> None:
    async for _ in await by_openai(world).responses.create(model="m", input="hi", stream=True):
        pass


def test_official_clients_understand_what_passes() -> None:
    async def story(world: World) -> None:
        await message(world)
        await response(world)
        assert world.spent("alice") == 2 * (18 + 2 * 3)

    play(story, any_path, tenant_api_key=("alice:k",))


@pytest.mark.parametrize(
    ("ask", "expected"),
    [(message, anthropic.APIStatusError), (response, openai.APIError)],
    ids=["anthropic", "openai"],
)
def test_official_clients_raise_when_an_engine_stops_halfway(
    ask: Callable[[World], Awaitable[None]], expected: type[Exception]
) -> None:
    """An answer cut short must not look like a whole one; and nobody pays for what did not come."""

    async def story(world: World) -> None:
        with pytest.raises(expected, match="the engine failed while answering"):
            await ask(world)

    play(story, stops_after(4))


def test_official_clients_know_our_errors() -> None:
    async def story(world: World) -> None:
        busy = await world.connect()
        busy.send(CHAT, chat())
        await eventually(lambda: len(world.received()) == 1)
        with pytest.raises(anthropic.RateLimitError):
            await message(world)
        with pytest.raises(openai.RateLimitError):
            await response(world)
        busy.reset()
        await asyncio.wait_for(world.engines[0].left.wait(), 2)
        await eventually(lambda: not world.gateway._exchanges)
        world.engines[0].script = broken
        with pytest.raises(anthropic.InternalServerError):
            await message(world)

    play(story, hang, max_client_requests=1)

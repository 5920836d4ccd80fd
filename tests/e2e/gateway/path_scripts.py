"""Each path to an engine: a body for it, and what an engine that plays answers, whole and streamed."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from tests.e2e.gateway.scripts import Received, begin_stream, chunk, good, whole

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

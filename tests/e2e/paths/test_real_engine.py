"""Each path of real vLLM servers through the gateway: the same answers as without it, and all charged."""

import http.client
import json
import re
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("vllm") is None:
    pytest.skip("vLLM is not installed", allow_module_level=True)
pytestmark = [pytest.mark.e2e, pytest.mark.vllm]

from fairhit.local.engine_process import HOST  # noqa: E402
from tests.e2e.paths.conftest import EMBEDS, WRITES, Pair  # noqa: E402

# Shorter than a block, so that nothing of it is cached the second time.
ASKED = [{"role": "user", "content": "hello"}]
GREEDY: dict[str, Any] = {"model": WRITES, "temperature": 0}
SEEDED: dict[str, Any] = {"model": WRITES, "temperature": 1, "seed": 7}
TOOL = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}},
}  # fmt: skip
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "s", "schema": {"enum": ["left", "right"]}},
}

WHOLE: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {**GREEDY, "messages": ASKED, "max_tokens": 6}),
    "chat of two": (
        "/v1/chat/completions",
        {**SEEDED, "messages": ASKED, "max_completion_tokens": 4, "n": 2, "logprobs": True,
         "top_logprobs": 2},
    ),
    "chat with tools": (
        "/v1/chat/completions",
        {**GREEDY, "messages": ASKED, "max_tokens": 4, "tools": [TOOL], "tool_choice": "auto"},
    ),
    "chat to a schema": (
        "/v1/chat/completions",
        {**GREEDY, "messages": ASKED, "max_tokens": 8, "response_format": SCHEMA},
    ),
    "completion": ("/v1/completions", {**GREEDY, "prompt": "hello", "max_tokens": 5}),
    "completions of a batch": (
        "/v1/completions",
        {**SEEDED, "prompt": ["hello", "you"], "n": 2, "max_tokens": 3, "logprobs": 1, "echo": True},
    ),
    "completion of tokens": ("/v1/completions", {**GREEDY, "prompt": [5, 6, 7], "max_tokens": 5}),
    "response": ("/v1/responses", {**GREEDY, "input": "hello", "max_output_tokens": 6}),
    "response to items": (
        "/v1/responses",
        {**GREEDY, "instructions": "be", "max_output_tokens": 4,
         "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
    ),
    "message": ("/v1/messages", {**GREEDY, "messages": ASKED, "max_tokens": 6, "system": "be"}),
    "embedding": ("/v1/embeddings", {"model": EMBEDS, "input": ["hello", "you"]}),
    "embedding in base64": (
        "/v1/embeddings", {"model": EMBEDS, "input": [5, 6], "encoding_format": "base64"},
    ),
    "score": ("/v1/score", {"model": EMBEDS, "text_1": "hello", "text_2": ["you", "hello"]}),
    "rerank": ("/v1/rerank", {"model": EMBEDS, "query": "hello", "documents": ["you", "hello"]}),
}  # fmt: skip
FREE: dict[str, tuple[str, dict[str, Any]]] = {
    "tokenize": ("/tokenize", {"model": WRITES, "prompt": "hello"}),
    "detokenize": ("/detokenize", {"model": WRITES, "tokens": [5, 6]}),
    "count tokens": ("/v1/messages/count_tokens", {"model": WRITES, "messages": ASKED}),
}
STREAMED = {
    name: WHOLE[name]
    for name in ("chat", "chat of two", "chat with tools", "completion", "response", "message")
}
# What an engine makes up anew for each answer.
_OWN = re.compile(r'"(id|item_id|created|created_at|request_id|signature)": ?("[^"]*"|\d+)')


def without_own(body: bytes) -> str:
    return _OWN.sub(r'"\1":0', body.decode())


def settled(usage: dict[str, Any]) -> tuple[int, int]:
    """Prompt and output tokens, under whichever names."""
    prompt = usage.get("prompt_tokens", usage.get("input_tokens"))
    cached = usage.get("cache_read_input_tokens", 0)
    return prompt + cached, usage.get("completion_tokens", usage.get("output_tokens", 0))


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_answer_is_the_engines_own(pair: Pair, name: str):
    path, body = WHOLE[name]
    direct = pair.directly(path, body)
    assert direct.status == 200, direct.body
    through = pair.through(path, body, client=f"whole {name}")

    assert without_own(through.body) == without_own(direct.body)
    extend, cached, output = pair.taken(f"whole {name}")
    assert (extend + cached, output) == settled(direct.json()["usage"])


@pytest.mark.parametrize("name", FREE)
def test_where_no_model_runs_nothing_is_charged(pair: Pair, name: str):
    path, body = FREE[name]
    through = pair.through(path, body, client=f"free {name}")

    assert (through.status, through.body) == (200, pair.directly(path, body).body)
    assert pair.taken(f"free {name}") == (0, 0, 0)


def read_events(body: bytes) -> tuple[str, list[str], dict[str, Any] | None]:
    """The text, the events that bring none, and the usage.

    How many tokens come in one event depends on when the engine sends them, and is not promised.
    """
    text, others, usage = "", [], None
    for event in without_own(body).split("\n\n"):
        data = event.rpartition("data: ")[2]
        if not data or data == "[DONE]":
            others.append(data)
            continue
        document = json.loads(data)
        document.pop("sequence_number", None)
        pieces, found = taken_out(document)
        text += pieces
        usage = found or usage
        if not pieces:
            others.append(json.dumps(document))
    return text, others, usage


def taken_out(document: dict[str, Any]) -> tuple[str, dict[str, Any] | None]:
    """The text an event brings and the usage it reports."""
    usage = document.get("usage") or (document.get("response") or {}).get("usage")
    if "choices" in document:
        pieces = [
            f"{choice['index']}:{choice.get('text') or choice.get('delta', {}).get('content') or ''}"
            for choice in document["choices"]
        ]
        return "".join(p for p in pieces if not p.endswith(":")), usage
    delta = document.get("delta")
    if isinstance(delta, str):
        return delta, usage
    return (delta or {}).get("text") or "", usage


@pytest.mark.parametrize("name", STREAMED)
def test_a_stream_is_the_engines_own(pair: Pair, name: str):
    path, body = STREAMED[name]
    body = {**body, "stream": True, "ignore_eos": True}
    asks = {"stream_options": {"include_usage": True}} if "choices" in shape(path) else {}
    direct = pair.directly(path, {**body, **asks})
    assert direct.status == 200, direct.body
    quiet = pair.through(path, body, client=f"quiet {name}")
    asking = pair.through(path, {**body, **asks}, client=f"asking {name}")

    text, others, usage = read_events(direct.body)
    assert usage is not None
    assert text
    assert sorted_by_choice(read_events(asking.body)[0]) == sorted_by_choice(text)
    assert read_events(asking.body)[1:] == (others, usage)
    assert sorted_by_choice(read_events(quiet.body)[0]) == sorted_by_choice(text)
    assert (read_events(quiet.body)[2] is None) is bool(asks)
    for client in (f"quiet {name}", f"asking {name}"):
        extend, cached, output = pair.taken(client)
        assert (extend + cached, output) == settled(usage)


def shape(path: str) -> str:
    return "choices" if path.endswith("completions") else "named"


def sorted_by_choice(text: str) -> dict[str, str]:
    """Two choices come interleaved as it happens; `0:a1:b0:c` is ac and b."""
    found: dict[str, str] = {}
    for choice, piece in re.findall(r"([01]):((?:(?![01]:).)*)", text, re.DOTALL) or [("0", text)]:
        found[choice] = found.get(choice, "") + piece
    return found


def test_a_caller_that_leaves_pays_for_what_it_got(pair: Pair):
    """Named events are counted as they pass, since their usage comes only at the end."""
    for number, (path, body) in enumerate((STREAMED["message"], STREAMED["response"])):
        limit = "max_tokens" if "max_tokens" in body else "max_output_tokens"
        asked = {**body, limit: 1500, "stream": True, "ignore_eos": True}
        connection = http.client.HTTPConnection(HOST, pair.gateway, timeout=60)
        headers = {"Content-Type": "application/json", "x-smg-tenant-id": f"left {number}"}
        connection.request("POST", path, json.dumps(asked).encode(), headers)
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read(6000)
        answer.close()
        connection.close()

        assert 2 < pair.taken(f"left {number}")[2] < 1400


def test_models_that_are_asked_for_what_they_cannot_say_so(pair: Pair):
    embedded = pair.through("/v1/embeddings", {"model": WRITES, "input": "x"}, client="cannot")
    chatted = pair.through(
        "/v1/chat/completions", {"model": EMBEDS, "messages": ASKED}, client="cannot"
    )

    assert (embedded.status, chatted.status) == (404, 404)
    assert pair.taken("cannot") == (0, 0, 0)
    assert all(worker.up for worker in pair.dispatcher.engines.values())

"""Each path's own reading of prompts, limits and how many answers are asked for."""

from typing import Any

import orjson
import pytest

from fairhit.errors import BadRequest
from fairhit.gateway.api.endpoints import Endpoint
from fairhit.gateway.api.endpoints.messages import MESSAGES
from fairhit.gateway.api.endpoints.openai import CHAT, COMPLETIONS, EMBEDDINGS, SCORING
from fairhit.gateway.api.endpoints.responses import RESPONSES
from fairhit.gateway.api.request_body import answer_text, parse_body

ASKED, SAID = "What is a fairhit?", "A ring that guides a rope."


def text_of(endpoint: Endpoint, **fields: Any) -> bytes:
    return parse_body(orjson.dumps(fields), endpoint).text()


def test_a_conversation_is_the_same_by_whichever_path_it_comes() -> None:
    """The engine's cache does not know the path, and a client may change its library."""
    turns = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": SAID},
        {"role": "user", "content": "?"},
    ]
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": ASKED}]},
        {
            "type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": SAID, "annotations": []}],
        },
        {"role": "user", "content": "?"},
    ]  # fmt: skip
    blocks = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]

    by_chat = text_of(CHAT, messages=[{"role": "system", "content": "Be brief."}, *turns])
    assert text_of(RESPONSES, instructions="Be brief.", input=items) == by_chat
    assert text_of(MESSAGES, system="Be brief.", messages=turns) == by_chat
    assert text_of(MESSAGES, system=blocks, messages=turns) == by_chat


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES, MESSAGES], ids=lambda one: one.name)
def test_the_next_turn_begins_with_this_one_and_its_answer(endpoint: Endpoint) -> None:
    field = "input" if endpoint is RESPONSES else "messages"
    first = {"role": "user", "content": ASKED}
    answer = {"role": "assistant", "content": SAID}
    turn = text_of(endpoint, **{field: [first]})
    follow_up = text_of(endpoint, **{field: [first, answer, first]})

    assert follow_up.startswith(turn + answer_text(SAID, endpoint) + b"\0user\0")


def test_a_continued_completion_begins_with_its_prompt_and_text() -> None:
    turn = text_of(COMPLETIONS, prompt="Once ")

    assert text_of(COMPLETIONS, prompt="Once upon") == turn + answer_text("upon", COMPLETIONS)


def test_marks_for_caching_are_no_part_of_a_prompt() -> None:
    """Agents move them to the newest message with every turn."""
    result = {"type": "tool_result", "tool_use_id": "t", "content": "5"}
    marked = {**result, "cache_control": {"type": "ephemeral"}}

    plain = text_of(MESSAGES, messages=[{"role": "user", "content": [result]}])
    assert text_of(MESSAGES, messages=[{"role": "user", "content": [marked]}]) == plain
    assert b'"tool_use_id":"t"' in plain


def test_items_that_are_no_messages_are_part_of_a_prompt() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "5"}

    text = text_of(RESPONSES, input=[{"role": "user", "content": ASKED}, call, output])
    assert text.endswith(orjson.dumps(call) + b"\0" + orjson.dumps(output))


@pytest.mark.parametrize(
    ("given", "tokens"), [("text", None), (["a", "b"], None), ([1, 2, 3], 3), ([[1, 2], [3]], 3)]
)
def test_every_form_of_what_is_embedded(given: object, tokens: int | None) -> None:
    call = parse_body(orjson.dumps({"input": given}), EMBEDDINGS)

    assert (call.tokens and len(call.tokens) // 4) == tokens
    assert call.max_tokens == 1


def test_everything_that_is_scored_counts() -> None:
    pairs = text_of(SCORING, text_1="ab", text_2=["cd", "ef"])
    ranked = text_of(SCORING, query="ab", documents=["cd", {"text": "ef"}])

    assert pairs == ranked
    assert pairs.endswith(b"ab\0cd\0ef")


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES, MESSAGES], ids=lambda one: one.name)
@pytest.mark.parametrize("kind", [{}, [], ["text"], 5, None])
def test_a_part_of_any_type_is_the_engines_to_refuse(endpoint: Endpoint, kind: object) -> None:
    part = {"type": kind, "text": ASKED}
    field = "input" if endpoint is RESPONSES else "messages"

    text = text_of(endpoint, **{field: [{"role": "user", "content": [part]}]})
    assert orjson.dumps([part]) in text


@pytest.mark.parametrize(
    ("fields", "answers"),
    [
        ({"prompt": "a"}, 1),
        ({"prompt": "a", "n": None}, 1),
        ({"prompt": "a", "n": 3}, 3),
        ({"prompt": ["a", "b"], "n": 2}, 4),
        ({"prompt": [1, 2]}, 1),
        ({"prompt": [[1], [2]]}, 2),
        ({"prompt": "a", "n": "many"}, 1),  # the engine will say
        ({"prompt": "a", "n": 10**9}, 128),
        ({"prompt": "a", "n": -1}, 1),
    ],
)
def test_how_many_answers_are_asked_for(fields: dict[str, Any], answers: int) -> None:
    assert parse_body(orjson.dumps(fields), COMPLETIONS).answers == answers


@pytest.mark.parametrize(
    ("endpoint", "fields", "param"),
    [
        (RESPONSES, {}, "input"),
        (RESPONSES, {"input": []}, "input"),
        (RESPONSES, {"input": 5}, "input"),
        (RESPONSES, {"input": ["hi"]}, "input[0]"),
        (RESPONSES, {"input": [{"role": 5}]}, "input[0]"),
        (RESPONSES, {"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        (RESPONSES, {"input": "hi", "max_output_tokens": "x"}, "max_output_tokens"),
        (RESPONSES, {"input": "hi", "previous_response_id": "r"}, "previous_response_id"),
        (RESPONSES, {"input": "hi", "conversation": {"id": "c"}}, "conversation"),
        (RESPONSES, {"input": "hi", "background": True}, "background"),
        (MESSAGES, {}, "messages"),
        (MESSAGES, {"messages": ["hi"]}, "messages[0]"),
        (MESSAGES, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (MESSAGES, {"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content"),
        (MESSAGES, {"messages": [{"role": "user", "content": "x"}], "system": 5}, "system"),
        (MESSAGES, {"messages": [{"role": "u", "content": "x"}], "max_tokens": -1}, "max_tokens"),
        (EMBEDDINGS, {}, "input"),
        (EMBEDDINGS, {"input": {}}, "input"),
        (EMBEDDINGS, {"messages": []}, "messages"),
        (SCORING, {"documents": ["x"] * 5000}, "documents"),
    ],
)
def test_what_is_refused_and_the_field_named(
    endpoint: Endpoint, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_body(orjson.dumps(fields), endpoint)

    assert refused.value.param == param


@pytest.mark.parametrize("endpoint", [RESPONSES, MESSAGES, EMBEDDINGS], ids=lambda one: one.name)
def test_only_where_it_exists_is_usage_asked_for(endpoint: Endpoint) -> None:
    """`stream_options` is another thing in responses, and nothing elsewhere."""
    given = [{"role": "user", "content": "x"}]
    fields = {"input": "x", "messages": given, "stream": True, "stream_options": 5}

    assert parse_body(orjson.dumps(fields), endpoint).asks_usage

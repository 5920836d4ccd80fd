"""What is read of a body, and how what is wrong with one is said."""

import orjson
import pytest
from pydantic import BaseModel

from fairhit.errors import BadRequest, NotFound, QueueFull
from fairhit.gateway.api.endpoints.errors import openai_error
from fairhit.gateway.api.endpoints.openai import CHAT, COMPLETIONS
from fairhit.gateway.api.request_body import answer_text, parse_body


def chat(**fields: object) -> bytes:
    return orjson.dumps({"messages": [{"role": "user", "content": "hi"}], **fields})


def test_the_few_fields_of_a_chat_request() -> None:
    call = parse_body(
        chat(
            model="m", stream=True, max_tokens=7, user="u", stream_options={"include_usage": True}
        ),
        CHAT,
    )

    assert (call.model, call.stream, call.asks_usage) == ("m", True, True)
    assert (call.max_tokens, call.user, call.tokens) == (7, "u", None)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (None, False),
        ({}, False),
        ({"include_usage": False}, False),
        ({"include_usage": True}, True),
        ({"include_usage": 1}, True),  # engines take this for true
        ({"continuous_usage_stats": True}, True),  # ours would come in every event
    ],
)
def test_when_usage_is_the_callers_business(options: object, shown: bool) -> None:
    call = parse_body(chat(stream=True, stream_options=options), CHAT)

    assert call.asks_usage is shown


def test_the_next_turn_begins_with_this_one_and_its_answer() -> None:
    """Otherwise a conversation would not find the engine that has it cached."""
    first = {"role": "user", "content": "What is a fairhit?"}
    turn = parse_body(chat(messages=[first]), CHAT)
    answer = {"role": "assistant", "content": "A ring that guides a rope."}
    follow_up = parse_body(chat(messages=[first, answer, {"role": "user", "content": "?"}]), CHAT)

    said = turn.text() + answer_text(str(answer["content"]), CHAT)
    assert follow_up.text().startswith(said + b"\0user\0")


def test_what_splits_the_engines_cache_splits_ours() -> None:
    texts = {
        parse_body(chat(**fields), CHAT).text()
        for fields in (
            {},
            {"model": "adapter"},
            {"cache_salt": "s"},
            {"tools": [{"type": "function"}]},
            {"messages": [{"role": "system", "content": "hi"}]},
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
        )
    }

    assert len(texts) == 6


def test_parts_of_text_are_text() -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    split = chat(messages=[{"role": "user", "content": parts}])

    assert parse_body(split, CHAT).text() == parse_body(chat(), CHAT).text()


def test_a_prompt_with_an_image_begins_with_what_came_before_it() -> None:
    """Follow-ups send the image again, and must find the engine that has it cached."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    seen = {"role": "user", "content": [{"type": "text", "text": "h"}, image]}
    turn = parse_body(chat(messages=[seen]), CHAT)
    follow_up = parse_body(chat(messages=[seen, {"role": "user", "content": "?"}]), CHAT)
    other = {"role": "user", "content": [{"type": "text", "text": "h"}, {**image, "x": 1}]}

    assert follow_up.text().startswith(turn.text())
    assert parse_body(chat(messages=[other]), CHAT).text() != turn.text()


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("text", None), (["a", "b"], None), ([1, 2, 3], 3), ([[1, 2], [3]], 3)],
)
def test_every_form_of_a_prompt(prompt: object, tokens: int | None) -> None:
    call = parse_body(orjson.dumps({"prompt": prompt}), COMPLETIONS)

    assert (call.tokens and len(call.tokens) // 4) == tokens
    assert call.max_tokens == 16


@pytest.mark.parametrize("limit", [5, 5.0, "5", " 5 ", "+5", "5.00"])
def test_a_whole_number_is_read_as_the_engines_read_it(limit: object) -> None:
    """They take all of these for 5, and the choices of an answer alike."""

    class Lax(BaseModel):
        max_tokens: int

    call = parse_body(chat(max_tokens=limit, n=limit), CHAT)

    assert Lax.model_validate({"max_tokens": limit}).max_tokens == call.max_tokens == 5
    assert call.answers == 5


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", None),
        (b"{", None),
        (b"[]", None),
        (b'"x"', None),
        (b"\xff\xfe{\x00}\x00", None),
        (b'{"a":NaN}', None),
        (b"{}", "messages"),
        (chat(messages=[]), "messages"),
        (chat(messages="hi"), "messages"),
        (chat(messages=["hi"]), "messages[0]"),
        (chat(messages=[{"role": "user"}, {"content": "x"}]), "messages[1]"),
        (chat(messages=[{"role": "user", "content": 5}]), "messages[0].content"),
        (chat(messages=[{"role": "user"}] * 4097), "messages"),
        (chat(messages=[{"role": "user", "content": [{}] * 4097}]), "messages[0].content"),
        (chat(model=5), "model"),
        (chat(model="m" * 257), "model"),
        (chat(stream="yes"), "stream"),
        (chat(stream_options=True), "stream_options"),
        (chat(max_tokens="many"), "max_tokens"),
        (chat(max_tokens=-1), "max_tokens"),
        (chat(max_tokens=True), "max_tokens"),
        (chat(max_tokens=5.5), "max_tokens"),
        (chat(max_tokens="-1"), "max_tokens"),
        (chat(max_tokens="5e3"), "max_tokens"),
        (chat(max_tokens="9" * 5000), "max_tokens"),
        (chat(max_completion_tokens=1.5), "max_completion_tokens"),
        (chat(user=1), "user"),
        (
            b'{"messages":[{"role":"user","content":[' + b"[" * 400 + b"]" * 400 + b"]}]}",
            "messages",
        ),
        (b"[" * 100_000, None),
    ],
)
def test_bad_chat_bodies_are_refused_and_the_field_named(body: bytes, param: str | None) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_body(body, CHAT)

    assert refused.value.param == param
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "prompt",
    [None, 5, [], [1, "a"], [1.5], [-1], [1 << 40], {"a": 1}, ["a"] * 4097, [[1]] * 4097],
)
def test_bad_prompts_are_refused(prompt: object) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_body(orjson.dumps({"prompt": prompt}), COMPLETIONS)

    assert refused.value.param == "prompt"


def test_errors_have_openais_shape() -> None:
    assert orjson.loads(openai_error(QueueFull("full"), 429)) == {
        "error": {
            "message": "full",
            "type": "rate_limit_error",
            "param": None,
            "code": "rate_limit_exceeded",
        }
    }
    error = orjson.loads(openai_error(NotFound("no", param="model"), 404))["error"]
    assert (error["code"], error["param"]) == ("model_not_found", "model")

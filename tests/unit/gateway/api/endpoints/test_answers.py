"""Each path's own reading of usage and events, and the shapes of its errors."""

import json
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.dispatch import Usage
from fairhit.dispatch.accounting.token_scale import TokenScale
from fairhit.errors import BadRequest, EngineFailed, NoEngine, QueueFull, Unauthorized
from fairhit.gateway.api.endpoints import ENDPOINTS, Endpoint, endpoint_of
from fairhit.gateway.api.endpoints.endpoint import UNLIMITED
from fairhit.gateway.api.endpoints.messages import MESSAGES
from fairhit.gateway.api.endpoints.openai import COMPLETIONS, COUNT_TOKENS, EMBEDDINGS, TOKENIZE
from fairhit.gateway.api.endpoints.responses import RESPONSES
from fairhit.gateway.api.response_body import StreamedResponse, read_whole


def named(name: str, data: dict[str, Any], end: bytes = b"\n\n") -> bytes:
    """An event as vLLM writes it: compact, after its name."""
    return f"event: {name}\ndata: ".encode() + orjson.dumps({"type": name, **data}) + end


RESPONSE_USAGE = {
    "input_tokens": 50, "output_tokens": 3, "total_tokens": 53,
    "input_tokens_details": {"cached_tokens": 32},
}  # fmt: skip
MESSAGE_USAGE = {"input_tokens": 18, "output_tokens": 3, "cache_read_input_tokens": 32}
TEXTS = ["Hello", ' "delta":"no" "usage":{ \\ "text":"', "é\n☃😀"]


def response_stream() -> bytes:
    """As vLLM 0.32 sends it, with a thought before the text and the text again at the end."""
    whole = {"type": "message", "content": [{"type": "output_text", "text": "".join(TEXTS)}]}
    return b"".join(
        [
            named("response.created", {"response": {"id": "r", "output": [], "usage": None}}),
            named("response.reasoning_text.delta", {"delta": "hm", "item_id": "1"}),
            named("response.reasoning_summary_text.delta", {"delta": "hm", "item_id": "1"}),
            *(named("response.output_text.delta", {"item_id": "2", "delta": t}) for t in TEXTS),
            named("response.output_text.done", {"text": "".join(TEXTS)}),
            named("response.output_item.done", {"item": whole}),
            named("response.completed", {"response": {"output": [whole], "usage": RESPONSE_USAGE}}),
        ]
    )


def message_stream(*, last: dict[str, Any] | None = None) -> bytes:
    """As vLLM and Anthropic send it; the last report may be of the output alone."""
    begun = {"input_tokens": 18, "output_tokens": 0, "cache_read_input_tokens": 32}
    used = MESSAGE_USAGE if last is None else last
    delta = {"delta": {"stop_reason": "end_turn"}, **({"usage": used} if used else {})}

    def brought(**fields: str) -> bytes:
        return named("content_block_delta", {"index": 0, "delta": fields})

    return b"".join(
        [
            named("message_start", {"message": {"id": "m", "content": [], "usage": begun}}),
            named("content_block_start", {"content_block": {"type": "thinking", "thinking": ""}}),
            brought(type="thinking_delta", thinking="hm"),
            brought(type="signature_delta", signature="abc"),
            named("ping", {}),
            named("content_block_start", {"content_block": {"type": "text", "text": ""}}),
            *(brought(type="text_delta", text=text) for text in TEXTS),
            named("message_delta", delta),
            named("message_stop", {}),
        ]
    )


@settings(max_examples=40)
@given(cuts=st.lists(st.integers(0, 1 << 16), max_size=12), crlf=st.booleans())
@pytest.mark.parametrize("endpoint", [RESPONSES, MESSAGES], ids=lambda one: one.name)
def test_any_cut_of_a_stream_of_named_events_reads_the_same(
    endpoint: Endpoint, cuts: list[int], crlf: bool
) -> None:
    data = response_stream() if endpoint is RESPONSES else message_stream()
    data = data.replace(b"\n", b"\r\n") if crlf else data
    at = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    answer = StreamedResponse(endpoint, hide_usage=False)
    sent = b"".join(answer.feed(data[a:b]) for a, b in pairwise(at)) + answer.rest()

    assert sent == data
    assert answer.usage is not None
    assert answer.usage[:3] == (50, 3, 32)
    assert answer.text() == "".join(TEXTS)


def preamble(*, end: bytes = b"\n\n", **fields: Any) -> bytes:
    """What vLLM and SGLang write before the request is in the engine's queue."""
    data = {"response": {"id": "r", "output": [], "usage": None, **fields}}
    return b"".join(
        named(f"response.{kind}", data, end) for kind in ("created", "in_progress", "queued")
    )


@settings(max_examples=40)
@given(cuts=st.lists(st.integers(0, 1 << 16), max_size=12), crlf=st.booleans())
def test_a_preamble_is_held_until_another_event_arrives(cuts: list[int], crlf: bool) -> None:
    """However the bytes are cut: for the gateway the first byte is the engine's taking the request in."""
    quoted = preamble(
        instructions='\n\nevent: response.output_text.delta\ndata: {"delta":"no"}\n\n'
    )
    more = named("response.output_item.added", {"item": {}}) + response_stream()
    first, rest = (
        part.replace(b"\n", b"\r\n") if crlf else part for part in (quoted, more)
    )  # fmt: skip
    at = sorted({0, len(first), *(cut % len(first) for cut in cuts)})
    answer = StreamedResponse(RESPONSES, hide_usage=False)

    assert [answer.feed(first[a:b]) for a, b in pairwise(at)] == [b""] * (len(at) - 1)
    assert answer.feed(rest) == first + rest
    assert answer.feed(first) == first  # later it is an event like others


def test_a_preamble_alone_is_no_answer() -> None:
    """A stream that ends with it failed before it began: another engine can be asked."""
    answer, cut = (StreamedResponse(RESPONSES, hide_usage=False) for _ in range(2))
    assert answer.feed(preamble()) + answer.rest() == b""
    assert cut.feed(preamble() + b"event: resp") + cut.rest() == preamble() + b"event: resp"


def test_no_more_than_a_mebibyte_of_preambles_is_held() -> None:
    answer = StreamedResponse(RESPONSES, hide_usage=False)
    long = preamble(instructions="x" * 300_000)
    held = 0
    while not (passed := answer.feed(long)):
        held += len(long)

    assert 0 < held <= 1 << 20
    assert len(passed) == held + len(long)


def test_only_responses_greet() -> None:
    """vLLM 0.32 and SGLang 0.5.23 begin a message, and say who speaks in a chat, with the first output."""
    for endpoint in ENDPOINTS.values():
        assert (endpoint.stream_format.is_preamble is not None) is (endpoint is RESPONSES)
    answer = StreamedResponse(MESSAGES, hide_usage=False)
    first = named("message_start", {"message": {"id": "m", "content": []}})

    assert answer.feed(first) == first


def test_who_leaves_pays_for_the_deltas_it_got() -> None:
    """Thoughts count once, under whichever name they come; the text at the end not again."""
    without_end = response_stream().rpartition(b"event: response.completed")[0]
    answer = StreamedResponse(RESPONSES, hide_usage=False)
    answer.feed(without_end)

    assert (answer.usage, answer.output_len) == (None, 4)


@pytest.mark.parametrize(
    ("event", "usage", "outputs"),
    [
        (named("response.reasoning_text.delta", {"delta": "x" * 400}), None, 100),
        (named("response.function_call_arguments.delta", {"delta": "x" * 400}), None, 100),
        (named("response.output_text.delta", {"delta": "x" * 8}), None, 1),
        (
            named("response.output_text.delta", {"delta": "x" * 400}),
            named("response.completed", {"response": {"usage": RESPONSE_USAGE}}),
            3,
        ),
    ],
)
def test_an_event_of_several_tokens_counts_as_several_unless_the_engine_says(
    event: bytes, usage: bytes | None, outputs: int
) -> None:
    answer = StreamedResponse(RESPONSES, hide_usage=False)
    answer.feed(event)
    answer.feed(usage or b"")

    assert answer.counted(TokenScale(), most=UNLIMITED) == outputs
    # Asked again, as where one fails and then moves.
    assert answer.counted(TokenScale(), most=UNLIMITED) == outputs


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({"output_tokens": 9}, Usage(50, 9, 32)),
        ({"input_tokens": 18, "output_tokens": 9, "cache_read_input_tokens": 32}, Usage(50, 9, 32)),
        ({}, Usage(50, 4, 32)),  # counted: a thought and three texts
    ],
)
def test_the_end_of_a_message_completes_its_beginning(
    last: dict[str, Any], expected: Usage
) -> None:
    answer = StreamedResponse(MESSAGES, hide_usage=False)
    answer.feed(message_stream(last=last))

    assert answer.usage == expected


def test_arguments_of_tools_are_output() -> None:
    answer = StreamedResponse(MESSAGES, hide_usage=False)
    delta = {"type": "input_json_delta", "partial_json": '{"text":"no"}'}
    answer.feed(named("content_block_delta", {"delta": delta}))
    response = StreamedResponse(RESPONSES, hide_usage=False)
    response.feed(named("response.function_call_arguments.delta", {"delta": '{"a":'}))

    assert (answer.output_len, answer.text()) == (1, "")
    assert (response.output_len, response.text()) == (1, "")


@pytest.mark.parametrize(
    ("endpoint", "document", "expected"),
    [
        (
            RESPONSES,
            {
                "output": [
                    {"type": "reasoning", "content": [{"text": "hm"}]},
                    {"type": "message", "content": [{"type": "output_text", "text": "hi"}]},
                ],
                "usage": RESPONSE_USAGE,
            },
            (Usage(50, 3, 32, by_flag=False), "hi"),
        ),
        (RESPONSES, {"output": [{"type": "message"}] * 2, "usage": None}, (None, None)),
        (
            MESSAGES,
            {
                "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "text", "text": "h"},
                    {"type": "text", "text": "i"},
                ],
                "usage": {**MESSAGE_USAGE, "cache_creation_input_tokens": 10},
            },
            (Usage(60, 3, 32), "hi"),
        ),
        (MESSAGES, {"content": 5, "usage": {"input_tokens": 7, "output_tokens": 1}},
         (Usage(7, 1, None), None)),
        (MESSAGES, {"usage": {"input_tokens": -7, "output_tokens": 1}}, (None, None)),
        (TOKENIZE, {"count": 5, "usage": {"prompt_tokens": 5}}, (None, None)),
        (COMPLETIONS, {"choices": [{"text": "hi"}], "usage": {"prompt_tokens": 5}},
         (Usage(5, 0, None), "hi")),
    ],
)  # fmt: skip
def test_whole_answers(endpoint: Endpoint, document: dict[str, Any], expected: object) -> None:
    assert read_whole(endpoint, orjson.dumps(document)) == expected


@pytest.mark.parametrize("endpoint", ENDPOINTS.values(), ids=lambda one: one.name)
@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"[]", b'{"usage":5}', b'{"usage":{"a":[}', b'"usage"', b'{"output":[5]}'],
)
def test_nonsense_has_no_usage(endpoint: Endpoint, body: bytes) -> None:
    assert read_whole(endpoint, body) == (None, None)


def test_vectors_are_not_parsed_for_their_usage() -> None:
    """Only the end is looked at; vLLM writes the usage last, with its blanks or without."""
    usage = {"prompt_tokens": 9, "total_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}}
    documents = [{"data": [{"embedding": [0.5] * 1000}], "usage": usage}] * 2
    bodies = [orjson.dumps(documents[0]), json.dumps(documents[1], indent=1).encode()]

    for body in bodies:
        assert read_whole(EMBEDDINGS, body)[0] == Usage(9, 0, 0, by_flag=False)
    broken = b"[0.5, nonsense " + bodies[0]
    assert read_whole(EMBEDDINGS, broken)[0] is not None


# -- errors


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (BadRequest("no", param="system"), 400, "invalid_request_error"),
        (Unauthorized("no"), 401, "authentication_error"),
        (QueueFull("no"), 429, "rate_limit_error"),
        (EngineFailed("no"), 502, "api_error"),
        (NoEngine("no"), 503, "overloaded_error"),
        (ValueError(""), 500, "api_error"),
    ],
)
def test_anthropics_errors(error: Exception, status: int, kind: str) -> None:
    message = str(error) or "internal error"
    expected = {"type": "error", "error": {"type": kind, "message": message}}

    assert orjson.loads(MESSAGES.error_body(error, status)) == expected
    event = MESSAGES.error_event(error, status)
    assert event == b"event: error\ndata: " + orjson.dumps(expected) + b"\n\n"


def test_an_error_in_a_responses_stream_is_an_event_of_its_own() -> None:
    event = RESPONSES.error_event(EngineFailed("no"), 502)
    head, _, data = event.partition(b"\ndata: ")

    assert head == b"event: error"
    document = orjson.loads(data)
    assert (document["type"], document["code"], document["message"]) == (
        "error", "engine_failed", "no",
    )  # fmt: skip
    assert document["error"]["type"] == "server_error"


def test_a_path_is_found_without_its_query() -> None:
    assert endpoint_of(b"/v1/messages?beta=true") is MESSAGES
    assert endpoint_of(b"/v1/messages/count_tokens") is COUNT_TOKENS
    assert endpoint_of(b"/v1/messages/") is None
    assert endpoint_of(b"/v1/audio/transcriptions") is None

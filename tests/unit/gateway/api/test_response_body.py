"""Usage and text read from answers, however the bytes are cut."""

import json
from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.dispatch import Usage
from fairhit.gateway.api.endpoints.openai import CHAT
from fairhit.gateway.api.response_body import StreamedResponse, read_whole

USAGE = {
    "prompt_tokens": 50,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 32},
}
TEXTS = ["", "Hello", ' "usage":{ \\ "', "é\n☃😀"]


def event(**fields: object) -> bytes:
    return b"data: " + orjson.dumps(fields) + b"\n\n"


def stream(*, usage: bool = True) -> bytes:
    events = [event(choices=[{"index": 0, "delta": {"content": text}}]) for text in TEXTS]
    if usage:
        events.append(event(choices=[], usage=USAGE))
    return b"".join(events) + b"data: [DONE]\n\n"


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut % len(data) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(at)]


@given(cuts=st.lists(st.integers(0, 1 << 16), max_size=20), hide=st.booleans())
def test_any_cut_of_a_stream_reads_the_same(cuts: list[int], hide: bool) -> None:
    """
    TCP cuts where it likes. The caller gets what it would get from the engine, without the usage
    event if it did not ask for one.
    """
    answer = StreamedResponse(CHAT, hide_usage=hide)
    sent = b"".join(answer.feed(piece) for piece in pieces(stream(), cuts)) + answer.rest()

    assert sent == stream(usage=not hide)
    assert answer.usage == Usage(prompt_len=50, output_len=3, cached_len=32)
    assert answer.text() == "".join(TEXTS)
    assert answer.output_len == 3


def test_usage_in_a_last_event_with_choices_is_not_hidden() -> None:
    """Some engines put the usage beside the last token; that token belongs to the caller."""
    last = event(choices=[{"index": 0, "delta": {"content": "x"}}], usage=USAGE)
    answer = StreamedResponse(CHAT, hide_usage=True)

    assert answer.feed(last) == last
    assert answer.usage is not None


def test_other_line_ends_pass_through() -> None:
    data = b'data: {"choices":[{"text":"a"}]}\r\n\r\n'
    answer = StreamedResponse(CHAT, hide_usage=True)

    assert answer.feed(data[:10]) + answer.feed(data[10:]) == data


def test_the_usage_is_hidden_alone_where_lines_end_in_two_ways() -> None:
    """The end of the event before it is not taken along."""
    said, used = event(choices=[{"delta": {"content": "a"}}]), event(choices=[], usage=USAGE)
    before = said.replace(b"\n\n", b"\r\n\r\n")
    answer = StreamedResponse(CHAT, hide_usage=True)

    assert answer.feed(before + used + said + used) == before + said


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_blanks_and_line_ends_are_the_engines_to_choose(end: bytes) -> None:
    """The standard library's JSON has a blank after each colon; some servers end lines with CRLF."""
    said = [{"choices": [{"delta": {"content": text}}]} for text in "ab"]
    shown = [b"data: " + json.dumps(one).encode() + end for one in said]
    used = b"data: " + json.dumps({"choices": [], "usage": USAGE}).encode() + end
    done = b"data: [DONE]" + end
    answer = StreamedResponse(CHAT, hide_usage=True)

    assert answer.feed(b"".join([*shown, used, done])) == b"".join([*shown, done])
    assert answer.usage == Usage(50, 3, 32)
    assert answer.text() == "ab"


def test_thoughts_and_the_arguments_of_tools_are_output_too() -> None:
    """A caller that leaves while the model thinks has had its thoughts."""
    call = {"index": 0, "function": {"name": "f", "arguments": '{"content":"x"}'}}
    deltas: list[dict[str, object]] = [
        {"role": "assistant", "content": ""},
        {"reasoning_content": "hm", "reasoning": "hm"},
        {"reasoning_content": "well", "reasoning": "well"},
        {"content": "yes"},
        {"tool_calls": [call]},
    ]
    answer = StreamedResponse(CHAT, hide_usage=True)
    for delta in deltas:
        answer.feed(event(choices=[{"index": 0, "delta": delta}]))

    assert (answer.output_len, answer.text()) == (4, "yes")


def test_what_every_event_reports_counts_for_who_leaves() -> None:
    answer = StreamedResponse(CHAT, hide_usage=False)
    for number in (4, 9):  # several tokens in an event
        usage = {"prompt_tokens": 50, "completion_tokens": number}
        answer.feed(event(choices=[{"delta": {"content": "abcd"}}], usage=usage))

    assert answer.output_len == 9


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (USAGE, Usage(50, 3, 32)),
        ({"prompt_tokens": 5, "completion_tokens": 1}, Usage(5, 1, None)),
        ({"prompt_tokens": 5}, Usage(5, 0, None)),
        ({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(5, 0, None)),
        ({"prompt_tokens": "5"}, None),
        ({"prompt_tokens": -5}, None),
        (None, None),
        ([], None),
    ],
)
def test_only_a_plausible_usage_counts(usage: object, expected: Usage | None) -> None:
    body = orjson.dumps({"choices": [{"message": {"content": "hi"}}], "usage": usage})

    assert read_whole(CHAT, body) == (expected, "hi")


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"choices":[1]}', b'{"choices":5}'])
def test_nonsense_has_neither_usage_nor_text(body: bytes) -> None:
    assert read_whole(CHAT, body) == (None, None)


SHAPES = [
    '{"id":1,"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}',
    '{"choices":[{"delta":{"role":"assistant","content":"%s"}}]}',
    '{"choices":[{"delta":{"content":null,"reasoning_content":"%s"}}]}',
    '{"choices":[{"delta":{"content":"%s","reasoning":"%s"}}]}',
    '{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"%s"}}]}}]}',
    '{"text":"%s","usage":{"prompt_tokens":5,"completion_tokens":2}}',
    '{"choices": [{"delta": {"content": "%s"}}]}',
    '{"choices":[{"delta":{"content":"%s"}}],"usage":null}',
]
SAID = [
    "a",
    "",
    "word ",
    '\\"',
    "\\\\",
    "\\n",
    "usage",
    '\\"content\\":\\"x\\"',
    "\\",
    "é",
    '"x',
    "{",
]


@settings(max_examples=200, deadline=None)
@given(
    events=st.lists(
        st.tuples(st.sampled_from(SHAPES[:1] * 6 + SHAPES), st.sampled_from(SAID)), max_size=12
    ),
    cuts=st.lists(st.integers(0, 1 << 16), max_size=6),
    whole=st.booleans(),
    hide=st.booleans(),
)
def test_events_of_a_known_shape_say_what_a_search_finds(
    events: list[tuple[str, str]], cuts: list[int], whole: bool, hide: bool
) -> None:
    """The short cut of most events and the search of all come to the same, nonsense included."""
    made = [b"data: " + shape.replace("%s", said).encode() + b"\n\n" for shape, said in events]
    data = made if whole or not made else pieces(b"".join(made), cuts)
    short, searched = (StreamedResponse(CHAT, hide_usage=hide) for _ in range(2))
    searched._learns_left = 0

    assert [short.feed(piece) for piece in data] == [searched.feed(piece) for piece in data]
    assert short.rest() == searched.rest()
    assert (short.output_len, short.usage, short.text()) == (
        searched.output_len, searched.usage, searched.text(),
    )  # fmt: skip


def test_an_event_shorter_than_the_shape_it_has_says_nothing() -> None:
    """Its one quote is both the end of what comes before a text and the beginning of what follows."""
    answer = StreamedResponse(CHAT, hide_usage=True)
    usual = event(choices=[{"index": 0, "delta": {"content": "so"}}])
    cut = usual.replace(b'"so"', b'"')

    assert answer.feed(usual) + answer.feed(cut) + answer.feed(usual) == usual + cut + usual
    assert (answer.output_len, answer.text()) == (2, "soso")


def test_most_events_are_not_searched() -> None:
    answer = StreamedResponse(CHAT, hide_usage=True)
    answer.feed(event(choices=[{"index": 0, "delta": {"content": "one"}}]))
    answer._find = lambda _: []  # type: ignore[assignment]
    answer.feed(event(choices=[{"index": 0, "delta": {"content": " two"}}]))

    assert (answer.output_len, answer.text()) == (2, "one two")

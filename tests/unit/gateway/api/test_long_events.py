"""Events that are too long to be read: passed on as they come, in steps, and counted by their length."""

import tracemalloc
from itertools import pairwise

import pytest

from fairhit.dispatch import Usage
from fairhit.dispatch.accounting.token_scale import TokenScale
from fairhit.gateway.api import response_body as answers
from fairhit.gateway.api.endpoints import ENDPOINTS
from fairhit.gateway.api.endpoints.endpoint import UNLIMITED, Endpoint
from fairhit.gateway.api.endpoints.openai import CHAT
from fairhit.gateway.api.endpoints.responses import RESPONSES
from fairhit.gateway.api.response_body import StreamedResponse
from fairhit.gateway.http.read_budget import ITERATION, STEP

SHORT = b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n'


def long_event(length: int, *, end: bytes = b"\n\n", more: bytes = b"") -> bytes:
    return b'data: {"choices":[{"text":"' + b"abc\\n" * (length // 5) + b'"}]' + more + b"}" + end


def fed(answer: StreamedResponse, data: bytes, read_len: int) -> bytes:
    cuts = [*range(0, len(data), read_len), len(data)]
    return b"".join(answer.feed(data[a:b]) for a, b in pairwise(cuts)) + answer.rest()


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
@pytest.mark.parametrize("read_len", [60_001, STEP])
def test_it_passes_byte_for_byte_and_what_follows_is_read(end: bytes, read_len: int) -> None:
    """A completion that repeats its prompt chooses how long its first event is."""
    long = long_event(2 * STEP, end=end)
    data = SHORT + long + SHORT + long + long + SHORT * 3
    answer = StreamedResponse(CHAT, hide_usage=True)

    assert fed(answer, data, read_len) == data
    assert answer.output_len == 3 + 5, "one for each event"
    assert answer.text() == "hi" * 5, "what was not read is not remembered"


def test_its_end_is_found_however_it_is_cut() -> None:
    """A read may end within the end of an event."""
    for end in (b"\n\n", b"\r\n\r\n"):
        data = long_event(STEP + 1000, end=end) + SHORT
        for cut in range(len(data) - len(SHORT) - 5, len(data) - len(SHORT) + 2):
            answer = StreamedResponse(CHAT, hide_usage=True)
            sent = answer.feed(data[: STEP + 10]) + answer.feed(data[STEP + 10 : cut])
            assert sent + answer.feed(data[cut:]) == data
            assert answer.text() == "hi", (end, cut)


@pytest.mark.parametrize(
    ("path", "more"),
    [
        (b"/v1/chat/completions", b',"usage": {"prompt_tokens":5,"completion_tokens":7}'),
        (b"/v1/messages", b',"usage":{"input_tokens":5,"output_tokens":7}'),
        (b"/v1/responses", b',"usage":{"input_tokens":5,"output_tokens":7},"user":null}'),
    ],
)
@pytest.mark.parametrize("length", [20_000, 3 * STEP])
def test_the_usage_at_its_end_is_read(path: bytes, more: bytes, length: int) -> None:
    """The last event of a response repeats all of it, and has the usage behind it."""
    answer = StreamedResponse(ENDPOINTS[path], hide_usage=True)
    data = long_event(length, more=more)

    assert fed(answer, data, 100_000) == data
    assert answer.usage is not None
    assert answer.usage[:2] == Usage(5, 7, None)[:2]


def test_without_usage_its_length_stands_for_its_tokens() -> None:
    """Up to what was asked for: it may be a prompt that is repeated."""
    data, scale = long_event(4 * STEP), TokenScale()
    for most, expected in ((UNLIMITED, scale.tokens(len(data))), (16, 16)):
        answer = StreamedResponse(CHAT, hide_usage=True)
        fed(answer, data, STEP)
        assert answer.counted(scale, most=most) == expected


@pytest.mark.parametrize("endpoint", [CHAT, RESPONSES])
def test_each_byte_is_searched_once_and_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch, endpoint: Endpoint
) -> None:
    """16 MiB in an event, a mebibyte in each of eight, and 3 kB in many, in reads of 1,400 bytes and of
    the most that come at once: a partial event was searched and copied anew with each read.
    """
    searched: list[int] = []

    def noting(data: bytes) -> list[tuple[bytes, bytes]]:
        searched.append(len(data))
        return endpoint.stream_format.find(data)

    events = (long_event(16 << 20), long_event(1 << 20) * 8, long_event(3_000) * 2_000)
    for data, read_len in [(data, read_len) for data in events for read_len in (1_400, STEP)]:
        answer = StreamedResponse(endpoint, hide_usage=True)
        monkeypatch.setattr(answer, "_find", noting)
        looked = _noting_ends(monkeypatch)
        fed(answer, data, read_len)

        assert max(searched, default=0) <= ITERATION + STEP
        assert sum(searched) <= len(data) + answers._MAX_LEARNED * 4_000
        assert max(looked) <= 2 * STEP
        assert sum(looked) <= 2 * len(data) + 8 * (len(data) // read_len + 1), "not all of it again"
        searched.clear()


@pytest.mark.parametrize("text", [b"a" * STEP, b'\\n\\"' * (STEP // 4), b"a\\n" * (STEP // 3)])
@pytest.mark.parametrize("path", [b"/v1/chat/completions", b"/v1/messages", b"/v1/responses"])
def test_a_search_remembers_no_place_to_turn_back_to(path: bytes, text: bytes) -> None:
    """Expressions that do take ten times as long and forty times the text's memory."""
    data = b'event: response.output_text.delta\ndata: {"delta":"%b","text":"%b"}\n\n' % (text, text)
    find = ENDPOINTS[path].stream_format.find
    tracemalloc.start()
    try:
        found = find(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert found[0][1] == text
    assert peak < 1.1 * len(data)


def _noting_ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes were searched for the end of an event, each time."""
    looked: list[int] = [0]
    find = answers._end_of_last

    def noting(data: bytes | bytearray, begin: int) -> int:
        looked.append(len(data) - begin)
        return find(data, begin)

    monkeypatch.setattr(answers, "_end_of_last", noting)
    return looked

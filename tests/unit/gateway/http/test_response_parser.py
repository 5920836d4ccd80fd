"""Responses of engines: read the same however they are cut, and only as strictly as HTTP is written."""

from itertools import pairwise

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.recording import RecordingListener

WHOLE = b"HTTP/1.1 200 OK\r\nserver: u\r\nContent-Length: %d\r\ncontent-type: a/json\r\n\r\n%b"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def whole(body: bytes) -> bytes:
    return WHOLE % (len(body), body)


def chunked(*pieces: bytes) -> bytes:
    return STREAM + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (*pieces, b""))


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % len(data) for place in at)})
    return [data[a:b] for a, b in pairwise(places)]


# A response, its status, and its body.
USUAL = [
    (whole(b'{"a":1}'), 200, b'{"a":1}'),
    (whole(b"x" * 3000), 200, b"x" * 3000),
    (whole(b""), 200, b""),
    (chunked(b"data: 1\n\n", b"data: [DONE]\n\n"), 200, b"data: 1\n\ndata: [DONE]\n\n"),
    (chunked(b"data: 1\n\n" * 20), 200, b"data: 1\n\n" * 20),
    (chunked(), 200, b""),
    (STREAM + b"00a;x=1\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\n", 200, b"0123456789"),
    (STREAM + b"A\r\n0123456789\r\n000\r\n\r\n", 200, b"0123456789"),
    (b"HTTP/1.1 100 Continue\r\n\r\n" + whole(b"hello"), 200, b"hello"),
    (whole(b"hello").replace(b"200 OK", b"500 Oh"), 500, b"hello"),
    (WHOLE.replace(b"server: u", b"server: v") % (2, b"hi"), 200, b"hi"),
]
BROKEN = [
    STREAM + b"0x5\r\nhello\r\n0\r\n\r\n",
    STREAM + b"+5\r\nhello\r\n0\r\n\r\n",
    STREAM + b"5\r\nhelloX\r\n0\r\n\r\n",
    STREAM + b"g\r\nhello\r\n0\r\n\r\n",
    STREAM + b"5\nhello\r\n0\r\n\r\n",
    WHOLE.replace(b"%d", b"+%d") % (5, b"hello"),
    WHOLE.replace(b"%d", b"%d, 5") % (5, b"hello"),
    WHOLE.replace(b"%d", b"%d\r\nContent-Length: 6") % (5, b"hello"),
    WHOLE.replace(b"%d", b"%d\r\nTransfer-Encoding: chunked") % (5, b"hello"),
    whole(b"hello") + b"more than was asked for",
    b"<html>",
]


@settings(max_examples=200, deadline=None)
@given(
    responses=st.lists(st.sampled_from(USUAL), min_size=1, max_size=6),
    cuts=st.lists(st.lists(st.integers(0, 1 << 16), max_size=4), min_size=6, max_size=6),
)
def test_responses_are_read_the_same_however_they_are_cut(
    responses: list[tuple[bytes, int, bytes]], cuts: list[list[int]]
) -> None:
    """One after another over one connection, heads, bodies and ends are what the engine wrote."""
    reader = RecordingListener()
    for (data, *_), at in zip(responses, cuts, strict=False):
        for piece in cut(data, at):
            reader.data_received(piece)

    heads, bodies, ends = reader.received[::3], reader.received[1::3], reader.received[2::3]
    assert [head[0] for head in heads] == [status for _, status, _ in responses]  # type: ignore[index]
    assert bodies == [body for *_, body in responses]
    assert ends == ["end"] * len(responses)
    assert reader.connections == 1


@pytest.mark.parametrize("before", [(), (whole(b'{"a":1}'), chunked(b"data: 1\n\n"))])
@pytest.mark.parametrize("broken", BROKEN)
def test_a_malformed_response_is_a_lost_one(broken: bytes, before: tuple[bytes, ...]) -> None:
    """In one read, whatever the connection has carried before."""
    reader = RecordingListener()
    for data in (*before, broken):
        reader.data_received(data)

    assert reader.received.count("end") == len(before)
    assert reader.received[-1] == "lost"
    assert reader.connection._transport is not None and reader.connection._transport.is_closing()


@pytest.mark.parametrize(("killed", "end"), [(True, "lost"), (False, "end")])
def test_a_stream_ends_with_its_last_chunk_only(killed: bool, end: str) -> None:
    """Its engine is killed within an event, and its connection closes as if the stream were complete."""
    stream = chunked(b"data: 1\n\n", b"data: 2\n\n")
    torn = stream[:-12]
    reader = RecordingListener()
    for piece in (stream, torn[: len(STREAM) + 14], torn[len(STREAM) + 14 :]):
        reader.data_received(piece)
    if killed:
        reader.leave()
    else:
        reader.data_received(stream[len(torn) :])

    assert reader.received[-1] == end
    assert reader.connections == 1, "it is kept"


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    reader = RecordingListener()
    reader.data_received(b"HTTP/1.1 200 OK\r\n\r\nhel")
    reader.data_received(b"lo")
    reader.leave()

    assert reader.received[1:3] == [b"hello", "end"]


def test_the_parser_is_as_strict_as_these_tests_assume() -> None:
    with pytest.raises(httptools.HttpParserError):
        httptools.HttpResponseParser(object()).feed_data(STREAM + b"0x5\r\nhello\r\n")

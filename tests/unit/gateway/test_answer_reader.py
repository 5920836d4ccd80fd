"""Answers that open like the one before pass without a parser, and say the same as with one."""

from itertools import pairwise

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.hearing import Hearing
from tests.wire.parsing import Parsing

from fairlead.gateway.chunks import one_chunk, whole_chunks
from fairlead.gateway.repeated import Remembered
from fairlead.gateway.upstream import Engine

WHOLE = b"HTTP/1.1 200 OK\r\nserver: u\r\nContent-Length: %d\r\ncontent-type: a/json\r\n\r\n%b"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def whole(body: bytes) -> bytes:
    return WHOLE % (len(body), body)


def chunked(*pieces: bytes) -> bytes:
    return STREAM + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (*pieces, b""))


def hear(answers: list[list[bytes]], *, remembers: bool = True) -> list[object]:
    """All of it until the engine is gone, and how many connections that took."""
    reader = Hearing(remembers=remembers)
    for pieces in answers:
        for piece in pieces:
            reader.data_received(piece)
    reader.leave()
    return [*reader.heard, reader.connections]


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % len(data) for place in at)})
    return [data[a:b] for a, b in pairwise(places)]


USUAL = [
    whole(b'{"a":1}'),
    whole(b"x" * 3000),
    whole(b""),
    chunked(b"data: 1\n\n", b"data: 2\n\n", b"data: [DONE]\n\n"),
    chunked(b"data: 1\n\n" * 20),
    chunked(),
    STREAM + b"00a;x=1\r\n0123456789\r\n0\r\nX-Trailer: 1\r\n\r\n",
    STREAM + b"A\r\n0123456789\r\n000\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n" + whole(b"hello"),
    whole(b"hello").replace(b"200 OK", b"500 Oh"),
    WHOLE.replace(b"server: u", b"server: v") % (2, b"hi"),
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
    answers=st.lists(st.sampled_from(USUAL * 3 + BROKEN), min_size=1, max_size=6),
    cuts=st.lists(st.lists(st.integers(0, 1 << 16), max_size=4), min_size=6, max_size=6),
    chunkwise=st.booleans(),
    unsaid=st.integers(0, 2),
)
def test_with_a_memory_the_same_is_heard(
    answers: list[bytes], cuts: list[list[int]], chunkwise: bool, unsaid: int
) -> None:
    """
    However answers are cut, mixed or broken, whatever came before them, and wherever in the last
    one its engine is killed.
    """
    pieces = [cut(answer, at) for answer, at in zip(answers, cuts, strict=False)]
    if chunkwise:  # as engines send them, a write for each event
        pieces = [one.replace(b"\n\n\r\n", b"\n\n\r\n|").split(b"|") for one in answers]
        pieces[-1][-1:] = cut(pieces[-1][-1], cuts[-1])
    pieces[-1] = pieces[-1][: len(pieces[-1]) - unsaid]

    assert hear(pieces) == hear(pieces, remembers=False)


@settings(max_examples=200, deadline=None)
@given(data=st.lists(st.sampled_from([b"5\r\n", b"0\r\n", b"\r\n", b"5", b"hello", b"a", b";x"])))
def test_whole_chunks_are_what_the_parser_takes_them_for(data: list[bytes]) -> None:
    came = whole_chunks(b"".join(data))

    if came is not None:
        reader = Hearing(remembers=False)
        reader.data_received(STREAM + b"".join(data))
        assert (reader.heard[1], reader.heard[2:] == ["end"]) == came


@pytest.mark.parametrize(
    "data",
    [
        b"", b"5", b"5\r\n", b"5\r\nhello", b"5\r\nhell\r\n", b"5\r\nhello\r\n\r\n",
        b"5\r\nhello\r\n0\r\n\r\n", b"5\r\nhelloXX", b"4\r\nhello\r\n", b"05\r\nhello\r\n",
        b"5;x\r\nhello\r\n", b"0\r\n\r\n", b"\r\nhello\r\n",
    ],
)  # fmt: skip
def test_what_is_not_just_one_usual_chunk_is_none(data: bytes) -> None:
    assert one_chunk(data) == b""
    assert one_chunk(b"5\r\nhello\r\n") == b"hello"


@pytest.mark.parametrize("answer", [whole(b"hello"), chunked(b"data: 1\n\n", b"data: 2\n\n")])
def test_the_second_answer_is_not_parsed(answer: bytes) -> None:
    """Or the memory would be of no use, and no other test would notice."""
    reader = Hearing()
    parsing = reader.connection._parser = Parsing(reader.connection._parser)

    for _ in range(3):
        reader.data_received(answer)

    assert parsing.parsed == [answer]
    assert reader.heard[:3] * 3 == reader.heard


@pytest.mark.parametrize(("killed", "end"), [(True, "lost"), (False, "end")])
def test_a_stream_that_opens_as_one_before_ends_with_its_last_chunk_only(
    killed: bool, end: str
) -> None:
    """Its engine is killed within an event, and its connection closes as if it had said all."""
    stream = chunked(b"data: 1\n\n", b"data: 2\n\n")
    torn = stream[:-12]
    reader = Hearing()
    for piece in (stream, torn[: len(STREAM) + 14], torn[len(STREAM) + 14 :]):
        reader.data_received(piece)
    if killed:
        reader.leave()
    else:
        reader.data_received(stream[len(torn) :])

    assert reader.heard[-1] == end
    assert reader.connections == 1, "it is kept"


def test_an_opening_that_is_shared_is_not_written_to() -> None:
    """The parser takes over in the middle of an answer; others have the same head meanwhile."""
    engine = Engine("http://127.0.0.1:1")
    first, second = Hearing(engine), Hearing(engine)
    first.data_received(chunked(b"data: 1\n\n"))
    known = engine.openings[True].meaning
    assert known is not None
    lines = known.lines[:]

    second.data_received(STREAM + b"5\r\nhello\r\n")
    second.data_received(b"5;x\r\nhello\r\n")

    assert engine.openings[True].meaning is known and known.lines == lines
    assert second.heard[1] == b"hellohello"


def test_heads_that_never_come_again_are_looked_at_ever_less() -> None:
    """An engine that numbers its answers would have each of them remembered in vain."""
    remembered: Remembered[int] = Remembered()
    kept = set()
    for number in range(1000):
        remembered.learn(whole(b"hello").replace(b"server", b"x-%d" % number), number)
        kept.add(remembered.meaning)

    assert len(kept) < 30
    assert remembered.head is not None
    same = whole(b"hello").replace(b"server", b"x-%d" % max(kept))  # type: ignore[type-var]
    assert remembered.head.body_at(same)
    remembered.learn(whole(b"hello"), -1)
    assert remembered.meaning == -1


def test_the_parser_is_as_strict_as_these_tests_assume() -> None:
    with pytest.raises(httptools.HttpParserError):
        httptools.HttpResponseParser(object()).feed_data(STREAM + b"0x5\r\nhello\r\n")

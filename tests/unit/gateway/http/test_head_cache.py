"""A head that came before is recognised by its bytes, and then means what the parser made of it."""

from itertools import pairwise

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.parsing import Parsing

from fairhit.gateway.http.head_cache import HeadCache, is_cacheable, split_length
from fairhit.gateway.http.request_parser import RequestParser
from fairhit.gateway.proxy.incoming_request import BodyBudget, IncomingRequest, RequestHead

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nContent-Length: %b\r\nAccept: */*\r\n\r\n"


def post(body: bytes) -> bytes:
    return HEAD % str(len(body)).encode() + body


def read(pieces: list[bytes], *, remembers: bool = True, max_body_len: int = 400) -> list[object]:
    """All that can be seen of a connection on which `pieces` arrived; without a memory of heads, the
    parser reads them all.
    """
    body_budget, heads = BodyBudget(), HeadCache[RequestHead]()
    admitted: list[bytes] = []

    def admit(request: IncomingRequest) -> bool:
        admitted.append(request.head.target)
        return True

    reader = RequestParser(
        max_body_len=max_body_len, admit=admit, body_budget=body_budget, head_cache=heads
    )
    for piece in pieces:
        if not remembers:
            heads._heads.clear()
        reader.feed(piece)
    seen: list[object] = [reader.receiving, reader.stopped, body_budget.length, admitted]
    while reader.ready:
        one = reader.take()
        seen.append(
            (one.head.method, one.head.target, one.head.lines, one.body, one.head.authorization,
             one.head.tenants, one.keep_alive, one.head.http10, one.status,
             type(one.refusal))
        )  # fmt: skip
    return seen


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in at)})
    return [data[a:b] for a, b in pairwise(places)]


USUAL = [
    post(b"hello"),
    post(b""),
    post(b"x" * 99),
    post(b"POST / HTTP/1.1\r\n\r\n"),
    post(b"y" * 401),  # over the limit
]
LIKE = [
    HEAD % b"05" + b"hello",
    HEAD % b"5 " + b"hello",
    HEAD % b"+5" + b"hello",
    HEAD % b"0x5" + b"hello",
    HEAD % b"5, 5" + b"hello",
    HEAD % b"5\r\nContent-Length: 6" + b"hello!",
    HEAD % b"5\r\nTransfer-Encoding: chunked" + b"5\r\nhello\r\n0\r\n\r\n",
    HEAD % b"5\r\nConnection: close" + b"hello",
    HEAD % b"5\r\nExpect: 100-continue" + b"hello",
    HEAD % b"5\r\n folded: 1" + b"hello",
    HEAD % b"1_0" + b"helloworld",
    HEAD % "٥".encode() + b"hello",
    HEAD % b"" + b"hello",
    HEAD % b"99999999999999999999" + b"hello",
    HEAD.replace(b"\r\n", b"\n") % b"5" + b"hello",
    HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") % b"5" + b"hello",
    HEAD.replace(b"X-One", b"x-smg-tenant-id") % b"5" + b"hello",
    HEAD.replace(b"X-One: 1", b"Upgrade: h2c\r\nConnection: Upgrade") % b"5" + b"hello",
    HEAD.replace(b"Content-Length: %b", b"X-Length: %b") % b"5",
    HEAD.replace(b"Content-Length: %b", b"Transfer-Encoding: chunked\r\nX: %b") % b"5"
    + b"5\r\nhello\r\n0\r\n\r\n",
    b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n",
    b"\r\n",
    b"junk",
]


@settings(max_examples=200, deadline=None)
@given(
    messages=st.lists(st.sampled_from(USUAL * 5 + LIKE), min_size=1, max_size=8),
    at=st.lists(st.integers(0, 1 << 16), max_size=12),
    whole=st.booleans(),
)
def test_a_reader_with_a_memory_reads_what_one_without_reads(
    messages: list[bytes], at: list[int], whole: bool
) -> None:
    """
    However requests are cut, mixed and malformed, and whatever came before them: neither a request
    more nor one less, no other body, and the same refusals. This is what keeps smuggling out.
    """
    pieces = messages if whole else cut(b"".join(messages), at)

    assert read(pieces) == read(pieces, remembers=False)


@settings(max_examples=200, deadline=None)
@given(
    place=st.integers(0, len(post(b"hello")) - 1),
    byte=st.integers(0, 255),
    insert=st.booleans(),
)
def test_one_byte_that_differs_is_the_parsers_to_judge(place: int, byte: int, insert: bool) -> None:
    usual = post(b"hello")
    changed = usual[:place] + bytes([byte]) + usual[place + (not insert) :]
    pieces = [usual, changed, usual]

    assert read(pieces) == read(pieces, remembers=False)


class Counted:
    """What a parser says of a head alone."""

    def __init__(self) -> None:
        self.heads = 0

    def on_headers_complete(self) -> None:
        self.heads += 1


def test_the_second_request_of_a_connection_is_not_parsed() -> None:
    """Or the memory would be of no use, and no other test would notice."""
    reader = RequestParser(max_body_len=400, admit=lambda _: True, body_budget=BodyBudget())
    parsing = reader._parser = Parsing(reader._parser)

    for piece in (post(b"hello"), post(b"other one"), post(b"x" * 200)[:150]):
        reader.feed(piece)

    assert parsing.parsed == [post(b"hello")]
    assert len(reader.ready) == 2
    assert reader.receiving and not reader.stopped


@pytest.mark.parametrize("message", LIKE[1:])
def test_only_the_usual_shape_is_remembered(message: bytes) -> None:
    split = split_length(message)

    assert split is None or not is_cacheable(split[0]) or httptools_reads(message) == 1


def httptools_reads(message: bytes) -> int:
    counted = Counted()
    try:
        httptools.HttpRequestParser(counted).feed_data(message)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return -1
    return counted.heads


def test_what_is_known_of_callers_is_bounded_and_found_by_its_bytes() -> None:
    heads: HeadCache[int] = HeadCache(limit=10)
    made = [post(b"hello").replace(b"X-One: 1", b"X-One: %d" % number) for number in range(100)]
    for number, one in enumerate(made):
        heads.add(one, number)
        assert len(heads) <= 10
    assert heads.find(made[50]) is None

    heads = HeadCache(limit=10)
    for number, one in enumerate(made[:9]):
        heads.add(one, number)
    found = [heads.find(one) for one in made[:9]]
    assert found == [(number, len(made[0]) - 5, 5) for number in range(9)]
    assert heads.find(made[0].replace(b"X-One: 0", b"X-One: 9")) is None
    assert heads.find(made[0].replace(b"\r\n\r\n", b"\r\nX: 1\r\n\r\n")) is None
    assert heads.find(made[0].replace(b": 5", b": 5x")) is None
    assert heads.find(made[0].replace(b": 5", b":  5")) is None
    assert heads.find(made[0][:40]) is None


def test_no_other_bytes_than_digits_may_differ() -> None:
    heads: HeadCache[str] = HeadCache()
    heads.add(post(b"hello"), "known")
    other = HEAD % b"123456"

    assert heads.find(other) == ("known", len(other), 123456)
    for wrong in (b"", b"1" * 16, b"1a", b"-1", b" 1", b"1\n"):
        assert heads.find(HEAD % wrong) is None
    assert heads.find(other[:-1]) is heads.find(other[:60]) is None
    assert heads.find(other.replace(b"X-One", b"X-Two")) is None
    assert heads.find(other.replace(b"*/*", b"*/a")) is None


def test_heads_that_never_come_again_are_remembered_ever_less_and_drive_out_no_others() -> None:
    """Callers who number their requests, among others who do not."""
    heads: HeadCache[int] = HeadCache(limit=10)
    same = post(b"hello")
    heads.add(same, -1)
    remembered = 0
    for number in range(10_000):
        assert heads.find(same) is not None
        other = same.replace(b"X-One: 1", b"X-One: 1-%d" % number)
        heads.add(other, number)
        remembered += number in (one.meaning for one in heads._heads.values())

    assert remembered < 500
    assert len(heads) <= 10


def test_who_does_not_come_any_more_is_forgotten() -> None:
    heads: HeadCache[int] = HeadCache(limit=10)
    first = post(b"hello")
    heads.add(first, -1)
    assert heads.find(first) is not None
    for number in range(1000):
        heads.add(first.replace(b"X-One: 1", b"X-One: 1-%d" % number), number)

    assert heads.find(first) is None

"""Requests off the wire: however the bytes are cut, and whatever they are."""

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairhit.errors import Unauthorized
from fairhit.gateway.http.request_parser import MAX_HEAD, RequestParser
from fairhit.gateway.proxy.incoming_request import BodyBudget, IncomingRequest

PIPELINED = (
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nAuthorization: Bearer k\r\n"
    b"Content-Length: 5\r\n\r\nhello"
    b"GET /health HTTP/1.1\r\nhost: a\r\nx-smg-tenant-id: t\r\n\r\n"
    b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nwor\r\n2\r\nld\r\n0\r\nX-Trailer: 1\r\n\r\n"
)


CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


def admit(request: IncomingRequest) -> bool:
    if request.head.authorization == b"Bearer wrong":
        raise Unauthorized("no")
    request.client = request.head.authorization.decode()
    return request.head.method == b"POST"


def read(
    pieces: list[bytes], *, max_body_len: int = 1000, body_budget: BodyBudget | None = None
) -> RequestParser:
    reader = RequestParser(
        max_body_len=max_body_len, admit=admit, body_budget=body_budget or BodyBudget()
    )
    for piece in pieces:
        reader.feed(piece)
    return reader


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % len(data) for place in at)})
    return [data[a:b] for a, b in pairwise(places)]


@given(at=st.lists(st.integers(0, 1 << 16), max_size=30))
def test_any_cut_gives_the_same_requests(at: list[int]) -> None:
    requests = list(read(cut(PIPELINED, at)).ready)

    assert [(one.head.method, one.head.target, one.body) for one in requests] == [
        (b"POST", b"/v1/completions", b"hello"),
        (b"GET", b"/health", b""),
        (b"POST", b"/v1/completions", b"world"),
    ]
    assert requests[0].head.lines == b"X-One: 1\r\n"
    assert (requests[0].head.authorization, requests[1].head.tenant()[0]) == (b"Bearer k", b"t")
    assert all(one.keep_alive and one.refusal is None for one in requests)


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_no_bytes_raise(pieces: list[bytes]) -> None:
    """Port scanners and TLS clients send anything; each gets at most one refusal."""
    reader = read(pieces)

    assert sum(one.refusal is not None for one in reader.ready) <= 1


@given(at=st.lists(st.integers(0, 1 << 16), max_size=5), size=st.integers(1, 3000))
def test_a_body_over_the_limit_is_never_kept(at: list[int], size: int) -> None:
    body = b"x" * size
    chunked = CHUNKED + b"%x\r\n%b\r\n0\r\n\r\n"
    reader = read(cut(chunked % (size, body), at), max_body_len=1000)
    (request,) = reader.ready

    assert (request.refusal is not None) == (size > 1000)
    assert len(request.body) <= 1000


@pytest.mark.parametrize(
    "head",
    [b"GET / HTTP/1.1\r\nhost: a\r\nx: %b\r\n\r\n", b"GET /%b HTTP/1.1\r\nhost: a\r\nx: y\r\n\r\n"],
)
def test_a_head_that_is_too_long_is_refused_though_it_comes_in_one_piece(head: bytes) -> None:
    (whole,) = read([head % (b"y" * MAX_HEAD)]).ready
    (shorter,) = read([head % (b"y" * (MAX_HEAD - 100))]).ready

    assert (whole.status, shorter.refusal) == (431, None)


def test_a_header_that_never_ends_is_refused() -> None:
    reader = read([b"GET / HTTP/1.1\r\nhost: a\r\nx: ", *[b"y" * 1000] * (MAX_HEAD // 1000 + 1)])

    assert [one.status for one in reader.ready] == [431]
    assert reader.stopped


@pytest.mark.parametrize(
    ("start", "endless"),
    [
        (b"1\r\nx\r\n0\r\nx: ", b"y" * 1000),
        (b"1\r\nx\r\n0\r\n", b"x: y\r\n" * 200),
        (b"5;x=", b"y" * 1000),
    ],
)
def test_neither_trailers_nor_chunk_extensions_are_without_end(
    start: bytes, endless: bytes
) -> None:
    reader = read([CHUNKED + start, *[endless] * (MAX_HEAD // 1000 + 1)])

    assert [one.status for one in reader.ready] == [431]


@pytest.mark.parametrize(
    ("chunk", "passes"),
    [
        (b"1;" + b"e" * 1000 + b"\r\nx\r\n", False),
        (b"1;a=b\r\nx\r\n", True),
        (b"0" * 12 + b"1\r\nx\r\n", True),
        (b"0" * 500 + b"1\r\nx\r\n", False),
    ],
    ids=["extensions", "one", "zeros", "many zeros"],
)
def test_the_extensions_of_all_chunks_together_are_not_without_end(
    chunk: bytes, passes: bool
) -> None:
    """A chunk each time, none of them too long."""
    size = 4 * MAX_HEAD // 1000
    reader = read([CHUNKED, *[chunk] * size, b"0\r\n\r\n"])

    assert [(one.status, len(one.body)) for one in reader.ready] == [
        (None, size) if passes else (431, 0)
    ]


def test_small_chunks_are_not_taken_for_headers() -> None:
    """A body a byte at a time has five bytes of framing for each."""
    size = MAX_HEAD
    reader = read([CHUNKED, *[b"1\r\nx\r\n" * 64] * (size // 64), b"0\r\n\r\n"], max_body_len=size)

    assert [(one.refusal, len(one.body)) for one in reader.ready] == [(None, size)]


@given(at=st.lists(st.integers(0, 1 << 16), max_size=30))
def test_a_wish_for_another_protocol_is_declined_by_answering(at: list[int]) -> None:
    """Java's client asks for HTTP/2 with every request to http://."""
    wish = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n"
    data = b"".join(one.replace(b" HTTP/1.1\r\n", b" HTTP/1.1\r\n" + wish) for one in (PIPELINED,))
    requests = list(read(cut(data, at)).ready)
    plain = list(read([PIPELINED]).ready)

    assert [(one.head.method, one.head.target, one.body, one.head.lines) for one in requests] == [
        (one.head.method, one.head.target, one.body, one.head.lines) for one in plain
    ]
    assert all(one.keep_alive and one.refusal is None for one in requests)


def test_the_gateway_is_no_tunnel() -> None:
    (request,) = read([b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\nxyz"]).ready

    assert request.refusal is not None


def test_who_shows_a_wrong_key_need_not_send_its_body() -> None:
    body_budget = BodyBudget()
    head = (
        b"POST / HTTP/1.1\r\nhost: a\r\nauthorization: Bearer wrong\r\ncontent-length: 900\r\n\r\n"
    )
    reader = read([head, b"x" * 500], body_budget=body_budget)

    assert [type(one.refusal) for one in reader.ready] == [Unauthorized]
    assert body_budget.length == 0


def test_a_body_without_a_reader_is_not_kept() -> None:
    body_budget = BodyBudget()
    reader = read(
        [b"GET / HTTP/1.1\r\nhost: a\r\ncontent-length: 900\r\n\r\n", b"x" * 800],
        body_budget=body_budget,
    )
    assert body_budget.length == 0
    reader.feed(b"x" * 100)
    assert [one.body for one in reader.ready] == [b""]


def test_all_connections_together_hold_so_much_and_no_more() -> None:
    body_budget = BodyBudget(limit=1500)
    head = b"POST / HTTP/1.1\r\nhost: a\r\nauthorization: %b\r\ncontent-length: 1000\r\n\r\n"
    first = read([head % b"a", b"x" * 900], body_budget=body_budget)
    second = read([head % b"b", b"x" * 700], body_budget=body_budget)
    assert [getattr(one.refusal, "status", None) for one in second.ready] == [503]
    assert body_budget.length == 900

    first.feed(b"x" * 100)
    assert len(first.take().body) == 1000
    assert body_budget.length == 1000  # it is waiting for an engine
    third = read([head % b"c", b"x" * 500], body_budget=body_budget)
    assert body_budget.length == 1500
    third.drop()
    assert body_budget.length == 1000
    first.release()
    first.release()
    assert body_budget.length == 0


def test_a_body_that_waits_counts_whatever_else_its_caller_sends() -> None:
    body_budget = BodyBudget(limit=4000)
    head = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n"
    reader = read([head + b"x" * 1000], body_budget=body_budget)
    reader.take()
    reader.feed(head + b"x" * 1000 + b"this is no HTTP\r\n\r\n")
    assert body_budget.length == 2000

    reader.release()
    reader.take()
    assert body_budget.length == 1000
    reader.drop()
    assert body_budget.length == 0


def test_who_holds_a_quarter_gets_no_more_once_half_is_held() -> None:
    """Or one client's bodies, of which each may wait, would have everybody else's refused."""
    body_budget = BodyBudget(limit=8000)
    head = b"POST / HTTP/1.1\r\nhost: a\r\nauthorization: %b\r\ncontent-length: 1000\r\n\r\n"

    def ask(client: bytes) -> RequestParser:
        return read([head % client, b"x" * 1000], body_budget=body_budget)

    def refusal(reader: RequestParser) -> int | None:
        return getattr(reader.take().refusal, "status", None)

    many = [ask(b"a") for _ in range(5)]
    assert [refusal(one) for one in many] == [None] * 4 + [429]
    assert [refusal(ask(b"b")) for _ in range(3)] == [None, None, 429]
    assert [refusal(ask(client)) for client in (b"c", b"d", b"e")] == [None, None, 503]
    assert body_budget.length == 8000

    for one in many[:3]:
        one.release()
    assert refusal(ask(b"a")) is None, "it holds less than a quarter"
    assert body_budget.length == 6000


def test_of_who_holds_nothing_nothing_is_remembered() -> None:
    body_budget = BodyBudget()
    head = b"POST / HTTP/1.1\r\nhost: a\r\nauthorization: %d\r\ncontent-length: %d\r\n\r\n"
    for client, length in enumerate((10, 0, 10, 10)):
        reader = read([head % (client, length) + b"x" * length] * 2, body_budget=body_budget)
        reader.take()
        if client % 2:
            reader.release()
        reader.drop()

    assert body_budget.length == 0
    assert not body_budget._of_clients


def test_a_tenant_header_that_comes_twice_is_noticed() -> None:
    twice = b"GET / HTTP/1.1\r\nhost: a\r\nx-smg-tenant-id: a\r\nx-smg-tenant-id: b\r\n\r\n"
    other = twice.replace(b"x-smg-tenant-id: b", b"x-gateway-inference-fairness-id: b")

    assert [one.head.tenant() for one in read([twice, other]).ready] == [
        (b"a", True),
        (b"b", False),
    ]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("number", [33, 34, 60])
def test_who_sends_too_much_ahead_may_still_be_sending(known: bool, number: int) -> None:
    """Closed at once, its connection would be reset, and the last answers lost on the way."""
    request = b"POST / HTTP/1.1\r\nhost: a\r\nContent-Length: 1\r\n\r\na"
    reader = read([request if known else request.replace(b"Len", b"LEN")])
    reader.take()
    reader.feed(request * number)

    assert reader.stopped and len(reader.ready) == 33
    assert (reader.receiving or reader.has_discarded) == (number > 33)


def test_headers_that_connection_names_are_of_this_connection_alone() -> None:
    """Also in a head that came before, which is not read again; those without it keep theirs."""
    named = (
        b"POST / HTTP/1.1\r\nhost: a\r\nX-Hop: 1\r\nConnection: keep-alive, x-hop\r\n"
        b"X-Other: 2\r\nx-also: 3\r\n"
        b"connection:  X-Also\t\r\nContent-Length: 1\r\n\r\na"
    )
    plain = b"POST / HTTP/1.1\r\nhost: a\r\nX-Hop: 1\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na"
    requests = read([named, named, plain, plain]).ready

    lines = [one.head.lines for one in requests]
    assert lines == [b"X-Other: 2\r\n"] * 2 + [b"X-Hop: 1\r\n"] * 2


def test_a_body_in_many_small_chunks_takes_the_memory_of_its_bytes() -> None:
    """A list of pieces of two bytes would take thirty times that, and is not what callers are counted for."""
    length, chunk = 400_000, b"2\r\nab\r\n"
    data = chunk * 1000
    tracemalloc.start()
    try:
        reader = read([CHUNKED], max_body_len=length)
        for _ in range(length // 2000):
            reader.feed(data)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    reader.feed(b"0\r\n\r\n")

    assert held < 2 * length
    assert reader.take().body == b"ab" * (length // 2)


def test_no_engine_is_asked_to_compress() -> None:
    """An answer is read on its way, and nothing is ever decompressed: no few bytes become many here."""
    head = b"POST / HTTP/1.1\r\nhost: a\r\nAccept-Encoding: gzip, br\r\nX-One: 1\r\ncontent-length: 0\r\n\r\n"
    request = read([head]).take()

    assert request.head.lines == b"X-One: 1\r\n"


def test_a_request_that_was_admitted_is_known_whatever_comes_with_it() -> None:
    """Its connection may be at work for it: others are closed first."""
    post = PIPELINED[: PIPELINED.index(b"GET")]
    get = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"
    wrong = post.replace(b"Bearer k", b"Bearer wrong")
    for pieces, admitted in (
        ([post], True), ([post + get], True), ([post, post, get], True), ([get + post], True),
        ([post[:-5]], True), ([get, get], False), ([wrong], False), ([get + wrong], False),
    ):  # fmt: skip
        assert read(pieces).admitted == admitted, pieces

"""Requests off the wire: however the bytes are cut, and whatever they are."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fairlead.gateway.requests import MAX_HEAD, RequestReader

PIPELINED = (
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-One: 1\r\nAuthorization: Bearer k\r\n"
    b"Content-Length: 5\r\n\r\nhello"
    b"GET /health HTTP/1.1\r\nhost: a\r\nx-smg-tenant-id: t\r\n\r\n"
    b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nwor\r\n2\r\nld\r\n0\r\nX-Trailer: 1\r\n\r\n"
)


def read(pieces: list[bytes], *, max_body_len: int = 1000) -> RequestReader:
    reader = RequestReader(max_body_len=max_body_len)
    for piece in pieces:
        reader.feed(piece)
    return reader


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % len(data) for place in at)})
    return [data[a:b] for a, b in pairwise(places)]


@given(at=st.lists(st.integers(0, 1 << 16), max_size=30))
def test_any_cut_gives_the_same_requests(at: list[int]) -> None:
    requests = list(read(cut(PIPELINED, at)).ready)

    assert [(one.method, one.target, one.body) for one in requests] == [
        (b"POST", b"/v1/completions", b"hello"),
        (b"GET", b"/health", b""),
        (b"POST", b"/v1/completions", b"world"),
    ]
    assert requests[0].lines == [b"X-One: 1\r\n"]
    assert (requests[0].authorization, requests[1].tenant) == (b"Bearer k", b"t")
    assert all(one.keep_alive and one.refusal is None for one in requests)


@given(st.lists(st.binary(max_size=100), max_size=10))
def test_no_bytes_raise(pieces: list[bytes]) -> None:
    """Port scanners and TLS clients send anything; each gets at most one refusal."""
    reader = read(pieces)

    assert sum(one.refusal is not None for one in reader.ready) <= 1


@given(at=st.lists(st.integers(0, 1 << 16), max_size=5), size=st.integers(1, 3000))
def test_a_body_over_the_limit_is_never_kept(at: list[int], size: int) -> None:
    body = b"x" * size
    chunked = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    reader = read(cut(chunked % (size, body), at), max_body_len=1000)
    (request,) = reader.ready

    assert (request.refusal is not None) == (size > 1000)
    assert len(request.body) <= 1000


def test_a_header_that_never_ends_is_refused() -> None:
    reader = read([b"GET / HTTP/1.1\r\nx: ", *[b"y" * 1000] * (MAX_HEAD // 1000 + 1)])

    assert [one.status for one in reader.ready] == [431]
    assert reader.deaf

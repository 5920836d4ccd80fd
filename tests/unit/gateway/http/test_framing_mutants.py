"""A byte in each place of a coding's header where two parsers have disagreed whether it is one.

Each mutant goes beside a length, as one request that holds another: who sees the coding sees two. The
gateway refuses it, or takes the length and passes on other headers only.
"""

import pytest
from tests.fuzz.targets import check_forwarded

from fairhit.gateway.http.request_parser import RequestParser
from fairhit.gateway.proxy.incoming_request import BodyBudget, IncomingRequest

HIDDEN = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"
PLACES = {
    "before the name": b"%bTransfer-Encoding: chunked",
    "in the name": b"Transfer%bEncoding: chunked",
    "after the name": b"Transfer-Encoding%b: chunked",
    "instead of the colon": b"Transfer-Encoding%bchunked",
    "after the colon": b"Transfer-Encoding:%bchunked",
    "after the value": b"Transfer-Encoding: chunked%b",
    "in the value": b"Transfer-Encoding: chun%bked",
    "twice, in one": b"Transfer-Encoding: chunked%b\r\nTransfer-Encoding: identity",
    "after another's value": b"X: X%bTransfer-Encoding: chunked",
    "after another's value and a return": b"X: X\r%bTransfer-Encoding: chunked",
    "after another's value and a feed": b"X: X\n%bTransfer-Encoding: chunked",
    "before another": b"Transfer-Encoding: chunked%bX: X",
    "before a return and another": b"Transfer-Encoding: chunked\r%bX: X",
    "before a feed and another": b"Transfer-Encoding: chunked\n%bX: X",
}
# Where some bytes make a name or a value that is another, for each reader.
HARMLESS = {"before the name", "in the name", "after the name", "after another's value"}


def admit(request: IncomingRequest) -> bool:
    return True


def read(data: bytes, *, piece: int) -> list[IncomingRequest]:
    reader = RequestParser(max_body_len=1000, admit=admit, body_budget=BodyBudget())
    for at in range(0, len(data), piece):
        reader.feed(data[at : at + piece])
    return list(reader.ready)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("length_first", [True, False])
def test_no_byte_makes_one_request_two(place: str, length_first: bool) -> None:
    body = b"0\r\n\r\n" + HIDDEN
    length = b"content-length: %d" % len(body)
    taken = 0
    for byte in range(256):
        line = PLACES[place] % bytes([byte])
        lines = [length, line] if length_first else [line, length]
        data = b"\r\n".join([b"POST /v1/completions HTTP/1.1", b"host: a", *lines, b"", body])
        for piece in (len(data), 1):
            requests = read(data, piece=piece)
            passed = [one for one in requests if one.refusal is None]
            assert len(requests) == 1, data
            for one in passed:
                check_forwarded(one)
                assert one.body == body, data
            taken += len(passed)

    assert bool(taken) == (place in HARMLESS)

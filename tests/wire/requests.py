"""Raw requests and the outcome of each: the corpus of request smuggling.

In each request `@@@` stands for a number of its own, so that the requests at an engine can be distinguished.
"""

from typing import NamedTuple

BODY = b'{"model":"m","prompt":"@@@"}'
LEN = len(BODY)
PATH = b"/v1/completions"
START = b"POST " + PATH + b" HTTP/1.1"
LENGTH = b"content-length: %d" % LEN
CHUNKED = b"transfer-encoding: chunked"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (LEN, BODY)
UPGRADE = b"connection: upgrade\r\nupgrade: h2c"


class Row(NamedTuple):
    """A piece of input sent over a connection, with its expected outcome."""

    name: str
    data: bytes
    statuses: tuple[int, ...]  # of the answers, in order
    forwarded: int  # requests at the engine, each with BODY
    stays: bool  # whether the connection serves another request afterwards
    lines: bytes = b""  # headers of the caller's that the engine gets
    query: bytes = b""


def request(*lines: bytes, body: bytes = BODY, start: bytes = START) -> bytes:
    """A request with these lines, which must say where its body ends."""
    return b"\r\n".join([start, b"host: a", *lines, b"", b""]) + body


def _hosted(start: bytes, *hosts: bytes) -> bytes:
    """A request with these lines for its host."""
    return b"\r\n".join([start, *hosts, LENGTH, b"", BODY])


def chunked(chunks: bytes) -> bytes:
    """A request whose body is framed like this."""
    return request(CHUNKED, body=chunks)


def refused(name: str, data: bytes, *, status: int = 400) -> Row:
    """The gateway answers with an error and closes; no engine receives the request."""
    return Row(name, data, (status,), 0, stays=False)


def passed(name: str, data: bytes, *, lines: bytes = b"", stays: bool = True) -> Row:
    """The gateway forwards the input as one request."""
    return Row(name, data, (200,), 1, stays=stays, lines=lines)


def answered(name: str, data: bytes, *statuses: int) -> Row:
    """The gateway answers by itself: no engine receives the request, and the connection stays open."""
    return Row(name, data, statuses, 0, stays=True)


def held(name: str, data: bytes) -> Row:
    """The input is incomplete: nothing happens until the rest arrives."""
    return Row(name, data, (), 0, stays=False)


_BAD_LENGTHS = (
    b"+28", b"-1", b"-28", b"0x1c", b"28.0", b"2_8", b"2 8", b"28;", b"28,28", b"28, 3", b"1e1", b"",
    b"\xb2\xb8", b"28\x0b", b"28\x00", b"99999999999999999999999", b"18446744073709551644",
)  # fmt: skip
_GOOD_LENGTHS = (b"028", b" 28 ", b"28\t", b"0000000000000000028")
_BAD_CODINGS = (
    b"xchunked", b"chunkedx", b"chunked, chunked", b"chunked, identity", b"identity, chunked",
    b"gzip, chunked", b"chunked, gzip", b"identity", b"chunked;q=1", b'"chunked"', b",chunked",
    b"chunked,", b"\x0bchunked", b"chunked\x00", b"", b"chu nked", b"chunked\t", b"\xe3chunked",
)  # fmt: skip
_GOOD_CODINGS = (b"Chunked", b"CHUNKED", b" chunked ", b"\tchunked")
_BAD_SIZES = (
    b"0x1c", b"+1c", b"-1c", b" 1c", b"1c ", b"1_c", b"", b"g", b"1c\n", b"1c\t", b"1c\0", b"1c;",
    b"1c ;a", b'1c;a="\r\n"', b"1c;\n", b"1c;a\n", b"1c;a\rb", b"1c;a\0", b"1c;\xff",
    b"fffffffffffffffff", b"10000000000000000",
)  # fmt: skip
_GOOD_SIZES = (b"1C", b"001c", b"1c;a=b", b"1c;a", b'1c;a="b;c"')
_BAD_BODIES = {
    "no end of a chunk": b"%x\r\n%bX\r\n0\r\n\r\n" % (LEN, BODY),
    "a chunk's end is a line feed": b"%x\r\n%b\n0\r\n\r\n" % (LEN, BODY),
    "a size's end is a line feed": b"%x\n%b\r\n0\r\n\r\n" % (LEN, BODY),
    "line feeds end the body": b"%x\r\n%b\r\n0\n\n" % (LEN, BODY),
    "a line feed ends the trailers": b"%x\r\n%b\r\n0\r\n\n" % (LEN, BODY),
    "a length in the trailers": b"%x\r\n%b\r\n0\r\ncontent-length: 3\r\n\r\n" % (LEN, BODY),
    "a coding in the trailers": b"%x\r\n%b\r\n0\r\n%b\r\n\r\n" % (LEN, BODY, CHUNKED),
}
_BAD_LINES = {
    "an obsolete fold": b"x: a\r\n b",
    "a fold by tab": b"x: a\r\n\tb",
    "a fold like a header": b"x: a\r\n content-length: 3",
    "a fold first": b" x: a",
    "a blank before the colon": b"x : 1",
    "a tab before the colon": b"x\t: 1",
    "a blank before the coding's colon": b"transfer-encoding : chunked",
    "a blank before the length's colon": b"content-length : 3",
    "a bare line feed": b"x: 1\nevil: 1",
    "a bare carriage return": b"x: 1\revil: 1",
    "a carriage return too many": b"x: 1\r",
    "a carriage return in a name": b"x\ry: 1",
    "NUL in a name": b"x\0y: 1",
    "NUL in a value": b"x: a\0b",
    "a high byte in a name": b"x\xff: 1",
    "a dotless i in a name": "transfer-encod\u0131ng: chunked".encode(),
    "no name": b": 1",
    "no colon": b"xyz",
    "a vertical tab in a value": b"x: a\x0bb",
    "delete in a value": b"x: a\x7fb",
    **{f"{chr(byte)} in a name": b"x%cy: 1" % byte for byte in b'"(),/;<=>?@[\\]{} '},
    "a second host": b"host: b",
    "a second key": b"authorization: Bearer a\r\nauthorization: Bearer b",
}
_BAD_STARTS = (
    b"POST %b HTTP/1.2", b"POST %b HTTP/2.0", b"POST %b HTTP/0.9", b"POST %b HTTP/1.10",
    b"POST %b http/1.1", b"POST %b HTTP/ 1.1", b"POST %b HTTP/1.1 ", b"POST\t%b HTTP/1.1", b"POST %b",
    b" POST %b HTTP/1.1", b"post %b HTTP/1.1", b"POST %b?a=\xff HTTP/1.1", b"POST %b?a=\0 HTTP/1.1",
    b"POST %b?a b HTTP/1.1", b"POST %b?a\rb HTTP/1.1", b"POST %b?a\tb HTTP/1.1",
    b"POST %b?\x7f HTTP/1.1", b"PRI %b HTTP/1.1", b"CONNECT a:1 HTTP/1.1#%b",
    b"POST %b HTTP/1.1\r\nx: 1\n", b"\x16\x03\x01%b",
)  # fmt: skip
_SMUGGLED = request(LENGTH)
_GOOD_HOSTS = (
    b"a", b" a.example:8000 ", b"\ta_b-c~d", b"127.0.0.1", b"[::1]", b"[::ffff:1.2.3.4]:80", b"", b"a:",
    b"a%20b", b"A,b",
)  # fmt: skip
_BAD_HOSTS = (
    b"a b", b"a, b", b"a/", b"a?", b"a#", b"http://a", b"u@a", b"a:b", b"a:80:80", b"::1", b"[::1", b"[::1]a",
    b"[a]", b"a%2", b"a%zz", b"a\\b", b"a\"b", b"a<b", b"a^b", b"\xe4.example", b"a\tb",
)  # fmt: skip
_AUTHORITIES = (b"http://b", b"HTTP://b:80", b"https://[::1]:8000", b"http://a.b_c")
_BAD_AUTHORITIES = (b"http://", b"http://:80", b"http://u@b", b"http://u:p@b", b"http://b:c")

ROWS = [
    passed("a length", request(LENGTH)),
    passed("chunks", chunked(CHUNKS)),
    passed("three chunks", chunked(
        b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in (BODY[:1], BODY[1:9], BODY[9:]))
        + b"0\r\n\r\n"
    )),
    passed("trailers", chunked(CHUNKS[:-2] + b"x-smg-tenant-id: bob\r\n\r\n")),
    # Two lengths, or a length and chunks.
    refused("a length and chunks", request(LENGTH, CHUNKED, body=CHUNKS)),
    refused("chunks and a length", request(CHUNKED, LENGTH, body=CHUNKS)),
    refused("length 0 and chunks", request(b"content-length: 0", CHUNKED, body=CHUNKS)),
    refused("a length and chunks, sized as the body", request(LENGTH, CHUNKED)),
    refused("the same length twice", request(LENGTH, LENGTH)),
    refused("two lengths", request(LENGTH, b"Content-Length: 3")),
    refused("two lengths the other way", request(b"content-length: 3", LENGTH)),
    refused("chunked twice", request(CHUNKED, CHUNKED, body=CHUNKS)),
    refused("chunked, then not", request(CHUNKED, b"transfer-encoding: x", body=CHUNKS)),
    refused("not chunked, then chunked", request(b"transfer-encoding: x", CHUNKED, body=CHUNKS)),
    passed("a length spelt otherwise", request(LENGTH, b"content_length: 3", b"CONTENT_LENGTH: 4")),
    passed("a coding spelt otherwise", request(LENGTH, b"transfer_encoding: chunked")),
    *(refused(f"length {one!r}", request(b"content-length: " + one)) for one in _BAD_LENGTHS),
    *(passed(f"length {one!r}", request(b"content-length:" + one)) for one in _GOOD_LENGTHS),
    *(refused(f"coding {one!r}", request(b"transfer-encoding: " + one, body=CHUNKS))
      for one in _BAD_CODINGS),
    *(refused(f"coding {one!r} and a length", request(b"transfer-encoding: " + one, LENGTH))
      for one in _BAD_CODINGS + _GOOD_CODINGS),
    *(passed(f"coding {one!r}", request(b"transfer-encoding:" + one, body=CHUNKS))
      for one in _GOOD_CODINGS),
    *(refused(f"size {one!r}", chunked(one + b"\r\n" + BODY + b"\r\n0\r\n\r\n"))
      for one in _BAD_SIZES),
    *(passed(f"size {one!r}", chunked(one + b"\r\n" + BODY + b"\r\n0\r\n\r\n"))
      for one in _GOOD_SIZES),
    *(refused(name, chunked(body)) for name, body in _BAD_BODIES.items()),
    held("a chunk of 2^63 bytes", chunked(b"8000000000000000\r\n" + BODY + b"\r\n0\r\n\r\n")),
    held("a body cut off", request(LENGTH)[:-1]),
    # Lines and names.
    *(refused(name, request(line, LENGTH)) for name, line in _BAD_LINES.items()),
    refused("line feeds alone", request(LENGTH).replace(b"\r\n", b"\n")),
    refused("a line feed ends the head", request(LENGTH).replace(b"\r\n\r\n", b"\r\n\n", 1)),
    refused("line feeds end the head", request(LENGTH).replace(b"\r\n\r\n", b"\n\n", 1)),
    passed("high bytes in a value", request(b"x: \xff\xfe", LENGTH), lines=b"x: \xff\xfe\r\n"),
    # Start lines.
    *(refused(f"start {one!r}", request(LENGTH, start=one % PATH)) for one in _BAD_STARTS),
    passed("empty lines first", b"\r\n\r\n" + request(LENGTH)),
    # Where the target names the host, Host says nothing (RFC 9112, 3.2.2).
    *(passed(f"absolute form {one!r}", request(LENGTH, start=b"POST " + one + PATH + b" HTTP/1.1"))
      for one in _AUTHORITIES),
    *(refused(f"absolute form {one!r}", request(LENGTH, start=b"POST " + one + PATH + b" HTTP/1.1"))
      for one in _BAD_AUTHORITIES),
    Row("a query in absolute form", request(
        LENGTH, start=b"POST http://b" + PATH + b"?a=/b HTTP/1.1"
    ), (200,), 1, stays=True, query=b"?a=/b"),
    answered("absolute form without a path", request(LENGTH, start=b"POST http://b HTTP/1.1"), 404),
    refused("absolute form without Host", _hosted(b"POST http://b" + PATH + b" HTTP/1.1")),
    refused("no Host", _hosted(START)),
    refused("two equal Hosts", _hosted(START, b"host: a", b"Host: a")),
    passed("HTTP/1.0 without Host", _hosted(START[:-1] + b"0"), stays=False),
    *(passed(f"host {one!r}", _hosted(START, b"host:" + one)) for one in _GOOD_HOSTS),
    *(refused(f"host {one!r}", _hosted(START, b"host: " + one)) for one in _BAD_HOSTS),
    *(refused(f"HTTP/1.0 and host {one!r}", _hosted(START[:-1] + b"0", b"host: " + one))
      for one in _BAD_HOSTS),
    answered("another authority", request(LENGTH, start=b"POST //b" + PATH + b" HTTP/1.1"), 404),
    answered("a path with dots", request(LENGTH, start=b"POST /v1/.." + PATH + b" HTTP/1.1"), 404),
    answered("a fragment", request(LENGTH, start=b"POST " + PATH + b"#x HTTP/1.1"), 404),
    Row("an escaped line end in the query", request(
        LENGTH, start=b"POST " + PATH + b"?%0d%0aevil:1 HTTP/1.1"
    ), (200,), 1, stays=True, query=b"?%0d%0aevil:1"),
    passed("HTTP/1.0", request(LENGTH, start=START[:-1] + b"0"), stays=False),
    refused("HTTP/1.0 in chunks", request(CHUNKED, body=CHUNKS, start=START[:-1] + b"0")),
    # One after the other.
    Row("pipelined", request(LENGTH) * 2, (200, 200), 2, stays=True),
    refused("after a refused one", request(LENGTH, LENGTH) + _SMUGGLED),
    refused("in the body of a refused one", request(LENGTH, CHUNKED, body=CHUNKS + _SMUGGLED)),
    Row("garbage after a good one", request(LENGTH) + b"\0\0", (200, 400), 1, stays=False),
    Row("a bad one after a good one", request(LENGTH) + request(LENGTH, LENGTH), (200, 400), 1,
        stays=False),
    passed("after the last one", request(LENGTH, b"connection: close") + _SMUGGLED, stays=False),
    passed("after HTTP/1.0", request(LENGTH, start=START[:-1] + b"0") + _SMUGGLED, stays=False),
    Row("a request in a body", request(b"content-length: %d" % len(_SMUGGLED), body=_SMUGGLED),
        (400,), 0, stays=True),
    answered("a body that is not read", request(
        b"content-length: %d" % len(_SMUGGLED), body=_SMUGGLED, start=b"GET /health HTTP/1.1"
    ), 200),
    # Other protocols.
    passed("a wish for HTTP/2", request(UPGRADE, LENGTH)),
    passed("a wish for HTTP/2 with chunks", request(UPGRADE, CHUNKED, body=CHUNKS)),
    passed("a wish for a socket", request(UPGRADE.replace(b"h2c", b"websocket"), LENGTH)),
    refused("a wish with length and chunks", request(UPGRADE, CHUNKED, LENGTH, body=CHUNKS)),
    refused("a wish with two lengths", request(UPGRADE, LENGTH, LENGTH)),
    refused("a wish with a folded coding", request(UPGRADE, b"transfer-encoding:\r\n chunked")),
    Row("a wish without a body", request(UPGRADE, body=_SMUGGLED), (400, 200), 1, stays=True),
    passed("a connection that names the length", request(b"connection: content-length", LENGTH)),
    passed("an unknown expectation", request(b"expect: 999-junk", LENGTH)),  # ignored: RFC 9110, 10.1.1
]  # fmt: skip

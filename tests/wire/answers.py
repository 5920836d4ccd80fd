"""Raw answers of engines that lie about where they end, and what becomes of the caller's request."""

from typing import NamedTuple

TEXT = b'{"choices":[]}'
LEN = len(TEXT)
OK = b"HTTP/1.1 200 OK\r\n"
LENGTH = b"content-length: %d\r\n" % LEN
CHUNKED = b"transfer-encoding: chunked\r\n"
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (LEN, TEXT)
GOOD = OK + LENGTH + b"\r\n" + TEXT
SMUGGLED = OK + b"content-length: 9\r\n\r\n" + b'"another"'


class Row(NamedTuple):
    """Bytes that an engine writes, in pieces with a pause between, and whether it closes after them."""

    name: str
    pieces: tuple[bytes, ...]
    passes: bool  # the caller has TEXT; or else 502
    closes: bool = False  # the engine, after the last piece


def bad(name: str, *pieces: bytes, closes: bool = False) -> Row:
    """The caller gets an error, and nothing of it."""
    return Row(name, pieces, passes=False, closes=closes)


def good(name: str, *pieces: bytes, closes: bool = False) -> Row:
    """The caller gets the answer."""
    return Row(name, pieces, passes=True, closes=closes)


def chunked(chunks: bytes, *more: bytes) -> tuple[bytes, ...]:
    """An answer whose body is framed like this."""
    return OK + CHUNKED + b"\r\n" + chunks, *more


ROWS = [
    good("a length", GOOD),
    good("chunks", *chunked(CHUNKS)),
    good("in two pieces", GOOD[:-3], GOOD[-3:]),
    good("a continue first", b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD),
    good("hints first", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", GOOD),
    good("no length", OK + b"\r\n" + TEXT, closes=True),
    good("HTTP/1.0", GOOD.replace(b"1.1", b"1.0"), closes=True),
    good("an empty line after", GOOD + b"\r\n"),
    good("trailers", *chunked(CHUNKS[:-2] + b"content-type: text/event-stream\r\n\r\n")),
    # Two framings, or a wrong one.
    bad("a length and chunks", OK + LENGTH + CHUNKED + b"\r\n" + CHUNKS),
    bad("chunks and a length", OK + CHUNKED + LENGTH + b"\r\n" + CHUNKS),
    bad("the same length twice", OK + LENGTH + LENGTH + b"\r\n" + TEXT),
    bad("two lengths", OK + LENGTH + b"content-length: 2\r\n\r\n" + TEXT),
    bad("a list of lengths", OK + b"content-length: %d, %d\r\n\r\n" % (LEN, LEN) + TEXT),
    bad("a length with a sign", OK + b"content-length: +%d\r\n\r\n" % LEN + TEXT),
    bad("a length below zero", OK + b"content-length: -1\r\n\r\n" + TEXT),
    bad("a length that overflows", OK + b"content-length: 99999999999999999999\r\n\r\n" + TEXT),
    bad("chunked, then not", OK + b"transfer-encoding: chunked, x\r\n\r\n" + CHUNKS, closes=True),
    bad("another coding", OK + b"transfer-encoding: gzip\r\n\r\n" + TEXT, closes=True),
    *(bad(f"size {size!r}", *chunked(size + b"\r\n" + TEXT + b"\r\n0\r\n\r\n"))
      for size in (b"0xe", b"+e", b"-e", b" e", b"e ", b"", b"g", b"e\n", b"1" + b"0" * 16)),
    bad("no end of a chunk", *chunked(CHUNKS.replace(b"}\r\n", b"}XX"))),
    bad("line feeds end the body", *chunked(CHUNKS.replace(b"0\r\n\r\n", b"0\n\n"))),
    # More than was asked for, and less.
    bad("two answers", GOOD + SMUGGLED),
    bad("an answer and a half", GOOD + SMUGGLED[:-5]),
    bad("an answer and the beginning of one", GOOD + b"HTT"),
    bad("two answers in chunks", *chunked(CHUNKS + SMUGGLED)),
    bad("a longer body", GOOD + b"xyz"),
    bad("more after the last chunk", *chunked(CHUNKS + b"xyz")),
    bad("more after the last one", OK + b"connection: close\r\n" + LENGTH + b"\r\n" + TEXT + SMUGGLED),
    bad("a shorter body", GOOD[:-1], closes=True),
    bad("chunks that do not end", *chunked(CHUNKS[:-5]), closes=True),
    bad("half a head", GOOD[:20], closes=True),
    bad("nothing", b"", closes=True),
    # Heads.
    bad("a fold", OK + b"x: a\r\n b\r\n" + LENGTH + b"\r\n" + TEXT),
    bad("a bare line feed", OK + b"x: 1\nset-cookie: 1\r\n" + LENGTH + b"\r\n" + TEXT),
    bad("a bare carriage return", OK + b"x: 1\rset-cookie: 1\r\n" + LENGTH + b"\r\n" + TEXT),
    bad("line feeds alone", GOOD.replace(b"\r\n", b"\n")),
    bad("NUL in a value", OK + b"x: a\0b\r\n" + LENGTH + b"\r\n" + TEXT),
    bad("a blank before the colon", OK + b"x : a\r\n" + LENGTH + b"\r\n" + TEXT),
    bad("no colon", OK + b"xyz\r\n" + LENGTH + b"\r\n" + TEXT),
    bad("a status of four digits", GOOD.replace(b"200", b"2000")),
    bad("a status of two", GOOD.replace(b"200", b"20")),
    bad("status 000", GOOD.replace(b"200", b"000")),
    bad("another protocol", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n"
        b"connection: upgrade\r\n\r\n" + GOOD),
    bad("another protocol, unsaid", b"HTTP/1.1 101 Switching Protocols\r\n\r\n", GOOD),
    bad("a request", b"POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n"),
    bad("no HTTP", b"\x16\x03\x01 hello\r\n\r\n"),
    bad("a head without end", OK, *[b"x: " + b"y" * 8000 + b"\r\n"] * 40),
    bad("continues without end", *[b"HTTP/1.1 100 Continue\r\n\r\n" * 1000] * 20),
]  # fmt: skip

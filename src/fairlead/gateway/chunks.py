"""Bodies in chunks (RFC 9112, 7.1), for the usual case that what came is whole chunks."""

from typing import Final

_HEX: Final = b"0123456789abcdefABCDEF"
_END: Final = b"\r\n"
# Digits of a length, and the end of its line.
_MAX_LINE: Final = 10
# The lengths that events have.
_LENGTHS: Final = {b"%x" % length: length for length in range(1, 1024)}


def one_chunk(data: bytes) -> bytes:
    """The body in `data` if it is a single chunk of a usual length, else nothing. O(data)."""
    digits, _, chunk = data.partition(_END)
    length = _LENGTHS.get(digits)
    if length is None or length + 2 != len(chunk) or not chunk.endswith(_END):
        return b""
    return chunk[:-2]


def whole_chunks(data: bytes) -> tuple[bytes, bool] | None:
    """The body in `data`, and whether it ends there; None if `data` is not just whole chunks.

    For who stands at the beginning of a chunk. None is no verdict: extensions, trailers, parts of
    chunks and what is no chunk at all are a parser's to read. O(data).
    """
    begin = 0
    pieces: list[bytes] = []
    while True:
        line_end = data.find(_END, begin, begin + _MAX_LINE)
        digits = data[begin:line_end]
        if line_end <= begin or digits.strip(_HEX):
            return None
        at = line_end + 2
        end = at + int(digits, 16)
        begin = end + 2
        if data[end:begin] != _END:
            return None
        ends = begin == len(data)
        if at == end:
            return (b"".join(pieces), True) if ends else None
        if ends and not pieces:
            return data[at:end], False
        pieces.append(data[at:end])
        if ends:
            return b"".join(pieces), False

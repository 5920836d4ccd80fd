"""Heads of responses: what is kept of an engine's, and the lines that the gateway writes of its own."""

from email.utils import formatdate

REASONS = {
    200: b"OK", 400: b"Bad Request", 401: b"Unauthorized", 403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed", 408: b"Request Timeout", 413: b"Content Too Large",
    429: b"Too Many Requests", 431: b"Request Header Fields Too Large",
    500: b"Internal Server Error", 502: b"Bad Gateway", 503: b"Service Unavailable",
    504: b"Gateway Timeout",
}  # fmt: skip
# Responses without a body, whatever their headers are (RFC 9110, 15.3.5 and 15.4.5).
BODILESS = frozenset((204, 304))


class ResponseHead:
    """Status and headers of an engine's response."""

    __slots__ = ("content_type", "dated", "framed", "keep_alive", "lines", "status")

    def __init__(self) -> None:
        self.status = 0
        self.lines: list[bytes] = []  # as received, without the headers of one connection
        self.content_type = b""
        self.dated = False  # has a Date header
        self.framed = False  # has a Content-Length or Transfer-Encoding header
        self.keep_alive = False


def date_line() -> bytes:
    """The current Date header (RFC 9110, 6.6.1), for responses without one. Made once a second."""
    return b"date: %b\r\n" % formatdate(usegmt=True).encode()


def without_names(lines: bytes, echo: bytes) -> bytes:
    """Drop from header `lines` every header that `echo` sets, too: engines echo request ids as well."""
    names = {line.partition(b":")[0] for line in echo.split(b"\r\n") if line}
    kept = [line for line in lines.split(b"\r\n") if line.partition(b":")[0].lower() not in names]
    return b"\r\n".join(kept)

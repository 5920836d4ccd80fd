"""How an answer to a caller begins: its first line, its headers, and none of them twice."""

from email.utils import formatdate

from fairlead.gateway.answer_reader import Head

REASONS = {
    200: b"OK", 400: b"Bad Request", 401: b"Unauthorized", 403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed", 408: b"Request Timeout", 413: b"Content Too Large",
    429: b"Too Many Requests", 431: b"Request Header Fields Too Large",
    500: b"Internal Server Error", 502: b"Bad Gateway", 503: b"Service Unavailable",
    504: b"Gateway Timeout",
}  # fmt: skip


def date_line() -> bytes:
    """When an answer was made, for those that do not say so (RFC 9110, 6.6.1); once a second is enough."""
    return b"date: %b\r\n" % formatdate(usegmt=True).encode()


def opening_of(head: Head) -> bytes:
    """Its first line and its headers, made once for all answers that share the head."""
    reason = REASONS.get(head.status, b"")
    head.opening = b"HTTP/1.1 %d %b\r\n%b" % (head.status, reason, b"".join(head.lines))
    return head.opening


def without(lines: bytes, echo: bytes) -> bytes:
    """Header lines but for those with a name that `echo` has, too: an engine may echo as well."""
    names = {line.partition(b":")[0] for line in echo.split(b"\r\n") if line}
    kept = [line for line in lines.split(b"\r\n") if line.partition(b":")[0].lower() not in names]
    return b"\r\n".join(kept)

"""Head reader: the headers of a request that the gateway uses, and those that it passes on."""

import re
from typing import Final

from fairhit.errors import BadRequest, TooLarge
from fairhit.gateway.auth.header_rules import (
    API_KEY,
    AUTHORIZATION,
    CONNECTION,
    DROPPED,
    ENCODING,
    EXPECT,
    HEADERS,
    HOST,
    LENGTH,
    TENANT,
)
from fairhit.gateway.proxy.incoming_request import RequestHead

_USUAL_CONNECTION = (b"keep-alive", b"close")
# RFC 3986, 3.2.2 and 3.2.3, without user and password, which no Host has (RFC 9110, 4.2.4, 7.2).
_HOST_AND_PORT: Final = re.compile(
    rb"(?:\[[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*\]|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
)
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)


class HeadReader:
    """Builds one RequestHead from the headers that the parser finds."""

    __slots__ = ("_lines", "_max_body_len", "_of_connection", "expects", "head")

    def __init__(self, max_body_len: int) -> None:
        self.head = RequestHead()
        self.expects = False  # the client waits for 100 Continue
        self._max_body_len = max_body_len
        self._lines: list[bytes] = []  # headers that are passed on
        self._of_connection = b""  # names listed by unusual Connection headers

    def add(self, name: bytes, value: bytes) -> None:
        """Add the next header. Raises BadRequest, or TooLarge for a length."""
        lowered = name.lower()
        rule = HEADERS.get(lowered)
        if rule is None:
            # Some servers read an underscore as a dash: such a header is neither used nor passed on.
            if b"_" in lowered and lowered.replace(b"_", b"-") in HEADERS:
                return
            self._lines.append(name + b": " + value + b"\r\n")
        elif rule != DROPPED:
            self._apply(rule, lowered, value)

    def finish(self) -> RequestHead:
        """Build the head from the headers added so far."""
        if self._of_connection:
            self._drop_of_connection()
        self.head.lines = b"".join(self._lines)
        return self.head

    def _apply(self, rule: int, name: bytes, value: bytes) -> None:
        head = self.head
        if rule <= API_KEY:
            self._set_key(rule, value)
        elif rule == TENANT:
            head.tenants.setdefault(name, []).append(value)
        elif rule == HOST:
            if head.has_host:
                raise BadRequest("more than one Host header")
            head.has_host, head.host = True, value
        elif rule == ENCODING:
            # Proxies in front may support other codings, or parse them otherwise.
            if value.strip(b" ").lower() != b"chunked":
                raise BadRequest("the only supported Transfer-Encoding is chunked")
            head.framing += b"transfer-encoding: " + value + b"\r\n"
        elif rule == LENGTH:
            head.framing = b"content-length: " + value + b"\r\n"
            # The parser has checked that it is a number, or will refuse it.
            if value.isdigit() and int(value[:20]) > self._max_body_len:
                raise too_long(self._max_body_len)
        elif rule == EXPECT:
            # No other expectation is supported, and those may be ignored (RFC 9110, 10.1.1).
            members = value.lower().split(b",")
            self.expects |= any(one.strip(b" \t") == b"100-continue" for one in members)
        elif rule == CONNECTION and value.lower() not in _USUAL_CONNECTION:
            self._of_connection += b"," + value.lower()

    def _set_key(self, rule: int, value: bytes) -> None:
        head = self.head
        if head.authorization if rule == AUTHORIZATION else head.api_key:
            raise BadRequest("more than one Authorization or x-api-key header")
        if rule == AUTHORIZATION:
            head.authorization = value
        else:
            head.api_key = value

    def _drop_of_connection(self) -> None:
        """Drop the headers that the Connection header names (RFC 9110, 7.6.1)."""
        names = {name.strip(b" \t") for name in self._of_connection.split(b",")}
        self._lines[:] = [
            line for line in self._lines if line.partition(b":")[0].lower() not in names
        ]


def check_host(head: RequestHead) -> str:
    """Check the Host header, and move the host of an absolute target there (RFC 9112, 3.2 and 3.2.2).
    Returns the defect, empty if there is none. O(target).
    """
    if not head.has_host and not head.http10:
        return "HTTP/1.1 needs a Host header"
    if not _HOST_AND_PORT.fullmatch(head.host.strip(b" \t")):
        return "the Host header is no host"
    absolute = _ABSOLUTE.fullmatch(head.target)
    if absolute is not None:
        head.host, target = absolute.groups()
        if head.host[:1] in {b"", b":"} or not _HOST_AND_PORT.fullmatch(head.host):
            return "the target names no host"
        head.target = target if target.startswith(b"/") else b"/" + target
    return ""


def too_long(max_body_len: int) -> TooLarge:
    """The error for a body longer than `max_body_len`."""
    return TooLarge(f"the body is longer than {max_body_len} bytes")

"""Headers that an operator names: an id that is echoed, web pages that may ask, who the tenant is.

All of it is off unless asked for, and costs nothing then.
"""

import re
import secrets
from itertools import count
from typing import NamedTuple, Self

from fairhit.gateway.auth.identity import TENANT_HEADERS
from fairhit.gateway.proxy.incoming_request import IncomingRequest, RequestHead
from fairhit.gateway.settings import GatewaySettings

# An id goes into logs and headers; who sends a longer or a stranger one gets one of ours.
_ID = rb"([!-~]{1,200})"
# Values of header lines, without blanks around them. Possessive: of 60,000 blanks within a value each would
# else be where it might end, which is a second's work.
ANY_VALUE = rb"((?: *+[^\r ]++)*+)"
_VISIBLE = rb"((?: *+[!-~]++)++)"
# How long a browser may remember that it may ask.
_REMEMBER_S = 600


class Marked(NamedTuple):
    """A head, marked."""

    lines: bytes  # without what is not the engine's business
    echo: bytes = b""  # what its answer says
    has_id: bool = True  # or each request with it needs one of ours
    tenant: bytes = b""
    tenant_twice: bool = False
    asks_whether: bool = False  # a browser's question before the request


class HeaderOptions:
    """Marks requests as they are admitted."""

    @classmethod
    def wanted(cls, settings: GatewaySettings) -> Self | None:
        """None where no such header is named."""
        names = settings.request_id_headers, settings.cors_allowed_origins
        return cls(settings) if any(names) or settings.tenant_header_name else None

    def __init__(self, settings: GatewaySettings) -> None:
        names = [name.lower().encode() for name in settings.request_id_headers]
        self._id_name = names[0] if names else b""
        self._ids = [header_line(name, _ID) for name in names]
        self._odd_id = header_line(self._id_name, ANY_VALUE)
        self._origins = frozenset(origin.encode() for origin in settings.cors_allowed_origins)
        self._any_origin = b"*" in self._origins
        self._origin = header_line(b"origin", rb"([!-~]++)")
        self._wanted = header_line(b"access-control-request-headers", _VISIBLE)
        tenant = (settings.tenant_header_name or "").lower().encode()
        # A usual one is not among a request's lines: who read them has kept it apart.
        self._usual_tenant = tenant if tenant in TENANT_HEADERS else b""
        self._tenant = header_line(tenant, ANY_VALUE) if tenant != self._usual_tenant else None
        # Unlike another gateway's, and our own of an earlier life.
        self._prefix = secrets.token_hex(6).encode()
        self._numbers = count(1)

    def of(self, head: RequestHead) -> Marked:
        """What a head means for them. Its own lines stay as they are. O(head)."""
        lines = passed = head.lines
        (tenant, twice), echo = head.tenant(self._usual_tenant), b""
        if self._tenant is not None:
            # Not even a usual one: whoever sets the named one may let those of callers through.
            named = self._tenant.findall(lines)
            tenant, twice = named[0] if named else b"", len(named) > 1
            passed = self._tenant.sub(b"", passed)
        own = self._id_in(lines)
        if own is not None:
            echo = self._id_line(own)
        elif self._ids:
            passed = self._odd_id.sub(b"", passed)
        found = self._origin.search(lines) if self._origins else None
        allowed = found is not None and (self._any_origin or found[1] in self._origins)
        if found is not None and allowed:
            echo += b"access-control-allow-origin: %b\r\nvary: origin\r\n" % found[1]
            if self._id_name:
                echo += b"access-control-expose-headers: %b\r\n" % self._id_name
        if self._origins:  # an engine that was told of the page would answer it, too
            passed = self._origin.sub(b"", passed)
        return Marked(
            passed,
            echo=echo,
            has_id=own is not None or not self._ids,
            tenant=tenant,
            tenant_twice=twice,
            asks_whether=allowed and head.method == b"OPTIONS",
        )

    def name(self, request: IncomingRequest) -> None:
        """Give it an id of ours, which its engine and its caller are told."""
        line = self._id_line(b"%b-%d" % (self._prefix, next(self._numbers)))
        request.lines += line
        request.echo = line + request.echo

    def preflight(self, request: IncomingRequest) -> tuple[bytes, ...] | None:
        """Headers that tell a browser that the page may ask; None if that is not its question."""
        if request.head.method != b"OPTIONS" or b"access-control-allow-origin" not in request.echo:
            return None
        wanted = self._wanted.search(request.head.lines)
        headers = wanted[1] if wanted is not None else b"authorization, content-type"
        return (
            b"access-control-allow-methods: GET, POST\r\n",
            b"access-control-allow-headers: " + headers + b"\r\n",
            b"access-control-max-age: %d\r\n" % _REMEMBER_S,
        )

    def _id_in(self, lines: bytes) -> bytes | None:
        for pattern in self._ids:
            found = pattern.search(lines)
            if found is not None:
                return found[1]
        return None

    def _id_line(self, value: bytes) -> bytes:
        return b"%b: %b\r\n" % (self._id_name, value)


def header_line(name: bytes, value: bytes) -> re.Pattern[bytes]:
    """A whole line: several that follow each other are each found, and can be taken out."""
    line = b"^" + re.escape(name) + b": *+" + value + rb" *+\r\n"
    return re.compile(line, re.IGNORECASE | re.MULTILINE)

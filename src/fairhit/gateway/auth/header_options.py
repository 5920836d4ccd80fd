"""Headers that an operator configures: request ids, origins of web pages (CORS), tenant, routing key.

Each is off unless configured, and then costs nothing.
"""

import re
import secrets
from itertools import count
from typing import NamedTuple, Self

from fairhit.gateway.auth.identity import TENANT_HEADERS
from fairhit.gateway.proxy.incoming_request import IncomingRequest, RequestHead
from fairhit.gateway.settings import GatewaySettings

# Ids go into logs and headers: a longer id, or one of other characters, is replaced.
_ID = rb"([!-~]{1,200})"
# Values of header lines without blanks around them. Possessive: otherwise each of 60,000 blanks within a
# value is tried as its end, which takes a second.
_ANY_VALUE = rb"((?: *+[^\r ]++)*+)"
_VISIBLE = rb"((?: *+[!-~]++)++)"
# For which browsers may cache the answer to a preflight request.
_PREFLIGHT_S = 600


class OptionValues(NamedTuple):
    """Values of the configured headers in a head."""

    lines: bytes  # headers that are passed on to the engine
    echo: bytes = b""  # headers that are added to the response
    has_id: bool = True  # else each request needs a generated id
    tenant: bytes = b""
    tenant_twice: bool = False
    is_preflight: bool = False  # a browser's OPTIONS request before the real one


class HeaderOptions:
    """Reads request ids, origins and tenants from heads."""

    @classmethod
    def wanted(cls, settings: GatewaySettings) -> Self | None:
        """None if no such header is configured."""
        names = settings.request_id_headers, settings.cors_allowed_origins
        return cls(settings) if any(names) or settings.tenant_header_name else None

    def __init__(self, settings: GatewaySettings) -> None:
        names = [name.lower().encode() for name in settings.request_id_headers]
        self._id_name = names[0] if names else b""
        self._ids = [_header_line(name, _ID) for name in names]
        self._invalid_id = _header_line(self._id_name, _ANY_VALUE)
        self._origins = frozenset(origin.encode() for origin in settings.cors_allowed_origins)
        self._any_origin = b"*" in self._origins
        self._origin = _header_line(b"origin", rb"([!-~]++)")
        self._requested = _header_line(b"access-control-request-headers", _VISIBLE)
        tenant = (settings.tenant_header_name or "").lower().encode()
        # The parser keeps the well-known tenant headers apart from the other lines.
        self._known_tenant = tenant if tenant in TENANT_HEADERS else b""
        self._tenant = _header_line(tenant, _ANY_VALUE) if tenant != self._known_tenant else None
        # Unlike that of another gateway, or of this one before a restart.
        self._prefix = secrets.token_hex(6).encode()
        self._numbers = count(1)

    def read(self, head: RequestHead) -> OptionValues:
        """Values of the options in `head`, which is not changed. O(head)."""
        lines = passed = head.lines
        (tenant, twice), echo = head.tenant(self._known_tenant), b""
        if self._tenant is not None:
            # Well-known headers are ignored: the proxy that sets the configured one may not filter them.
            named = self._tenant.findall(lines)
            tenant, twice = named[0] if named else b"", len(named) > 1
            passed = self._tenant.sub(b"", passed)
        own = self._find_id(lines)
        if own is not None:
            echo = self._id_line(own)
        elif self._ids:
            passed = self._invalid_id.sub(b"", passed)
        found = self._origin.search(lines) if self._origins else None
        allowed = found is not None and (self._any_origin or found[1] in self._origins)
        if found is not None and allowed:
            echo += b"access-control-allow-origin: %b\r\nvary: origin\r\n" % found[1]
            if self._id_name:
                echo += b"access-control-expose-headers: %b\r\n" % self._id_name
        if self._origins:  # an engine that sees the origin would add CORS headers, too
            passed = self._origin.sub(b"", passed)
        return OptionValues(
            passed,
            echo=echo,
            has_id=own is not None or not self._ids,
            tenant=tenant,
            tenant_twice=twice,
            is_preflight=allowed and head.method == b"OPTIONS",
        )

    def add_id(self, request: IncomingRequest) -> None:
        """Add a generated id to the headers for the engine and for the response."""
        line = self._id_line(b"%b-%d" % (self._prefix, next(self._numbers)))
        request.lines += line
        request.echo = line + request.echo

    def preflight(self, request: IncomingRequest) -> tuple[bytes, ...] | None:
        """CORS headers of the response to a preflight request; None if `request` is not a preflight."""
        if request.head.method != b"OPTIONS" or b"access-control-allow-origin" not in request.echo:
            return None
        requested = self._requested.search(request.head.lines)
        headers = requested[1] if requested is not None else b"authorization, content-type"
        return (
            b"access-control-allow-methods: GET, POST\r\n",
            b"access-control-allow-headers: " + headers + b"\r\n",
            b"access-control-max-age: %d\r\n" % _PREFLIGHT_S,
        )

    def _find_id(self, lines: bytes) -> bytes | None:
        for pattern in self._ids:
            found = pattern.search(lines)
            if found is not None:
                return found[1]
        return None

    def _id_line(self, value: bytes) -> bytes:
        return b"%b: %b\r\n" % (self._id_name, value)


class RoutingKey:
    """Reads the header whose value the sticky router maps to an engine."""

    @classmethod
    def wanted(cls, settings: GatewaySettings) -> Self | None:
        """None if the router uses no key."""
        return cls(settings.routing_key_header) if settings.router() == "sticky" else None

    def __init__(self, name: str) -> None:
        self._name = name.encode()
        # The parser keeps the well-known tenant headers apart from the other lines.
        self._is_tenant = self._name in TENANT_HEADERS
        self._line = _header_line(self._name, _ANY_VALUE)

    def of(self, head: RequestHead) -> str:
        """First value of the header; empty without one. O(head)."""
        if self._is_tenant:
            value = head.tenants.get(self._name, [b""])[0]
        else:
            found = self._line.search(head.lines)
            value = found[1] if found is not None else b""
        return value.decode("latin-1")


def _header_line(name: bytes, value: bytes) -> re.Pattern[bytes]:
    """Pattern of a whole line, so that `sub` removes repeated lines, too."""
    line = b"^" + re.escape(name) + b": *+" + value + rb" *+\r\n"
    return re.compile(line, re.IGNORECASE | re.MULTILINE)

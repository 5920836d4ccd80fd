"""The routing key of a request, for the router that sends requests with one key to one engine."""

from typing import Self

from fairhit.gateway.auth.header_options import ANY_VALUE, header_line
from fairhit.gateway.auth.identity import TENANT_HEADERS
from fairhit.gateway.proxy.incoming_request import RequestHead
from fairhit.gateway.settings import GatewaySettings


class RoutingKey:
    """Reads the header that an operator names."""

    @classmethod
    def wanted(cls, settings: GatewaySettings) -> Self | None:
        """None where the router looks at no key."""
        return cls(settings.routing_key_header) if settings.router() == "sticky" else None

    def __init__(self, name: str) -> None:
        self._name = name.encode()
        # A tenant header is not among a request's lines: the reader has kept it apart.
        self._is_apart = self._name in TENANT_HEADERS
        self._line = header_line(self._name, ANY_VALUE)

    def of(self, head: RequestHead) -> str:
        """Its value, the first if there are several; empty: no key. O(head)."""
        if self._is_apart:
            value = head.tenants.get(self._name, [b""])[0]
        else:
            found = self._line.search(head.lines)
            value = found[1] if found is not None else b""
        return value.decode("latin-1")

"""Requests as received from clients, and the memory budget of their bodies."""

from typing import NamedTuple

from fairhit.core.request import ClientId
from fairhit.errors import FairhitError, NoEngine, QueueFull
from fairhit.gateway.api.endpoints import Endpoint
from fairhit.gateway.auth.identity import TENANT_HEADERS
from fairhit.gateway.auth.keys import shown_digest

# A long body is gathered in one bytearray: joining its pieces would copy all of it in one step.
Body = bytes | bytearray
# Bytes of bodies in memory, over all connections: what a machine that runs engines can spare for prompts,
# and a thousand bodies of a megabyte each.
_MAX_ARRIVED = 1 << 30


class AdmittedHead(NamedTuple):
    """Results of access control for a head; valid for the access control of this number."""

    access_control: int
    client: ClientId | None  # None: the head does not identify the client
    lines: bytes  # headers that are passed on to the engine
    echo: bytes  # headers that are added to the response
    needs_id: bool  # each request needs a generated request id
    wants_body: bool
    refusal: FairhitError | None


class RequestHead:
    """Request line and headers. Requests with the same head share the object: it does not change once it
    is read, but for the cached results of access control.
    """

    __slots__ = (
        "_shown", "admitted", "api_key", "authorization", "endpoint", "framing", "has_host", "host", "http10",
        "lines", "method", "target", "tenants",
    )  # fmt: skip

    def __init__(self) -> None:
        self.method = self.target = b""
        self.lines = b""  # headers that are passed on
        self.authorization = self.api_key = b""
        self._shown: bytes | None = None
        self.tenants: dict[bytes, list[bytes]] = {}  # values of each tenant header
        self.endpoint: Endpoint | None = None  # of the path, if requests to it go to an engine
        self.framing = b""  # the header that determines the end of the body
        self.host = b""
        self.has_host = False
        self.http10 = False
        self.admitted: AdmittedHead | None = None

    def tenant(self, name: bytes = b"") -> tuple[bytes, bool]:
        """Value of the tenant header `name`, or of the first in precedence, and True if it is repeated."""
        name = name or min(self.tenants, key=TENANT_HEADERS.index, default=b"")
        values = self.tenants.get(name, [b""])
        return values[0], len(values) > 1

    def shown(self) -> bytes:
        """Digest of the API key in the head, empty without a key. Computed once."""
        if self._shown is None:
            self._shown = shown_digest(self.authorization, self.api_key)
        return self._shown


class IncomingRequest:
    """A request; with a `refusal` it is answered with that error."""

    __slots__ = (
        "body", "client", "echo", "head", "held", "keep_alive", "lines", "refusal", "status",
    )  # fmt: skip

    def __init__(self, head: RequestHead) -> None:
        self.head = head
        self.body: Body = b""
        self.held = 0  # bytes of the body that the budget counts
        self.client: ClientId | None = None  # None: the head does not identify the client
        self.lines = b""  # headers that are passed on to the engine, once the request is admitted
        self.echo = b""  # headers that are added to the response
        self.keep_alive = True
        self.refusal: FairhitError | None = None
        self.status: int | None = None


class BodyBudget:
    """Bytes of bodies in memory, over all connections, until no engine is sent them again.

    One half of the limit is available to all. Beyond it a client with a quarter of the limit gets no more,
    so that one client's bodies leave memory for others'; requests without an identity in their head count
    as one client's.
    """

    __slots__ = ("_of_clients", "length", "limit")

    def __init__(self, limit: int = _MAX_ARRIVED) -> None:
        self.length = 0
        self.limit = limit
        self._of_clients: dict[ClientId | None, int] = {}  # no zeros

    def add(self, client: ClientId | None, length: int, *, most: int) -> FairhitError | None:
        """Count `length` > 0 bytes of this client, which may always have `most`; the error if that is too
        much, with the bytes counted all the same. O(1).
        """
        self.length += length
        own = self._of_clients[client] = self._of_clients.get(client, 0) + length
        if self.length > self.limit // 2 and own > max(self.limit // 4, most):
            return QueueFull("too many bytes of this client's requests are waiting")
        if self.length > self.limit:
            return NoEngine("too many bytes of requests are waiting")
        return None

    def remove(self, client: ClientId | None, length: int) -> None:
        """Stop counting `length` bytes of this client. O(1)."""
        self.length -= length
        own = self._of_clients[client] - length
        assert own >= 0, "more is freed than was counted"
        if own:
            self._of_clients[client] = own
        else:
            del self._of_clients[client]

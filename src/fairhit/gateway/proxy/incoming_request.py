"""One request as its caller sent it, and how much of requests is in memory."""

from typing import TYPE_CHECKING, NamedTuple

from fairhit.core.request import ClientId
from fairhit.errors import FairhitError, NoEngine, QueueFull
from fairhit.gateway.api.endpoints import Endpoint
from fairhit.gateway.auth.identity import TENANT_HEADERS
from fairhit.gateway.auth.keys import shown_digest

if TYPE_CHECKING:
    from fairhit.gateway.auth.access_control import AccessControl
    from fairhit.gateway.auth.header_options import HeaderOptions

# A long one is gathered where it is to lie: to join its pieces would copy all of it in one step.
Body = bytes | bytearray
# Bodies that are kept, over all connections: what a machine that runs engines can spare for
# callers' prompts, and a thousand of a megabyte each.
_MAX_ARRIVED = 1 << 30


class AdmittedHead(NamedTuple):
    """What follows from a head alone, as long as it is `by` whoever admits requests now."""

    by: "AccessControl"
    client: ClientId | None  # who asks, as far as the head says it
    lines: bytes  # headers as the engine gets them
    echo: bytes  # lines for the head of the answer
    marks: "HeaderOptions | None"  # who gives each request an id, where it needs one
    wants_body: bool
    refusal: FairhitError | None


class RequestHead:
    """What a head says. Requests with the same head share it: it does not change once it is read, but
    that it is noted who may ask.
    """

    __slots__ = (
        "_shown", "admitted", "api_key", "authorization", "framing", "has_host", "host", "http10",
        "lines", "method", "surface", "target", "tenants",
    )  # fmt: skip

    def __init__(self) -> None:
        self.method = self.target = b""
        self.lines = b""  # the headers that the gateway has no use for
        self.authorization = self.api_key = b""
        self._shown: bytes | None = None
        self.tenants: dict[bytes, list[bytes]] = {}  # what each tenant header said
        self.surface: Endpoint | None = None  # of the path, if that goes to an engine
        self.framing = b""  # the header that says where the body ends
        self.host = b""
        self.has_host = False
        self.http10 = False
        self.admitted: AdmittedHead | None = None

    def tenant(self, name: bytes = b"") -> tuple[bytes, bool]:
        """What the tenant header `name` says, or without one the foremost that came, and whether that
        came more than once.
        """
        name = name or min(self.tenants, key=TENANT_HEADERS.index, default=b"")
        said = self.tenants.get(name, [b""])
        return said[0], len(said) > 1

    def shown(self) -> bytes:
        """The digest of the key it shows, empty if it shows none. Made once."""
        if self._shown is None:
            self._shown = shown_digest(self.authorization, self.api_key)
        return self._shown


class Incoming:
    """One request; `refusal` if it need not be looked at further."""

    __slots__ = (
        "body", "client", "echo", "head", "held", "keep_alive", "lines", "refusal", "status",
    )  # fmt: skip

    def __init__(self, head: RequestHead) -> None:
        self.head = head
        self.body: Body = b""
        self.held = 0  # bytes of it that are counted
        self.client: ClientId | None = None  # who asks, as far as the head says it
        self.lines = b""  # headers as the engine gets them, once it is admitted
        self.echo = b""  # lines for the head of its answer
        self.keep_alive = True
        self.refusal: FairhitError | None = None
        self.status: int | None = None


class BodyBudget:
    """How many bytes of bodies are kept, over all connections: until no engine is sent them again.

    Half of the limit is anybody's. Beyond it who has a quarter gets no more, so that one client's
    bodies leave room for the others'; callers whose heads do not say who they are are one client.
    """

    __slots__ = ("_of_clients", "length", "limit")

    def __init__(self, limit: int = _MAX_ARRIVED) -> None:
        self.length = 0
        self.limit = limit
        self._of_clients: dict[ClientId | None, int] = {}  # who has none is not in it

    def add(self, client: ClientId | None, length: int, *, most: int) -> FairhitError | None:
        """`length` > 0 bytes more of this client's, which may always have `most`: why they may not be
        kept, if they may not; they count all the same. O(1).
        """
        self.length += length
        own = self._of_clients[client] = self._of_clients.get(client, 0) + length
        if self.length > self.limit // 2 and own > max(self.limit // 4, most):
            return QueueFull("too many bytes of this client's requests are waiting")
        if self.length > self.limit:
            return NoEngine("too many bytes of requests are waiting")
        return None

    def remove(self, client: ClientId | None, length: int) -> None:
        """`length` of them are not kept any more. O(1)."""
        self.length -= length
        own = self._of_clients[client] - length
        if own:
            self._of_clients[client] = own
        else:
            del self._of_clients[client]

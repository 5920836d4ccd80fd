"""One request as its caller sent it, and how much of requests is in memory."""

from fairlead.core.request import ClientId
from fairlead.errors import FairleadError
from fairlead.gateway.identity import TENANT_HEADERS
from fairlead.gateway.keys import shown_digest
from fairlead.gateway.surface import Surface

# Bodies that are kept, over all connections: what a machine that runs engines can spare for
# callers' prompts, and a thousand of a megabyte each.
_MAX_ARRIVED = 1 << 30


class Incoming:
    """One request as it came; `refusal` if it need not be looked at further."""

    __slots__ = (
        "_shown", "api_key", "authorization", "body", "client", "echo", "framing", "has_host",
        "host", "http10", "keep_alive", "lines", "method", "refusal", "status", "surface", "target",
        "tenant", "tenant_rank", "tenant_twice",
    )  # fmt: skip

    def __init__(self) -> None:
        self.method = self.target = self.body = b""
        self.lines: list[bytes] = []
        self.authorization = self.api_key = self.tenant = b""
        self._shown: bytes | None = None
        self.tenant_rank = len(TENANT_HEADERS)
        self.tenant_twice = False
        self.client: ClientId | None = None  # who asks, as far as the head says it
        self.surface: Surface | None = None  # of the path, if that goes to an engine
        self.echo = b""  # lines for the head of its answer
        self.framing = b""  # the header that says where the body ends
        self.host = b""
        self.has_host = False
        self.http10 = False
        self.keep_alive = True
        self.refusal: FairleadError | None = None
        self.status: int | None = None

    def shown(self) -> bytes:
        """The digest of the key it shows, empty if it shows none; made once for a head that repeats."""
        if self._shown is None:
            self._shown = shown_digest(self.authorization, self.api_key)
        return self._shown

    def repeated(self) -> "Incoming":
        """Another request with the same head, which has yet to be admitted."""
        other = Incoming()
        other.method, other.target = self.method, self.target
        other.lines, other.host = self.lines[:], self.host
        other.authorization, other.api_key = self.authorization, self.api_key
        other._shown = self._shown
        other.tenant, other.tenant_rank = self.tenant, self.tenant_rank
        other.tenant_twice = self.tenant_twice
        return other


class Arrived:
    """How many bytes of bodies are kept, over all connections: until no engine is sent them again."""

    __slots__ = ("length", "limit")

    def __init__(self, limit: int = _MAX_ARRIVED) -> None:
        self.length = 0
        self.limit = limit

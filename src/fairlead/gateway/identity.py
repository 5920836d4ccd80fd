"""Who is asking: an authenticated key, else a trusted header, else the body's `user`, else nobody.

What an untrusted caller says about itself never reaches an engine: its identity headers are dropped
by the connection, and its `vllm_xargs.fair_client` is overwritten here (DESIGN 5).
"""

from collections.abc import Mapping
from typing import Final

from fairlead.core.request import ClientId
from fairlead.errors import BadRequest, ConfigError, Unauthorized

ANONYMOUS: Final[ClientId] = "anonymous"
# Long enough for any id in use, short enough to be a metric label and to sit in every body.
MAX_CLIENT_LEN = 256
# Lower case, in order of precedence: llm-d's, its older spelling, smg's.
TENANT_HEADERS: Final = (
    b"x-llm-d-inference-fairness-id",
    b"x-gateway-inference-fairness-id",
    b"x-smg-tenant-id",
)


def parse_tenant_key(text: str, *, where: str) -> tuple[ClientId, str]:
    """`TENANT:KEY`; the message never repeats the key. Raises ConfigError."""
    client, colon, key = text.strip().partition(":")
    if not colon or not is_client_id(client):
        raise ConfigError(f"{where}: expected TENANT:KEY")
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"{where}: expected a key of printable ASCII without blanks")
    return client, key


def is_client_id(text: str) -> bool:
    """Whether `text` can name a client: printable and neither empty nor very long."""
    return 0 < len(text) <= MAX_CLIENT_LEN and text.isprintable()


class Identity:
    """Maps what a request carries to a client."""

    def __init__(
        self,
        *,
        keys: Mapping[str, ClientId],
        trust_tenant_header: bool = False,
        identify_by_user: bool = False,
    ) -> None:
        # A dictionary look-up leaks no prefix of a key: the hash is taken of the whole, keyed.
        self._keys = {b"Bearer " + key.encode(): client for key, client in keys.items()}
        self._trust_tenant_header = trust_tenant_header
        self._identify_by_user = identify_by_user

    @property
    def needs_key(self) -> bool:
        """Whether callers must show a key; it is then ours and not passed on."""
        return bool(self._keys)

    @property
    def trusts_header(self) -> bool:
        """Whether a tenant header is believed."""
        return self._trust_tenant_header

    def authenticate(self, authorization: bytes, tenant: bytes) -> ClientId | None:
        """The client of a key or a trusted header, None if the request has neither.

        Raises Unauthorized where keys are set and none of them was shown.
        """
        if self._keys:
            client = self._keys.get(authorization) or self._keys.get(_bearer(authorization))
            if client is not None:
                return client
            if authorization or not (tenant and self._trust_tenant_header):
                raise Unauthorized("missing or invalid API key")
        if tenant and self._trust_tenant_header:
            return _client_from(tenant.decode("utf-8", "replace"), param=None)
        return None

    def client_of(self, authenticated: ClientId | None, user: str | None) -> ClientId:
        """The client, once the body is read."""
        if authenticated is not None:
            return authenticated
        if user and self._identify_by_user:
            return _client_from(user, param="user")
        return ANONYMOUS


def _bearer(authorization: bytes) -> bytes:
    """The scheme's name is case-insensitive, and blanks may follow it."""
    scheme, _, key = authorization.partition(b" ")
    return b"Bearer " + key.strip() if scheme.lower() == b"bearer" else b""


def _client_from(text: str, *, param: str | None) -> ClientId:
    if not is_client_id(text):
        raise BadRequest(
            f"the client's name must be 1 to {MAX_CLIENT_LEN} printable characters", param=param
        )
    return text

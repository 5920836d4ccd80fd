"""Identity of clients: from an API key, else a trusted header, else the body's `user`, else anonymous.

What an untrusted caller claims about itself never reaches an engine: the parser drops its identity
headers, and the gateway overwrites its `vllm_xargs.fair_client` (DESIGN 5).
"""

from collections.abc import Mapping
from typing import Final

from fairhit.client_names import ANONYMOUS
from fairhit.core.request import ClientId
from fairhit.errors import BadRequest, Unauthorized
from fairhit.gateway.auth.keys import MAX_CLIENT_LEN, is_client_id

# Lower case, in order of precedence: llm-d's, its older spelling, smg's, and the header from which SGLang
# takes its `routing_key`, by which our plug-in identifies the client.
TENANT_HEADERS: Final = (
    b"x-llm-d-inference-fairness-id",
    b"x-gateway-inference-fairness-id",
    b"x-smg-tenant-id",
    b"x-smg-routing-key",
)


class Identity:
    """Maps keys, headers and bodies to clients. `keys` maps the digest of a key to its client."""

    def __init__(
        self,
        *,
        keys: Mapping[bytes, ClientId],
        trust_tenant_header: bool = False,
        identify_by_user: bool = False,
    ) -> None:
        self._keys = dict(keys)
        # Requests need a key of this gateway, which is not passed on to engines.
        self.needs_key = bool(keys)
        self.trusts_header = trust_tenant_header
        self._identify_by_user = identify_by_user

    def authenticate(self, shown: bytes, tenant: bytes) -> ClientId | None:
        """Client by key or trusted header; None if the request has neither.

        `shown` is the digest of the request's key, empty without a key. Raises Unauthorized if keys are
        configured and `shown` is none of them.
        """
        if self._keys:
            client = self._keys.get(shown)
            if client is not None:
                return client
            if shown or not (tenant and self.trusts_header):
                raise Unauthorized("missing or invalid API key")
        if tenant and self.trusts_header:
            return _client_from(tenant.decode("utf-8", "backslashreplace"), param=None)
        return None

    def client_of(self, authenticated: ClientId | None, user: str | None) -> ClientId:
        """Client of a request whose body names `user`."""
        if authenticated is not None:
            return authenticated
        if user and self._identify_by_user:
            return _client_from(user, param="user")
        return ANONYMOUS


def _client_from(text: str, *, param: str | None) -> ClientId:
    if not is_client_id(text):
        raise BadRequest(
            f"the client's name must be 1 to {MAX_CLIENT_LEN} printable characters", param=param
        )
    return text

"""Fields injected into request bodies: the client's identity, the request for usage, a cache salt.

Nothing else of a body changes, and nothing at all where all are switched off, or where the endpoint takes
none of them; but a client identity that the sender put there for an engine's plug-in is removed.

With `--isolate-prefixes` each client has a prefix cache of its own, so that cache hits reveal nothing about
other clients' prompts. `cache_salt`, which vLLM and SGLang both have, restricts hits to prompts with the
same salt. The salt is an HMAC: choosing another client's takes the gateway's secret.
"""

import hmac
import secrets
from functools import lru_cache, partial
from typing import Any, Final

from fairhit.client_names import client_name
from fairhit.core.request import ClientId
from fairhit.gateway.api.request_body import InjectedFields, ParsedBody
from fairhit.gateway.settings import GatewaySettings

# Clients whose fields and salts are cached.
_CACHED = 4096
_SECRET_LEN = 32
# Fields that carry the client, by `--identity-field`. Engines ignore each other's.
_IDENTITY_FIELDS: Final = {
    "vllm": ("vllm_xargs",),
    "sglang": ("custom_params",),
    "both": ("vllm_xargs", "custom_params"),
    "none": (),
}
# The header of which SGLang makes a request's `routing_key`; clients' own is not passed on.
_HEADER: Final = b"x-smg-routing-key: %b\r\n"


def _fields(
    identity_fields: tuple[str, ...], client: ClientId | None, salt: str | None, ask_usage: bool
) -> InjectedFields:
    fields: dict[str, Any] = {"stream_options": {"include_usage": True}} if ask_usage else {}
    if client is not None:
        fields |= {name: {"fair_client": client} for name in identity_fields}
    if salt is not None:
        fields["cache_salt"] = salt
    return InjectedFields(fields)


@lru_cache(_CACHED)
def _header(client: ClientId) -> bytes:
    # Mapped as the plug-in maps a name in a field: a client is the same by field and by header.
    return _HEADER % client_name(client).encode()


class PrefixIsolation:
    """Computes salts. `secret` None: a random one, so that gateways and restarts have different salts."""

    def __init__(self, secret: str | None) -> None:
        key = secret.encode() if secret is not None else secrets.token_bytes(_SECRET_LEN)

        @lru_cache(_CACHED)
        def salt_of(client: ClientId, own: str) -> str:
            # No client's name has a NUL, so that no two pairs are the same bytes.
            message = f"{client}\0{own}".encode("utf-8", "surrogatepass")
            return hmac.digest(key, message, "sha256").hex()

        self._salt_of = salt_of

    def salt(self, client: ClientId, own: str) -> str:
        """64 hexadecimal digits for `client` and the salt of its `own`. A few microseconds, cached."""
        return self._salt_of(client, own)


class FieldInjector:
    """Decides by the settings which fields a request gets."""

    def __init__(self, settings: GatewaySettings) -> None:
        identity_fields = _IDENTITY_FIELDS[settings.identity_field]
        self._names_client = bool(identity_fields)
        self._has_header = "custom_params" in identity_fields
        self._fields = lru_cache(_CACHED)(partial(_fields, identity_fields))
        # Otherwise outputs of streams are counted by their events.
        self._asks_usage = settings.usage_field != "none"
        self._isolation = (
            PrefixIsolation(settings.isolation_secret) if settings.isolate_prefixes else None
        )

    def isolate(self, body: ParsedBody, client: ClientId) -> None:
        """Set the salt of a body, for the gateway's prefix index and the engines, if configured."""
        if self._isolation is not None and body.endpoint.charged:
            body.salt = self._isolation.salt(client, body.salt)

    def asks_usage(self, body: ParsedBody) -> bool:
        """True if the engine is asked for usage that the client did not ask for. Pure."""
        return self._asks_usage and body.stream and not body.asks_usage

    def fields(self, body: ParsedBody, client: ClientId, *, ask_usage: bool) -> InjectedFields:
        """Fields for this body. O(1) for a known client."""
        endpoint = body.endpoint
        named = client if self._names_client and endpoint.identity else None
        salt = body.salt if self._isolation is not None and endpoint.charged else None
        return self._fields(named, salt, ask_usage)  # keywords would cost more than the cache hit

    def headers(self, lines: bytes, body: ParsedBody, client: ClientId) -> bytes:
        """Header lines for the engine; with the client where SGLang takes no identity field."""
        if not (body.endpoint.named_by_header and self._has_header):
            return lines
        return lines + _header(client)

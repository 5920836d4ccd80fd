"""What is added to a body on its way: who asks, for streams the wish to hear what was used, a salt.

Nothing else of a body changes, and nothing at all where all are switched off, or where the path has
no place for any; but that a caller says to a plug-in that it is somebody reaches no engine.
"""

from functools import lru_cache, partial
from typing import Any, Final

from fairhit.client_names import client_name
from fairhit.core.request import ClientId
from fairhit.gateway.api.prefix_isolation import PrefixIsolation
from fairhit.gateway.api.request_body import InjectedFields, ParsedBody
from fairhit.gateway.settings import GatewaySettings

# Clients whose fields are kept ready.
_READY = 4096
# Where the client is named, by `--identity-field`. Engines pass over the other's field.
_NAMED_IN: Final = {
    "vllm": ("vllm_xargs",),
    "sglang": ("custom_params",),
    "both": ("vllm_xargs", "custom_params"),
    "none": (),
}
# Of which SGLang makes a request's `routing_key`; callers' own are kept from engines.
_HEADER: Final = b"x-smg-routing-key: %b\r\n"


def _fields(
    named_in: tuple[str, ...], client: ClientId | None, salt: str | None, ask_usage: bool
) -> InjectedFields:
    fields: dict[str, Any] = {"stream_options": {"include_usage": True}} if ask_usage else {}
    if client is not None:
        fields |= {name: {"fair_client": client} for name in named_in}
    if salt is not None:
        fields["cache_salt"] = salt
    return InjectedFields(fields)


@lru_cache(_READY)
def _header(client: ClientId) -> bytes:
    # As the plug-in maps a name that it finds in a field: a client is one, by field and by header.
    return _HEADER % client_name(client).encode()


class FieldInjector:
    """As the settings say."""

    def __init__(self, settings: GatewaySettings) -> None:
        named_in = _NAMED_IN[settings.identity_field]
        self._names_client = bool(named_in)
        self._has_header = "custom_params" in named_in
        self._fields = lru_cache(_READY)(partial(_fields, named_in))
        # Where it is not, streamed tokens are counted as they pass.
        self._asks_usage = settings.usage_field != "none"
        self._prefix_isolation = (
            PrefixIsolation(settings.isolation_secret) if settings.isolate_prefixes else None
        )

    def isolate(self, call: ParsedBody, client: ClientId) -> None:
        """Have nobody else's prefixes match this prompt, here and in the engines, if that is wanted."""
        if self._prefix_isolation is not None and call.endpoint.charged:
            call.salt = self._prefix_isolation.salt(client, call.salt)

    def asks_usage(self, call: ParsedBody) -> bool:
        """Whether the engine is asked for usage that its caller has not asked for. Pure."""
        return self._asks_usage and call.stream and not call.asks_usage

    def to(self, call: ParsedBody, client: ClientId, *, ask_usage: bool) -> InjectedFields:
        """The fields for this body. O(1) for who has asked before."""
        endpoint = call.endpoint
        named = client if self._names_client and endpoint.identity else None
        salt = call.salt if self._prefix_isolation is not None and endpoint.charged else None
        return self._fields(named, salt, ask_usage)  # keywords would cost more than the look-up

    def lines_to(self, lines: bytes, call: ParsedBody, client: ClientId) -> bytes:
        """The headers for this request; on paths where SGLang knows no such field, with the client."""
        if not (call.endpoint.named_by_header and self._has_header):
            return lines
        return lines + _header(client)

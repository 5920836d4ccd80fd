"""The client of a request inside SGLang.

Integration points (SGLang 0.5.23): `Req.routing_key`, which the header `x-smg-routing-key` of the
OpenAI endpoints and the field `routing_key` of /generate become; `Req.sampling_params.custom_params`;
`Req.lora_id`. Never `extra_key` or `cache_salt`, which split the cache.
"""

from collections.abc import Callable
from typing import Any

from fairhit.client_names import ANONYMOUS, client_name
from fairhit.core.request import ClientId

CLIENT_FIELD = "fair_client"  # of `custom_params`


def client_of(req: Any, adapter_name: Callable[[Any], object] | None = None) -> ClientId:
    """Return the client of a request; if unnamed, its LoRA adapter's name where `adapter_name` is given.

    The gateway writes `anonymous` for a caller without a name.
    """
    client = ANONYMOUS
    custom = req.sampling_params.custom_params
    if req.routing_key:
        client = client_name(req.routing_key)
    elif isinstance(custom, dict) and (value := custom.get(CLIENT_FIELD)) is not None:
        client = client_name(value)
    if client == ANONYMOUS and adapter_name is not None and req.lora_id is not None:
        return client_name(adapter_name(req) or req.lora_id)
    return client

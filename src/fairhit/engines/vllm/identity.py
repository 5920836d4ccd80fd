"""The client of a request inside vLLM.

Integration points: `Request.sampling_params.extra_args` (what a body's `vllm_xargs` becomes, vLLM
0.11 to 0.32) and `Request.lora_request.lora_name`. No other data of a caller reaches the engine.
"""

from typing import Any

from fairhit.client_names import ANONYMOUS, client_name
from fairhit.core.request import ClientId

CLIENT_FIELD = "fair_client"


def adapter_of(request: Any) -> str | None:
    """Return the name of the LoRA adapter that the engine's request needs."""
    return request.lora_request.lora_name if request.lora_request is not None else None


def client_of(request: Any, *, names_adapters: bool = True) -> ClientId:
    """Return the client of a request: the name from the gateway or middleware, else its LoRA adapter.

    Both write `anonymous` for a caller without a name.
    """
    extra_args = getattr(request.sampling_params, "extra_args", None) or {}
    value = extra_args.get(CLIENT_FIELD)
    client = ANONYMOUS if value is None else client_name(value)
    if client == ANONYMOUS and names_adapters and request.lora_request is not None:
        return client_name(request.lora_request.lora_name)
    return client

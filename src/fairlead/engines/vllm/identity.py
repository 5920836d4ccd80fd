"""Who a request belongs to, once it is inside vLLM, and what a client's name may look like.

Integration points: `Request.sampling_params.extra_args` (what a body's `vllm_xargs` becomes, vLLM
0.11 to 0.32) and `Request.lora_request.lora_name`. Nothing else of a caller survives to the engine.
"""

import re
from typing import Any

from fairlead.core.request import ClientId

CLIENT_FIELD = "fair_client"
ANONYMOUS: ClientId = "anonymous"

# Long enough for a UUID with a prefix or an e-mail address; it becomes a metrics label.
MAX_CLIENT_LEN = 128
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:@/+=-]")


def client_name(value: object) -> ClientId:
    """A value as a client's name: bounded, and safe in logs and metrics. Empty means anonymous."""
    if not isinstance(value, str | int) or isinstance(value, bool):
        return ANONYMOUS
    return _NOT_IN_NAMES.sub("_", str(value)[:MAX_CLIENT_LEN]) or ANONYMOUS


def client_of(request: Any) -> ClientId:
    """The client of a vLLM request: what the gateway or middleware wrote, else its LoRA adapter."""
    extra_args = getattr(request.sampling_params, "extra_args", None) or {}
    if (value := extra_args.get(CLIENT_FIELD)) is not None:
        return client_name(value)
    if request.lora_request is not None:
        return client_name(request.lora_request.lora_name)
    return ANONYMOUS

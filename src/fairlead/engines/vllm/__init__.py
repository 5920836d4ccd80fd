"""fairlead inside vLLM: the names for `--scheduler-cls` and `--middleware`.

Loaded on demand: the HTTP server needs no scheduler and the engine process no middleware.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairlead.engines.vllm.middleware import ClientIdentity
    from fairlead.engines.vllm.scheduler import FairScheduler

__all__ = ["ClientIdentity", "FairScheduler"]


def __getattr__(name: str) -> Any:
    if name == "FairScheduler":
        from fairlead.engines.vllm.scheduler import FairScheduler

        return FairScheduler
    if name == "ClientIdentity":
        from fairlead.engines.vllm.middleware import ClientIdentity

        return ClientIdentity
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

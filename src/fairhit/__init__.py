"""Fair shares of LLM serving capacity that keep the prefix cache: DLPM and D2LPM.

The names for whoever embeds the core in a scheduler or router of their own; it needs nothing but the
standard library. Engines load `fairhit.engines.vllm`, operators run `fairhit`.

Each is loaded when it is asked for: every command runs this file first, and before it can answer to Ctrl-C.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in typing, which takes longer to load than all else here
if TYPE_CHECKING:
    from fairhit.core.cache.block_set import BlockCache
    from fairhit.core.cache.radix_tree import RadixTree
    from fairhit.core.fair_queue import FairQueue
    from fairhit.core.request import Request
    from fairhit.core.service import Service, TokenCost, Weights
    from fairhit.errors import FairhitError
    from fairhit.policies import SCHEDULERS, make_policy
    from fairhit.routers import ROUTERS
else:
    _HOMES = {
        "ROUTERS": "fairhit.routers",
        "SCHEDULERS": "fairhit.policies",
        "BlockCache": "fairhit.core.cache.block_set",
        "FairhitError": "fairhit.errors",
        "RadixTree": "fairhit.core.cache.radix_tree",
        "Request": "fairhit.core.request",
        "FairQueue": "fairhit.core.fair_queue",
        "Service": "fairhit.core.service",
        "TokenCost": "fairhit.core.service",
        "Weights": "fairhit.core.service",
        "make_policy": "fairhit.policies",
    }

    def __getattr__(name):
        """One of the names below. Raises AttributeError, as for a module without this."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "ROUTERS",
    "SCHEDULERS",
    "BlockCache",
    "FairQueue",
    "FairhitError",
    "RadixTree",
    "Request",
    "Service",
    "TokenCost",
    "Weights",
    "make_policy",
]

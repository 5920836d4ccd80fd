"""Fair shares of LLM serving capacity that keep the prefix cache: DLPM and D2LPM.

The public names for a scheduler or router that embeds the core, which needs the standard library only.
Engines load `fairhit.engines.vllm`, operators run `fairhit`.

A name is imported on first use: every command runs this file first, before it can answer to Ctrl-C.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in typing, which takes longer to load than all else here
if TYPE_CHECKING:
    from fairhit.core.cache.block_set import BlockCache, BlockListener
    from fairhit.core.cache.cache_view import HashCache, PathCache
    from fairhit.core.cache.radix_tree import RadixTree, TreeListener
    from fairhit.core.fair_queue import FairQueue
    from fairhit.core.policy import Charging, Policy
    from fairhit.core.request import Request
    from fairhit.core.service import Service, TokenCost, Weights
    from fairhit.errors import ConfigError, FairhitError, QueueFull
    from fairhit.policies import SCHEDULERS, make_policy
    from fairhit.routers import ROUTERS
else:
    _HOMES = {
        "ROUTERS": "fairhit.routers",
        "SCHEDULERS": "fairhit.policies",
        "BlockCache": "fairhit.core.cache.block_set",
        "BlockListener": "fairhit.core.cache.block_set",
        "Charging": "fairhit.core.policy",
        "ConfigError": "fairhit.errors",
        "FairhitError": "fairhit.errors",
        "HashCache": "fairhit.core.cache.cache_view",
        "PathCache": "fairhit.core.cache.cache_view",
        "Policy": "fairhit.core.policy",
        "QueueFull": "fairhit.errors",
        "RadixTree": "fairhit.core.cache.radix_tree",
        "Request": "fairhit.core.request",
        "FairQueue": "fairhit.core.fair_queue",
        "Service": "fairhit.core.service",
        "TokenCost": "fairhit.core.service",
        "TreeListener": "fairhit.core.cache.radix_tree",
        "Weights": "fairhit.core.service",
        "make_policy": "fairhit.policies",
    }

    def __getattr__(name):
        """Import and return a public name. Raises AttributeError for another one."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


__all__ = [
    "ROUTERS",
    "SCHEDULERS",
    "BlockCache",
    "BlockListener",
    "Charging",
    "ConfigError",
    "FairQueue",
    "FairhitError",
    "HashCache",
    "PathCache",
    "Policy",
    "QueueFull",
    "RadixTree",
    "Request",
    "Service",
    "TokenCost",
    "TreeListener",
    "Weights",
    "make_policy",
]

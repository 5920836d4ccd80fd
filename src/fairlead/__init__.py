"""Fair shares of LLM serving capacity that keep the prefix cache: DLPM and D2LPM.

The names for whoever embeds the core in a scheduler or router of their own; it needs nothing but the
standard library. Engines load `fairlead.engines.vllm`, operators run `fairlead`.

Each is loaded when it is asked for: every command runs this file first, and before it can answer to Ctrl-C.
"""

from importlib import import_module

TYPE_CHECKING = False  # as in typing, which takes longer to load than all else here
if TYPE_CHECKING:
    from fairlead.core.block_cache import BlockCache
    from fairlead.core.radix_tree import RadixTree
    from fairlead.core.request import Request
    from fairlead.core.scheduler import Scheduler
    from fairlead.core.service import Service, TokenCost, Weights
    from fairlead.errors import FairleadError
    from fairlead.routers import ROUTERS
    from fairlead.schedulers import SCHEDULERS, make_policy
else:
    _HOMES = {
        "ROUTERS": "fairlead.routers",
        "SCHEDULERS": "fairlead.schedulers",
        "BlockCache": "fairlead.core.block_cache",
        "FairleadError": "fairlead.errors",
        "RadixTree": "fairlead.core.radix_tree",
        "Request": "fairlead.core.request",
        "Scheduler": "fairlead.core.scheduler",
        "Service": "fairlead.core.service",
        "TokenCost": "fairlead.core.service",
        "Weights": "fairlead.core.service",
        "make_policy": "fairlead.schedulers",
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
    "FairleadError",
    "RadixTree",
    "Request",
    "Scheduler",
    "Service",
    "TokenCost",
    "Weights",
    "make_policy",
]

"""Fair shares of LLM serving capacity that keep the prefix cache: DLPM and D2LPM.

The names for whoever embeds the core in a scheduler or router of their own; it needs nothing but the
standard library. Engines load `fairlead.engines.vllm`, operators run `fairlead`.
"""

from fairlead.core.block_cache import BlockCache
from fairlead.core.radix_tree import RadixTree
from fairlead.core.request import Request
from fairlead.core.scheduler import Scheduler
from fairlead.core.service import Service, TokenCost, Weights
from fairlead.errors import FairleadError
from fairlead.routers import ROUTERS
from fairlead.schedulers import SCHEDULERS, make_policy

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

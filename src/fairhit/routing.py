"""Public names for a gateway of one's own: routers, prefix indices, and the dispatcher around them.

They need the standard library only, do no I/O and read no clock; docs/reference/api.md describes them.
"""

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.token_blocks import BlockedTokens
from fairhit.core.policy import Router
from fairhit.dispatch import Dispatcher, QueueRules, Ticket, TicketState, Usage
from fairhit.routers import ROUTERS, make_router
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.in_flight_load import InFlightLoad
from fairhit.routers.least_loaded import LeastLoaded
from fairhit.routers.power_of_two import PowerOfTwo
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex, ChunkedText
from fairhit.routers.prefix_index.interface import PrefixIndex
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex
from fairhit.routers.round_robin import RoundRobin
from fairhit.routers.sticky import Sticky

__all__ = [
    "D2LPM",
    "ROUTERS",
    "ApproximatePrefixIndex",
    "BlockedTokens",
    "ChunkedText",
    "Dispatcher",
    "InFlightLoad",
    "Knowledge",
    "LeastLoaded",
    "PowerOfTwo",
    "PrecisePrefixIndex",
    "PrefixIndex",
    "PrefixMatches",
    "QueueRules",
    "RoundRobin",
    "Router",
    "Sticky",
    "Ticket",
    "TicketState",
    "Usage",
    "make_router",
]

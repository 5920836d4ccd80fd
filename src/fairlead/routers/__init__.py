"""Which worker gets the next request: one file, one algorithm."""

from fairlead.core.protocols import Router
from fairlead.routers.d2lpm import D2LPM
from fairlead.routers.least_loaded import LeastLoaded
from fairlead.routers.round_robin import RoundRobin

ROUTERS: dict[str, type[Router]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "d2lpm": D2LPM,
}

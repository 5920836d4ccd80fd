"""Which worker gets the next request: one file, one algorithm. A new one is a file and a line here."""

from inspect import signature
from typing import Any

from fairhit.core.policy import LateBound, Router
from fairhit.errors import ConfigError
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.least_loaded import LeastLoaded
from fairhit.routers.power_of_two import PowerOfTwo
from fairhit.routers.round_robin import RoundRobin
from fairhit.routers.sticky import Sticky
from fairhit_lab.baselines.central_dlpm import CentralDLPM
from fairhit_lab.baselines.client_round_robin import ClientRoundRobin
from fairhit_lab.baselines.preble import Preble

ROUTERS: dict[str, type[Router]] = {
    "round-robin": RoundRobin,
    "client-round-robin": ClientRoundRobin,
    "least-loaded": LeastLoaded,
    "power-of-two": PowerOfTwo,
    "sticky": Sticky,
    "preble": Preble,
    "d2lpm": D2LPM,
}


# These choose nobody on arrival: only a host that asks for work can have them.
LATE_ROUTERS: dict[str, type[LateBound]] = {
    "central-dlpm": CentralDLPM,
}


def make_router(name: str, **settings: Any) -> Router:
    """The router of that name; a setting that is None is left at its default.

    Raises ConfigError for an unknown name and for a setting the router does not have.
    """
    router = ROUTERS.get(name)
    if router is None:
        raise ConfigError(f"router: expected one of {', '.join(ROUTERS)}, got {name!r}")
    return router(**_given(name, router, settings))


def make_late_router(name: str, **settings: Any) -> LateBound:
    """As `make_router`, of LATE_ROUTERS."""
    router = LATE_ROUTERS.get(name)
    if router is None:
        raise ConfigError(f"router: expected one of {', '.join(LATE_ROUTERS)}, got {name!r}")
    return router(**_given(name, router, settings))


def _given(name: str, router: type, settings: dict[str, Any]) -> dict[str, Any]:
    accepted = signature(router).parameters
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in accepted:
            raise ConfigError(f"router {name} has no setting {key!r}")
    return given

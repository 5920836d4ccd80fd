"""Routers choose the worker of each request: one algorithm a file, and one row of `ROUTERS` for each."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from fairhit.core.policy import Router
from fairhit.errors import ConfigError
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.least_loaded import LeastLoaded
from fairhit.routers.power_of_two import PowerOfTwo
from fairhit.routers.round_robin import RoundRobin
from fairhit.routers.sticky import Sticky

ROUTERS: dict[str, type[Router]] = {
    "round-robin": RoundRobin,
    "least-loaded": LeastLoaded,
    "power-of-two": PowerOfTwo,
    "sticky": Sticky,
    "d2lpm": D2LPM,
}


def make_router(
    name: str, *, routers: Mapping[str, type[Router]] = ROUTERS, **settings: Any
) -> Router:
    """Return a new router `name` of `routers`; a setting that is None keeps its default.

    Raises ConfigError for an unknown name and for a setting the router does not have.
    """
    router = routers.get(name)
    if router is None:
        raise ConfigError(f"router: expected one of {', '.join(routers)}, got {name!r}")
    return router(**settings_of(name, router, settings))


def settings_of(name: str, router: type, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are not None. Raises ConfigError for one that `router` does not have."""
    accepted = signature(router).parameters
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in accepted:
            raise ConfigError(f"router {name} has no setting {key!r}")
    return given

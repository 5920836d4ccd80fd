"""Policies and routers that exist to be compared with, beside those that serve."""

from typing import Any

from fairhit.core.policy import LateBound, Policy, Router
from fairhit.errors import ConfigError
from fairhit.policies import MISFIT, SCHEDULERS, WITHOUT_CREDIT
from fairhit.routers import ROUTERS, settings_of
from fairhit_lab.baselines.central_dlpm import CentralDLPM
from fairhit_lab.baselines.client_round_robin import ClientRoundRobin
from fairhit_lab.baselines.preble import Preble
from fairhit_lab.baselines.rpm import RPM
from fairhit_lab.baselines.vtc_noisy import VTCNoisy
from fairhit_lab.baselines.vtc_oracle import VTCOracle

# An engine cannot have these by itself: a limit over the whole cluster, outputs known beforehand.
SIMULATED_ONLY: dict[str, type[Policy]] = {
    "rpm": RPM,
    "vtc-oracle": VTCOracle,
    "vtc-noisy": VTCNoisy,
}
ALL_SCHEDULERS = SCHEDULERS | SIMULATED_ONLY
ALL_MISFIT = MISFIT | dict.fromkeys(SIMULATED_ONLY, "stop")
ALL_WITHOUT_CREDIT = WITHOUT_CREDIT | {"rpm"}

ALL_ROUTERS: dict[str, type[Router]] = {
    **ROUTERS,
    "client-round-robin": ClientRoundRobin,
    "preble": Preble,
}
# These choose no worker on arrival: only a simulated worker asks for work.
LATE_ROUTERS: dict[str, type[LateBound]] = {"central-dlpm": CentralDLPM}


def make_late_router(name: str, **settings: Any) -> LateBound:
    """The router of that name in LATE_ROUTERS; a setting that is None is left at its default.

    Raises ConfigError for an unknown name and for a setting the router does not have.
    """
    router = LATE_ROUTERS.get(name)
    if router is None:
        raise ConfigError(f"router: expected one of {', '.join(LATE_ROUTERS)}, got {name!r}")
    return router(**settings_of(name, router, settings))

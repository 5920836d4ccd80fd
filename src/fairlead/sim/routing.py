"""The router of a simulation, made from its settings."""

from inspect import signature
from typing import Any

from fairlead.core.protocols import LateBound, Router
from fairlead.core.service import Weights
from fairlead.errors import ConfigError
from fairlead.routers import ROUTERS, make_late_router, make_router
from fairlead.sim.config import SimConfig


def router_of(config: SimConfig, weights: Weights) -> Router:
    """One that chooses on arrival. Raises ConfigError."""
    of_central = {
        "central-round-trip": config.central_round_trip_us,
        "central-work": config.central_work_us,
    }
    _refuse(config.router, of_central)
    known = ROUTERS.get(config.router)
    accepted = signature(known).parameters if known else {}
    shared: dict[str, Any] = {"weights": weights, "cost": config.cost, "seed": config.seed}
    return make_router(
        config.router,
        quantum=config.worker_quantum,
        charge=config.worker_charge,
        min_match=config.min_match,
        **{key: value for key, value in shared.items() if key in accepted},
    )


def late_router_of(config: SimConfig, weights: Weights) -> LateBound:
    """One that chooses nobody on arrival, and is the scheduler of all workers. Raises ConfigError."""
    if config.scheduler != "dlpm":
        raise ConfigError(
            f"router {config.router}: it is the scheduler, and that is dlpm, got {config.scheduler!r}"
        )
    not_its_own = {
        "worker-quantum": config.worker_quantum,
        "worker-charge": config.worker_charge,
        "min-match": config.min_match,
        "max-overtake": config.max_overtake,
    }
    _refuse(config.router, not_its_own)
    return make_late_router(
        config.router,
        quantum=config.quantum,
        charge=config.charge,
        cost=config.cost,
        weights=weights,
        round_trip_us=config.central_round_trip_us,
        work_us=config.central_work_us,
    )


def _refuse(router: str, settings: dict[str, Any]) -> None:
    """Raises ConfigError for a setting that was given and is another router's."""
    for flag, value in settings.items():
        if value is not None:
            raise ConfigError(f"{flag}: router {router} has no such setting")

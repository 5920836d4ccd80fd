"""The router of a simulation, made from its settings."""

from typing import Any

from fairlead.core.protocols import LateBound, Router
from fairlead.core.service import Weights
from fairlead.errors import ConfigError
from fairlead.routers import ROUTERS, make_late_router, make_router
from fairlead.sim.config import SimConfig
from fairlead.sim.given import given_settings

# Of D2LPM in the simulator: all of a prompt, as in the paper.
WORKER_CHARGE = "input"


def router_of(config: SimConfig, weights: Weights) -> Router:
    """One that chooses on arrival. Raises ConfigError."""
    of_central = {
        "central-round-trip": config.central_round_trip_us,
        "central-work": config.central_work_us,
    }
    _refuse(config.router, of_central)
    given = given_settings(
        f"router {config.router}",
        ROUTERS.get(config.router),
        flags={
            "worker-quantum": config.worker_quantum,
            "worker-charge": config.worker_charge,
            "min-match": config.min_match,
        },
        shared={
            "weights": weights,
            "cost": config.cost,
            "seed": config.seed,
            "charge": WORKER_CHARGE,
        },
    )
    return make_router(config.router, **given)


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

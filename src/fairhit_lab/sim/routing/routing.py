"""The router of a simulation, made from its settings."""

from typing import Any

from fairhit.core.policy import Router
from fairhit.core.service import Weights
from fairhit.errors import ConfigError
from fairhit.routers import make_router, settings_of
from fairhit_lab.baselines import ALL_ROUTERS, CENTRAL_ROUTERS
from fairhit_lab.baselines.central_dlpm import CentralDLPM
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.sim.engines.settings_filter import given_settings

# Of D2LPM in the simulator: all of a prompt, as in the paper.
WORKER_CHARGE = "input"


def router_of(config: SimConfig, weights: Weights) -> Router:
    """Make a router that assigns requests on arrival. Raises ConfigError."""
    _refuse(config.router, config.of("central"))
    given = given_settings(
        "router",
        config.router,
        ALL_ROUTERS,
        flags=config.of("router"),
        shared={
            "weights": weights,
            "cost": config.cost,
            "seed": config.seed,
            "charge": WORKER_CHARGE,
        },
    )
    return make_router(config.router, routers=ALL_ROUTERS, **given)


def central_router_of(config: SimConfig, weights: Weights) -> CentralDLPM:
    """Make a router that assigns nothing on arrival and schedules all workers. Raises ConfigError."""
    rules = config.router.removeprefix("central-")
    if config.scheduler != rules:
        raise ConfigError(
            f"router {config.router}: it is the scheduler, and that is {rules}, got {config.scheduler!r}"
        )
    _refuse(config.router, config.of("router"))
    given = given_settings(
        "router",
        config.router,
        CENTRAL_ROUTERS,
        flags=config.of("scheduler"),
        shared={
            "cost": config.cost,
            "weights": weights,
            "round_trip_us": config.central_round_trip_us,
            "work_us": config.central_work_us,
        },
    )
    made = CENTRAL_ROUTERS[config.router]
    return made(**settings_of(config.router, made, given))


def _refuse(router: str, settings: dict[str, Any]) -> None:
    """Raises ConfigError for a setting that was given and is another router's."""
    for flag, value in settings.items():
        if value is not None:
            raise ConfigError(f"{flag}: router {router} has no such setting")

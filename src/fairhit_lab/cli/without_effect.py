"""Refuses flags that have no effect beside the others."""

from collections.abc import Collection, Iterator
from inspect import signature

from fairhit.core.request import ClientId
from fairhit.errors import ConfigError
from fairhit_lab.baselines import ALL_ROUTERS, ALL_SCHEDULERS, CENTRAL_ROUTERS, FLEET
from fairhit_lab.sim.config import SimConfig

# Routers that read the events of the replicas' caches.
READS_CACHE_EVENTS = ("d2lpm", FLEET)


def require_effect(config: SimConfig) -> None:
    """Raises ConfigError for the first flag without effect.

    A router's settings beside one replica are let through: the same flags then serve any number of them.
    """
    for flag, reason in _without_effect(config):
        raise ConfigError(f"{flag}: without effect, as {reason}")


def _without_effect(config: SimConfig) -> Iterator[tuple[str, str]]:
    if config.batch_tokens is not None and config.host in {"ideal", "artifact"}:
        yield "--batch-tokens", f"host {config.host} computes prompts whole"
    if config.max_misfits is not None:
        if config.host != "ideal":
            yield (
                "--max-misfits",
                f"host {config.host} stops at the first request that does not fit",
            )
        elif not config.skips_unfitting:
            yield (
                "--max-misfits",
                "the scheduling pass stops at the first request that does not fit (--misfit skip continues)",
            )
    if config.cost is not None and not _counts_cost(config):
        yield "--cost", f"scheduler {config.scheduler} charges nothing"
    for flag, value in config.of("fleet").items():
        if value is not None and config.router != FLEET:
            yield f"--{flag}", f"router {config.router} has no such setting"
    if config.event_delay_us and config.router not in READS_CACHE_EVENTS:
        yield "--event-delay", f"router {config.router} does not read cache events"


def _counts_cost(config: SimConfig) -> bool:
    """True if the scheduler charges, or a router that is asked."""
    router = (ALL_ROUTERS | CENTRAL_ROUTERS).get(config.router)
    asked = router and (config.workers > 1 or config.router in CENTRAL_ROUTERS)
    parts = [ALL_SCHEDULERS[config.scheduler], *([router] if router and asked else [])]
    return any("cost" in signature(part).parameters for part in parts)


def unknown_clients(config: SimConfig, clients: Collection[ClientId]) -> list[ClientId]:
    """The clients that have a weight and no request in the trace."""
    return [client for client in config.weights if client not in clients]

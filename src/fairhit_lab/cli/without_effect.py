"""Flags that would do nothing beside the others: refused, so that nobody believes they counted."""

from collections.abc import Collection, Iterator
from inspect import signature

from fairhit.core.request import ClientId
from fairhit.errors import ConfigError
from fairhit_lab.baselines import ALL_ROUTERS, ALL_SCHEDULERS, CENTRAL_ROUTERS
from fairhit_lab.sim.config import SimConfig

# The router that is told what the replicas' caches did.
TOLD_OF_CACHES = ("d2lpm",)


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
            yield "--max-misfits", f"host {config.host} stops at the first misfit"
        elif not config.skips_misfits:
            yield "--max-misfits", "the look stops at the first misfit (--misfit skip goes on)"
    if config.cost is not None and not _counts_cost(config):
        yield "--cost", f"scheduler {config.scheduler} charges nothing"
    if config.event_delay_us and config.router not in TOLD_OF_CACHES:
        yield "--event-delay", f"router {config.router} is not told of caches"


def _counts_cost(config: SimConfig) -> bool:
    """Whether the scheduler charges, or a router that is asked."""
    router = (ALL_ROUTERS | CENTRAL_ROUTERS)[config.router]
    asked = config.workers > 1 or config.router in CENTRAL_ROUTERS
    parts = [ALL_SCHEDULERS[config.scheduler], *([router] if asked else [])]
    return any("cost" in signature(part).parameters for part in parts)


def unknown_clients(config: SimConfig, clients: Collection[ClientId]) -> list[ClientId]:
    """Who has a weight, and nothing in the trace."""
    return [client for client in config.weights if client not in clients]

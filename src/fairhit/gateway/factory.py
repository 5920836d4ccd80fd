"""Factory of the gateway's parts that depend on its settings."""

from collections.abc import Mapping

from fairhit.core.costs import parse_cost
from fairhit.core.policy import Router
from fairhit.core.service import Weights
from fairhit.dispatch import QueueRules
from fairhit.gateway.auth.identity import Identity
from fairhit.gateway.process.sharing.ledger_stores import InRedis, SharedMemory, Store
from fairhit.gateway.settings import GatewaySettings
from fairhit.routers import ROUTERS
from fairhit.routers.d2lpm import D2LPM


def make_identity(settings: GatewaySettings, keys: Mapping[bytes, str]) -> Identity:
    """Make the identification of clients; `keys` maps digests of API keys to clients."""
    return Identity(
        keys=keys,
        trust_tenant_header=settings.trust_tenant_header,
        identify_by_user=settings.identify_by_user,
    )


def queue_rules(settings: GatewaySettings, weights: Weights) -> QueueRules | None:
    """Rules of the gateway's queue; None if only engines queue. Raises ConfigError."""
    if settings.queue == "engine":
        return None
    return QueueRules(
        scheduler=settings.scheduler,
        quantum=settings.quantum,
        cost=None if settings.cost is None else parse_cost(settings.cost),
        overdraft=settings.overdraft,
        near=settings.near,
        prepay=settings.prepay,
        weights=weights,
        queue_size=settings.queue_size,
        max_engine_requests=settings.max_engine_requests,
        max_hold_us=round(settings.max_hold_secs * 1e6),
        shared=settings.shares(),
    )


def make_store(settings: GatewaySettings, memory: int | None) -> Store | None:
    """Store of the ledger that several gateways share; None if it is not shared. Raises ConfigError."""
    if settings.queue == "engine":
        return None
    if settings.share_url is not None:
        return InRedis(settings.share_url, settings.share_key)
    return SharedMemory(memory) if memory is not None else None


def make_router(settings: GatewaySettings, weights: Weights) -> Router:
    """Make the router."""
    if settings.router() == "d2lpm":
        return D2LPM(
            quantum=settings.worker_quantum,
            weights=weights,
            charge=settings.worker_charge,
            overdraft=settings.worker_overdraft,
            min_match=settings.min_match,
        )
    return ROUTERS[settings.router()]()

"""An engine of the pool: its connections, its health, and the models it lists."""

import asyncio
from dataclasses import dataclass, field

from fairhit.gateway.http.engine_connection import EngineConnections, Fault

# An entry of an engine's /v1/models.
Model = dict[str, object]


@dataclass(slots=True, eq=False)
class WatchedEngine:
    """State of one engine that the pool and the model catalog keep."""

    engine: EngineConnections
    probe_soon: asyncio.Event  # set: probe now instead of after the interval
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    failures: int = 0  # consecutive probes
    successes: int = 0
    was_up: bool = False
    problem: str | None = None  # why the last probe failed
    drains_when_replaced: bool = False  # once other engines serve its models
    draining: bool = False
    declared: str | None = None  # the one model that the operator configured for it
    models: tuple[Model, ...] = ()  # entries of its /v1/models
    # Adapters listed earlier and unlisted now, which the engine loads again when they are requested.
    evicted: frozenset[str] = frozenset()
    listed_s: float = float("-inf")  # when /v1/models was last requested
    faults: dict[Fault, int] = field(default_factory=dict)

"""Settings of the queue: where requests wait, under which policy, how many and how long."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from fairlead.dispatch import QUEUE_SCHEDULERS
from fairlead.gateway.settings.declaring import Group, setting

QueuePlace = Literal["auto", "gateway", "engine"]


def known_scheduler(name: str) -> str:
    """A policy that can queue at a gateway. Raises ValueError."""
    if name not in QUEUE_SCHEDULERS:
        raise ValueError(f"expected one of {', '.join(QUEUE_SCHEDULERS)}, got {name!r}")
    return name


SchedulerName = Annotated[str, AfterValidator(known_scheduler)]


class Waiting(Group):
    """What waits at the gateway."""

    queue: QueuePlace = setting(
        "auto",
        "where requests wait: gateway, engine, or auto: here unless the engine is fair itself",
    )
    scheduler: SchedulerName = setting("dlpm", "whose turn it is here", "NAME")
    quantum: int | None = setting(
        None, "Q^u of dlpm and drr: the policy's own if not given", "TOKENS", ge=1
    )
    queue_size: int = setting(512, "waiting here for one client, then 429", "N", ge=0, live=True)
    queue_timeout_secs: float = setting(
        300, "longest wait here, then 503; 408 at --max-concurrent-requests", "S", gt=0, live=True
    )
    max_engine_requests: int | None = setting(
        None, "in flight at one engine; learnt if not given", "N", ge=1
    )
    load_interval_secs: float = setting(
        0.25, "between two looks at a busy engine's load", "S", ge=0.01
    )

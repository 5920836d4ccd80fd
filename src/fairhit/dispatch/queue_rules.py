"""Rules of the gateway's queue: the policy, how many requests may wait, how many may run in one engine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from fairhit.core.fair_queue import FairQueue
from fairhit.core.ledgers.shared_deficits import SharedDeficits
from fairhit.core.service import Cost, Weights
from fairhit.core.waiting.fleet import FleetCaches
from fairhit.dispatch.concurrency_limit import ConcurrencyLimit
from fairhit.dispatch.lane import MakeScheduler
from fairhit.errors import ConfigError
from fairhit.policies import IN_ENGINES, SCHEDULERS, describe, lacks, make_policy
from fairhit.policies.shared import SHARED

# Not preble-groups: its groups are hit ratios in tokens, and a gateway's cache view counts chunks.
QUEUE_SCHEDULERS = tuple(name for name in IN_ENGINES if name != "preble-groups")
# Settings of the rules that a policy may have or not.
POLICY_SETTINGS = ("quantum", "cost", "overdraft", "near", "prepay")
# With the deficits of all lanes together where the policy has any that can be.
_CLASSES = {**SCHEDULERS, **SHARED}
# The longest hold of a request for the engine that has its prompt cached: that for 32,000 tokens of it.
MAX_HOLD_US = 16_000_000
# Clients with a record in each engine's queue, about 200 bytes each.
_MAX_CLIENTS = 200_000


@dataclass(frozen=True, kw_only=True)
class QueueRules:
    """Settings of the queue; `max_engine_requests` None: learnt.

    `quantum`, `cost`, `overdraft`, `near` and `prepay` are the policy's; None: its default. A policy that
    has no such setting refuses it. What an engine evicts is its own affair: `eviction` is no setting here.

    `max_hold_us`: the longest time that a request is held for an engine with its prompt cached; 0: none is.
    A policy without shared deficits holds none.

    A client may have `queue_size` requests waiting, all clients together `queue_total`; 0: a request
    that would have to wait is refused. `shared`: other gateways serve the same clients, and the deficits of
    dlpm or fair are kept together; under another policy each gateway is fair among its own requests only.
    """

    scheduler: str = "dlpm"
    quantum: int | None = None
    cost: Cost | None = None
    overdraft: int | None = None
    near: int | None = None
    prepay: str | None = None
    weights: Weights | None = None
    queue_size: int = 512
    queue_total: int = 65_536
    max_engine_requests: int | None = None
    max_hold_us: int = MAX_HOLD_US
    shared: bool = False

    def make_limit(self) -> ConcurrencyLimit:
        """Return a new engine's concurrency limit."""
        return ConcurrencyLimit(fixed=self.max_engine_requests)

    def maker(
        self, name: str | None = None, *, prices: Callable[[Cost], Cost] | None = None
    ) -> MakeScheduler:
        """Return the factory of the scheduler `name`, by default that of the rules. Raises ConfigError.

        A setting that a policy other than the rules' does not have is left out. A cost that follows
        measured passes takes its prices from `prices`.
        """
        chosen = name or self.scheduler
        if chosen not in QUEUE_SCHEDULERS:
            expected = ", ".join(QUEUE_SCHEDULERS)
            raise ConfigError(f"scheduler: expected one of {expected}, got {chosen!r}")
        own = {key: getattr(self, key) for key in POLICY_SETTINGS}
        accepted = signature(SCHEDULERS[chosen]).parameters
        for key, value in own.items():
            if chosen == self.scheduler and value is not None and key not in accepted:
                raise lacks(key, chosen)
        settings: Mapping[str, Any] = {
            **own, "weights": self.weights, "max_clients": _MAX_CLIENTS, "eviction": "lru",
        }  # fmt: skip
        given = {key: value for key, value in settings.items() if key in accepted}

        def make(caches: FleetCaches, ledger: SharedDeficits | None) -> FairQueue:
            # The client ledger has the service: the scheduler need not record it, too.
            shared = {"ledger": ledger} if chosen in SHARED else {}
            policy = make_policy(chosen, cache=caches, policies=_CLASSES, **given, **shared)
            queue = FairQueue(policy, max_clients=0)
            if prices is not None:
                queue.follow(prices)
            return queue

        make(FleetCaches(), None)  # report a wrong value now, not at the first request
        return make

    def described(self) -> str:
        """Return the policy with its cost and settings, in words for the log."""
        policy = self.maker()(FleetCaches(), None).policy
        given = {**{key: getattr(self, key) for key in POLICY_SETTINGS}, "eviction": "the engine's"}
        return describe(self.scheduler, policy, given)

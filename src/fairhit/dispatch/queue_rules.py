"""How the gateway queues: which policy, how many may wait, how many are in an engine at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.fair_queue import FairQueue
from fairhit.core.service import Weights
from fairhit.dispatch.concurrency_limit import ConcurrencyLimit
from fairhit.dispatch.engine_queue import MakeScheduler
from fairhit.errors import ConfigError
from fairhit.policies import IN_ENGINES, SCHEDULERS, make_policy
from fairhit.policies.dlpm_shared import DLPMShared

# Its groups are hit ratios in tokens; a gateway's view of a cache counts chunks.
QUEUE_SCHEDULERS = tuple(name for name in IN_ENGINES if name != "preble-groups")
# Clients with a record for each engine: 200 bytes each.
_MAX_CLIENTS = 200_000


@dataclass(frozen=True, kw_only=True)
class QueueRules:
    """`quantum` None is the policy's own default; `window` None is learnt.

    A client may have `queue_size` requests waiting, all clients together `queue_total`; 0: a request
    that would have to wait is refused. At most
    `places` of a client's are bound to one engine, where others could take them; the rest are bound
    when a place comes free. `shared`: other gateways serve the same clients; under another policy than
    dlpm each gateway is fair by itself.
    """

    scheduler: str = "dlpm"
    quantum: int | None = None
    weights: Weights | None = None
    queue_size: int = 512
    queue_total: int = 65_536
    places: int = 4
    window: int | None = None
    shared: bool = False

    def make_window(self) -> ConcurrencyLimit:
        """One engine's."""
        return ConcurrencyLimit(fixed=self.window)

    def maker(self, name: str | None = None) -> MakeScheduler:
        """Makes the scheduler of that name, or of the rules'. Raises ConfigError.

        A setting that another policy than the rules' does not have is left out.
        """
        chosen = name or self.scheduler
        if chosen not in QUEUE_SCHEDULERS:
            expected = ", ".join(QUEUE_SCHEDULERS)
            raise ConfigError(f"scheduler: expected one of {expected}, got {chosen!r}")
        settings: Mapping[str, Any] = {
            "quantum": self.quantum, "weights": self.weights, "max_clients": _MAX_CLIENTS,
        }  # fmt: skip
        accepted = signature(SCHEDULERS[chosen]).parameters
        given = {key: value for key, value in settings.items() if key in accepted}
        if chosen == self.scheduler and self.quantum is not None and "quantum" not in accepted:
            raise ConfigError(f"quantum: the scheduler {chosen} has none")

        def make(view: BlockCache) -> FairQueue:
            if self.shared and chosen == "dlpm":
                own = {key: value for key, value in given.items() if value is not None}
                return FairQueue(DLPMShared(cache=view, **own))
            return FairQueue(make_policy(chosen, cache=view, **given))

        make(BlockCache(block_size=1))  # a wrong value is wrong now
        return make

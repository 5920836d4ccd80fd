"""Engines that share fairly themselves (the plug-in): the gateway does not queue for them.

A ticket assigned to such an engine is sent at once, so the engine never asks for more. While tickets
wait for other engines, it must not run idle or nearly so: its capacity is estimated from theirs.
"""

from collections import Counter
from collections.abc import Sequence

from fairhit.core.request import WorkerId
from fairhit.core.service import WEIGHT_SCALE, Weights
from fairhit.dispatch.engine import Engine, EngineTable
from fairhit.dispatch.queue_rules import QueueRules
from fairhit.dispatch.ticket import Ticket
from fairhit.policies import WITHOUT_CREDIT


class SelfFairEngines:
    """The engines that are up and have no queue at the gateway: `names`."""

    def __init__(self, table: EngineTable) -> None:
        self._table = table
        self._engines = table.engines
        self.names: dict[WorkerId, None] = {}

    def with_capacity(self) -> list[WorkerId]:
        """Return the engines that could take tickets waiting for others, the least busy first.

        An engine qualifies if it is idle, or has fewer tickets than the fullest engine with a queue here
        that serves such models: that one is known to be full, and most likely of the same size.
        O(engines) for each engine that qualifies.
        """
        if not self.names:
            return []
        queueing = [each for each in self._engines.values() if each.queue is not None and each.up]
        most = max([1, *(len(each.tickets) for each in queueing)])
        found = []
        for name in self.names:
            engine = self._engines[name]
            in_flight = len(engine.tickets)
            if in_flight < most and engine.is_open:
                fullest = self._fullest(name)
                if in_flight < max(1, 0 if fullest is None else len(fullest.tickets)):
                    found.append((in_flight, name))
        found.sort(key=lambda each: each[0])
        return [name for _, name in found]

    def choose(self, name: WorkerId, candidates: Sequence[Ticket], rules: QueueRules) -> Ticket:
        """Return the ticket whose client has the least in flight at `name` by weight, the older on a tie.

        So the engine's own policy has requests of every client to choose from. The deficits of other
        engines would not do: service here does not change them, and one client would take everything.
        Under a policy with equal credits the oldest ticket is returned. O(tickets in flight there).
        """
        if rules.scheduler in WITHOUT_CREDIT:
            return min(candidates, key=lambda one: one.request.order)
        in_flight = Counter([one.request.client for one in self._engines[name].tickets])
        weights = rules.weights or Weights()

        def rank(ticket: Ticket) -> tuple[int, int]:
            client = ticket.request.client
            return in_flight[client] * WEIGHT_SCALE**2 // weights.of(client), ticket.request.order

        return min(candidates, key=rank)

    def _fullest(self, name: WorkerId) -> Engine | None:
        """Return the fullest engine with a queue here that may serve a model of `name`. O(engines)."""
        alike = (
            other
            for its_name, other in self._engines.items()
            if other.queue is not None and other.up and self._table.shares(name, its_name)
        )
        return max(alike, key=lambda other: len(other.tickets), default=None)

"""Engines whose requests do not wait here, since they share fairly themselves: how they help the others.

What is bound to such an engine is sent at once, so it never comes for more. While others' requests
wait here it must not stand idle beside them, nor nearly so: its room is measured by theirs.
"""

from collections.abc import Sequence

from fairhit.core.request import WorkerId
from fairhit.core.service import WEIGHT_SCALE, Weights
from fairhit.dispatch.engine import Engine, EngineTable
from fairhit.dispatch.queue_rules import QueueRules
from fairhit.dispatch.ticket import Ticket
from fairhit.policies import WITHOUT_CREDIT


class SelfFairEngines:
    """Those of the fleet that are up and have no queue here: `names`."""

    def __init__(self, fleet: EngineTable) -> None:
        self._fleet = fleet
        self._workers = fleet.workers
        self.names: dict[WorkerId, None] = {}

    def with_room(self) -> list[WorkerId]:
        """Which could take what waits for others, the emptiest first. O(workers) for each with room.

        Those with nothing to do, or with less than the fullest engine that serves such models and has
        its queue here: that one is known to be full, and they are most likely of its size.
        """
        if not self.names:
            return []
        queueing = [each for each in self._workers.values() if each.queue is not None and each.up]
        most = max([1, *(len(each.tickets) for each in queueing)])
        found = []
        for name in self.names:
            worker = self._workers[name]
            has = len(worker.tickets)
            if has < most and worker.is_open:
                fullest = self._fullest(name)
                if has < max(1, 0 if fullest is None else len(fullest.tickets)):
                    found.append((has, name))
        found.sort(key=lambda each: each[0])
        return [name for _, name in found]

    def choose(self, name: WorkerId, offers: Sequence[Ticket], rules: QueueRules) -> Ticket:
        """Of the client with the least in flight there, by weight; the oldest where all are owed alike.

        So all have something there to be fair with. What is owed elsewhere would not do: nothing that
        this engine serves pays it off, and one client would take all of it for as long as that lasts.
        """
        if rules.scheduler in WITHOUT_CREDIT:
            return min(offers, key=lambda one: one.request.order)
        of_client, weights = self._workers[name].of_client, rules.weights or Weights()

        def rank(ticket: Ticket) -> tuple[int, int]:
            client = ticket.request.client
            has = of_client.get(client, 0)
            return has * WEIGHT_SCALE**2 // weights.of(client), ticket.request.order

        return min(offers, key=rank)

    def _fullest(self, name: WorkerId) -> Engine | None:
        """Of those with a queue here that may serve what it serves. O(workers)."""
        alike = (
            other
            for its_name, other in self._workers.items()
            if other.queue is not None and other.up and self._fleet.shares(name, its_name)
        )
        return max(alike, key=lambda other: len(other.tickets), default=None)

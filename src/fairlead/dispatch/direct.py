"""Engines whose requests do not wait here, since they share fairly themselves: how they help the others.

What is bound to such an engine is sent at once, so it never comes for more. While others' requests
wait here it must not stand idle beside them, nor nearly so: its room is measured by theirs.
"""

from fairlead.core.protocols import Policy
from fairlead.core.request import WorkerId
from fairlead.dispatch.fleet import Fleet, Worker


class Direct:
    """Those of the fleet that are up and have no queue here: `names`."""

    def __init__(self, fleet: Fleet) -> None:
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

    def policy_for(self, name: WorkerId) -> Policy | None:
        """Of the fullest engine beside it: what that owes its clients is the best that is known here."""
        fullest = self._fullest(name)
        if fullest is None or fullest.queue is None:
            return None
        return fullest.queue.scheduler.policy

    def _fullest(self, name: WorkerId) -> Worker | None:
        """Of those with a queue here that may serve what it serves. O(workers)."""
        alike = (
            other
            for its_name, other in self._workers.items()
            if other.queue is not None and other.up and self._fleet.shares(name, its_name)
        )
        return max(alike, key=lambda other: len(other.tickets), default=None)

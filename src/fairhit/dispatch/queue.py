"""What waits at the gateway: bound to an engine or to none yet, sent on when an engine has room.

The law, after every event: no engine has room while a ticket waits that it could take, unless it is
the turn of somebody who waits at another gateway (sharing.py). Bound to an engine are only a few
tickets of each client, for its scheduler to choose from; the others wait *late bound*, so that they go
where the cache and the room are when their turn comes.
"""

from collections.abc import Iterable
from dataclasses import replace

from fairhit.core.request import WorkerId
from fairhit.core.service import Weights
from fairhit.dispatch.assignment import Assignment
from fairhit.dispatch.engine import EngineTable
from fairhit.dispatch.engine_queue import EngineQueue
from fairhit.dispatch.placement import Placement
from fairhit.dispatch.queue_rules import QueueRules
from fairhit.dispatch.ticket import Ticket


class GatewayQueue(Assignment):
    """Keeps each ticket in its place while engines come, go and change, and the policy with them."""

    def __init__(self, *, fleet: EngineTable, placing: Placement, rules: QueueRules) -> None:
        super().__init__(fleet=fleet, placing=placing, rules=rules)
        self._make = rules.maker()
        self.scheduler = rules.scheduler
        self.switches = 0  # times that debts were forgotten, and what was served before with them

    def open(self, name: WorkerId, *, queues: bool) -> None:
        """It is up; `queues`: its requests wait here, not there."""
        worker = self._workers[name]
        if queues and worker.queue is None:
            worker.queue = EngineQueue(make=self._make, window=self.rules.make_window())
        elif not queues and worker.queue is not None:
            queue, worker.queue = worker.queue, None
            self._roomy.pop(name, None)
            for ticket in _by_age(queue.waiting):
                self._unbind(ticket)
                self._bind(ticket, name, self._placing.matches(ticket).of(name))
        if worker.queue is None:
            self._direct.names[name] = None
        else:
            self._direct.names.pop(name, None)
        self._place_late()
        self.changed(name)

    def close(self, name: WorkerId, *, lost: bool) -> list[Ticket]:
        """It is lost, or takes no more; the tickets that nobody can take any longer.

        Of one that only takes no more the others go elsewhere, or stay if there is no elsewhere. Of one
        that is lost all are handed back, to be placed again. O(waiting).
        """
        self._roomy.pop(name, None)
        self._limited.pop(name, None)
        queue = self._workers[name].queue
        if not lost:
            waiting = queue.waiting if queue is not None else ()
            self._move(waiting)
            self._adopt(name)
            self._place_late()
            self.changed(name)
            return []
        self._direct.names.pop(name, None)
        self._place_late()
        stuck = [ticket for ticket in self.late if not self._fleet.untried(ticket)]
        if queue is None:
            return stuck
        stuck.extend(queue.waiting)
        queue.lose()
        return stuck

    def remodelled(self, name: WorkerId) -> list[Ticket]:
        """It is up and serves other models than it did; the tickets that nobody can take any longer.

        What it does not serve any more goes elsewhere, where there is an elsewhere. O(waiting).
        """
        worker = self._workers[name]
        waiting = worker.queue.waiting if worker.queue is not None else ()
        self._move(ticket for ticket in waiting if not worker.serves(ticket.model))
        for ticket in [each for each in waiting if not worker.serves(each.model)]:
            self._unbind(ticket)
            ticket.pinned = False
            self.late.add(ticket)
        self._place_late()
        self.changed(name)
        return [ticket for ticket in self.late if not self._fleet.untried(ticket)]

    def limit(self, queue_size: int) -> None:
        """So many of a client may wait from now on. O(1)."""
        self.rules = replace(self.rules, queue_size=queue_size)

    def limit_sent(self, max_sent: int | None) -> None:
        """So many may be at all engines together from now on. O(1) and what is sent for it."""
        self.max_sent = max_sent
        if self._size:
            self.run()

    def change_weights(self, weights: Weights) -> None:
        """Other shares from now on, and no debts. O(tickets)."""
        self.rules = replace(self.rules, weights=weights)
        self.switch(self.scheduler)

    def switch(self, name: str) -> None:
        """Queue under another policy from now on. O(tickets). Raises ConfigError."""
        self._make, self.scheduler = self.rules.maker(name), name
        self.switches += 1
        for url, worker in self._workers.items():
            if worker.queue is not None:
                worker.queue.switch(self._make)
                self._changed[url] = None  # whose turn it was no longer matters
        self.run()

    # -- inside

    def _move(self, tickets: Iterable[Ticket]) -> None:
        """Find them another place, where there is one; the oldest first. O(tickets * workers)."""
        for ticket in _by_age(tickets):
            if candidates := self._fleet.untried(ticket):
                self._unbind(ticket)
                self._unwait(ticket)
                self.place(ticket, candidates)

    def _place_late(self) -> None:
        """Engines that queue here fetch the late bound; what could go to another is placed again."""
        for ticket in list(self.late):
            candidates = self._fleet.untried(ticket)
            if not ticket.worker and any(self._workers[name].queue is None for name in candidates):
                self.late.remove(ticket)
                self._unwait(ticket)
                self.place(ticket, candidates)

    def _adopt(self, name: WorkerId) -> None:
        """Who waits late bound for a worker like this one only, waits for it."""
        for ticket in [each for each in self.late if not self._fleet.untried(each)]:
            if self._workers[name].serves(ticket.model):
                self.late.remove(ticket)
                self._bind(ticket, name, self._placing.matches(ticket).of(name))


def _by_age(tickets: Iterable[Ticket]) -> list[Ticket]:
    return sorted(tickets, key=lambda ticket: ticket.request.order)

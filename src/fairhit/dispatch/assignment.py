"""How each ticket finds its place: sent, bound to an engine, or *late bound*, waiting for any.

What must hold afterwards is said in queueing.py.
"""

from collections.abc import Mapping

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import ClientId, WorkerId
from fairhit.dispatch.engine import Engine, EngineTable
from fairhit.dispatch.engine_queue import EngineQueue
from fairhit.dispatch.placement import Placement
from fairhit.dispatch.queue_rules import QueueRules
from fairhit.dispatch.self_fair_engines import SelfFairEngines
from fairhit.dispatch.ticket import Ticket, TicketState
from fairhit.dispatch.ticket_queues import TicketQueues
from fairhit.errors import NoEngine, QueueFull


class Assignment:
    """Finds each ticket its place, and says in `ready` which are to be sent now."""

    def __init__(self, *, fleet: EngineTable, placing: Placement, rules: QueueRules) -> None:
        self.ready: list[Ticket] = []
        self.late = TicketQueues()
        self.rules = rules
        self._workers = fleet.workers
        self._fleet = fleet
        self._placing = placing
        self._counts: dict[ClientId, int] = {}  # waiting, bound or not
        self._size = 0
        self._roomy: dict[WorkerId, None] = {}  # engines that have room and take more
        self._direct = SelfFairEngines(fleet)  # those whose requests do not wait here
        self._changed: dict[WorkerId, None] = {}  # engines to look at before this event is over
        self.sent = 0  # requests at all engines together, not ended yet
        self.max_sent: int | None = None  # the most of them; None: no limit
        # Engines that could send more and may not, since `max_sent` is reached: one after the other,
        # or the engine that ends most requests would get every place that becomes free.
        self._limited: dict[WorkerId, None] = {}

    def __len__(self) -> int:
        """How many wait. O(1)."""
        return self._size

    def count(self, client: ClientId) -> int:
        """How many of the client's wait. O(1)."""
        return self._counts.get(client, 0)

    def counts(self) -> Mapping[ClientId, int]:
        """How many wait of each client of whom any do, longest not served first; no copy. O(1)."""
        return self._counts

    @property
    def is_full(self) -> bool:
        """Whether all engines together have as many requests as they may have. O(1)."""
        return self.max_sent is not None and self.sent >= self.max_sent

    def check_room(self, client: ClientId) -> None:
        """Whether one more of the client's may wait. O(1). Raises QueueFull or NoEngine.

        Where none may, it is not known yet whether it has to.
        """
        waiting = self._counts.get(client, 0)
        if waiting >= self.rules.queue_size > 0:
            raise QueueFull(f"you have {waiting} requests waiting, and may have no more")
        if self._size >= self.rules.queue_total:
            raise NoEngine("the queue is full")

    # -- tickets

    def place(self, ticket: Ticket, candidates: frozenset[WorkerId]) -> None:
        """Send it, bind it, or let it wait late bound; `candidates` is not empty.

        O(chunks of the prompt); where its engine has no room O(workers).
        """
        matches = self._placing.matches(ticket)
        home = self._choose(ticket, matches, candidates)
        if self._placing.pins(ticket):
            ticket.pinned, candidates = True, frozenset((home,))
        queue, is_full = self._workers[home].queue, self.is_full
        if queue is not None and (is_full or home not in self._roomy):
            if is_full:
                roomy: set[WorkerId] = set()
                self._limited.update((name, None) for name in self._roomy if name in candidates)
            else:
                roomy = self._roomy.keys() & candidates
                roomy.update(name for name in self._direct.with_room() if name in candidates)
            if roomy:
                home = self._placing.choose(ticket, matches, roomy)
            elif not ticket.tried and not self._has_place(ticket, queue, candidates):
                self._wait(ticket)
                self.late.add(ticket)
                return
        if not self._size and not is_full and home in self._roomy:
            self._send_lone(ticket, home, matches.of(home))
            return
        self._wait(ticket)
        self._bind(ticket, home, matches.of(home))
        self.run()

    def leave(self, ticket: Ticket) -> None:
        """It waited, and does so no more. O(log waiting)."""
        self._unwait(ticket)
        if not ticket.worker:
            self.late.remove(ticket)
            return
        self._unbind(ticket)
        self._bind_late(ticket.request.client)
        self.run()

    def changed(self, name: WorkerId) -> None:
        """Something ended, began or became known at this engine: fill it. O(1) if nobody waits."""
        if self._size and not self._limited:
            self._changed[name] = None
            self.run()
            return
        worker = self._workers.get(name)
        if worker is not None and worker.queue is not None:
            self._note_room(name, worker, worker.queue)
        if self._size:  # behind those that have waited for the limit
            self._limited[name] = None
            self.run()

    def run(self) -> None:
        """Bring everything to where the law holds."""
        while True:
            while self._changed:
                name = next(iter(self._changed))
                del self._changed[name]
                self._fill(name)
            if self._limited and not self.is_full:
                name = next(iter(self._limited))
                del self._limited[name]
                self._changed[name] = None
            elif not self._size or not self._help_out():
                return

    # -- inside

    def _choose(
        self, ticket: Ticket, matches: PrefixMatches, candidates: frozenset[WorkerId]
    ) -> WorkerId:
        all_up = len(candidates) == self._fleet.up
        return self._placing.choose(ticket, matches, None if all_up else candidates)

    def _has_place(
        self, ticket: Ticket, queue: EngineQueue, candidates: frozenset[WorkerId]
    ) -> bool:
        """Whether it may be bound there. Where nobody else could take it, it may."""
        bound = queue.waiting.count(ticket.request.client)
        return len(candidates) == 1 or bound < self.rules.places

    def _bind(self, ticket: Ticket, name: WorkerId, matched_len: int) -> None:
        self._placing.assign(ticket, name, matched_len)
        worker = self._workers[name]
        if worker.queue is None:
            self._unwait(ticket)
            self._send(ticket, worker)
            return
        worker.queue.bind(ticket)
        if worker.queue.window.has_room:
            self._changed[name] = None

    def _send_lone(self, ticket: Ticket, name: WorkerId, matched_len: int) -> None:
        """What `_bind` and `run` would do where nobody waits and the engine has room, in one step."""
        self._placing.assign(ticket, name, matched_len)
        worker = self._workers[name]
        queue = worker.queue
        assert queue is not None and not queue.waiting
        if queue.send_lone(ticket, self._placing.tokens(ticket, queue.matched(ticket))):
            self._send(ticket, worker)
        else:
            self._wait(ticket)
            self.run()
        self._note_room(name, worker, queue)

    def _unbind(self, ticket: Ticket) -> None:
        assert ticket.queue is not None
        ticket.queue.unbind(ticket)
        self._placing.withdraw(ticket)

    def _fill(self, name: WorkerId) -> None:
        """Send what the engine has room for: what is bound there first, then what waits elsewhere."""
        worker = self._workers.get(name)
        if worker is None or worker.queue is None or not worker.up:
            return
        queue = worker.queue
        while queue.window.has_room and worker.lets_through:
            if self.is_full:
                self._limited[name] = None
                break
            ticket = queue.next()
            if ticket is None and worker.takes and self._pull(name, worker):
                ticket = queue.next()
            if ticket is None:
                break
            self._dispatch(ticket, worker, queue)
        self._note_room(name, worker, queue)
        if self._size and not queue.window.has_room:
            queue.window.turn_away()

    def _note_room(self, name: WorkerId, worker: Engine, queue: EngineQueue) -> None:
        """Whether it can be sent one more at once."""
        if queue.window.has_room and worker.is_open and not queue.waiting:
            self._roomy[name] = None
        else:
            self._roomy.pop(name, None)

    def _dispatch(self, ticket: Ticket, worker: Engine, queue: EngineQueue) -> None:
        """It leaves the queue for the engine, and its client has a place free."""
        ticket.matched_len = self._placing.tokens(ticket, queue.matched(ticket))
        if ticket.evictions != queue.evictions:  # some of its prompt may be forgotten by now
            self._placing.insert(ticket)
        queue.send(ticket)
        self._unwait(ticket)
        self._send(ticket, worker)
        self._bind_late(ticket.request.client)

    def _send(self, ticket: Ticket, worker: Engine) -> None:
        ticket.state, ticket.is_told = TicketState.WAITING, False
        worker.send(ticket)
        self.sent += 1
        self.ready.append(ticket)
        if worker.gate is not None:
            worker.gate.sent()
            if not worker.gate.lets_through:
                self._fleet.changed()

    def _pull(self, name: WorkerId, worker: Engine) -> bool:
        """Bind to this engine the ticket elsewhere whose client it owes most; False if there is none.

        As `_offers`.
        """
        queue = worker.queue
        offers = self._offers(name, worker) if self._size else []
        if not offers or queue is None:
            return False
        credit = queue.scheduler.credit
        best = max(offers, key=lambda each: (credit(each.request.client), -each.request.order))
        if queue.waiting and credit(best.request.client) <= 0:
            return False  # it would only wait here with those for whom it is not the turn, either
        self._rebind(best, name)
        return True

    def _help_out(self) -> bool:
        """Send an engine without a queue here what waits for others; False if there is nothing to.

        O(workers), and as `_offers`.
        """
        for name in () if self.is_full else self._direct.with_room():
            worker = self._workers[name]
            if offers := self._offers(name, worker):
                best = self._direct.choose(name, offers, self.rules)
                self._rebind(best, name)
                self._bind_late(best.request.client)
                return True
        return False

    def _offers(self, name: WorkerId, worker: Engine) -> list[Ticket]:
        """Tickets that wait elsewhere and could go to this engine; at least one if there is any.

        O(models), and O(workers) if any are bound: it looks at a few late-bound clients and at a few of
        the longest queue that has something for it.
        """
        offers = self.late.offers(name, worker)
        if self._size > len(self.late):
            others = [other.queue for other in self._workers.values() if other is not worker]
            queues = [queue for queue in others if queue is not None and queue.waiting]
            for queue in sorted(queues, key=lambda queue: -len(queue.waiting)):
                if bound := queue.waiting.offers(name, worker, newest=True):
                    offers += bound
                    break
        return offers

    def _rebind(self, ticket: Ticket, name: WorkerId) -> None:
        """It waits elsewhere, and goes to this engine."""
        if ticket.worker:
            self._unbind(ticket)
        else:
            self.late.remove(ticket)
        self._bind(ticket, name, self._placing.matches(ticket).of(name))

    def _bind_late(self, client: ClientId) -> None:
        """The client has a place free somewhere: bind the oldest of its late-bound, if it is there."""
        for first in self.late.firsts(client):
            ticket: Ticket | None = first
            while ticket is not None and (candidates := self._fleet.untried(ticket)):
                matches = self._placing.matches(ticket)
                home = self._choose(ticket, matches, candidates)
                queue = self._workers[home].queue
                if queue is not None and not self._has_place(ticket, queue, candidates):
                    break
                self.late.remove(ticket)
                self._bind(ticket, home, matches.of(home))
                ticket = self.late.first(ticket.model, client)

    def _wait(self, ticket: Ticket) -> None:
        client = ticket.request.client
        ticket.state = TicketState.QUEUED
        self._counts[client] = self._counts.get(client, 0) + 1
        self._size += 1

    def _unwait(self, ticket: Ticket) -> None:
        left = self._counts.pop(ticket.request.client) - 1
        if left:
            self._counts[ticket.request.client] = left
        self._size -= 1

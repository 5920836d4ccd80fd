"""The gateway's queue: assigns each ticket to an engine or keeps it unassigned, and sends it on capacity.

Invariant, after every event: no engine has free capacity while a ticket waits that it could take, unless
clients that wait at other gateways have precedence (`accounting/ledger_sharing.py`). A ticket is placed
in one of five ways:

| placement     | where the ticket is                   | when                                  | by         |
|---------------|---------------------------------------|---------------------------------------|------------|
| assigned      | waits in one engine's queue, charged  | the engine has no capacity; fewer     | _assign    |
|               | to the engine in the router           | than `max_assigned_per_client` tickets|            |
|               |                                       | of the client wait there              |            |
| unassigned    | waits for any engine, charged nowhere | as many of the client wait there      | submit     |
| sent          | in flight at its engine               | the engine has capacity and its       | _fill      |
|               |                                       | policy admits the ticket next; in one | _send_only |
|               |                                       | step while no other ticket waits      |            |
| sent directly | in flight at an engine that shares    | at once, when it is assigned to such  | _assign    |
|               | fairly itself (`SelfFairEngines`)     | an engine                             |            |
| taken over    | as assigned, or sent directly, at     | that engine has capacity, and nothing | _take_over |
|               | another engine than before            | that it may send waits there          | _help_out  |

Only a few tickets of each client are assigned to an engine, for its policy to choose from. The others
stay unassigned, so that they are placed by the caches and the free capacity of a later moment.
"""

from collections.abc import Iterable
from dataclasses import replace

from fairhit.core.costs import ContextCost
from fairhit.core.request import ClientId, WorkerId
from fairhit.core.service import Weights
from fairhit.dispatch.accounting.client_ledger import ClientLedger
from fairhit.dispatch.accounting.engine_prices import EnginePrices
from fairhit.dispatch.engine import Engine, EngineTable
from fairhit.dispatch.engine_queue import EngineQueue
from fairhit.dispatch.placement import Placement
from fairhit.dispatch.queue_rules import QueueRules
from fairhit.dispatch.self_fair_engines import SelfFairEngines
from fairhit.dispatch.ticket import Ticket, TicketState
from fairhit.dispatch.ticket_queues import TicketQueues
from fairhit.errors import NoEngine, QueueFull


class GatewayQueue:
    """Places tickets, and collects in `ready` those to be sent now."""

    def __init__(
        self,
        *,
        engines: EngineTable,
        placement: Placement,
        ledger: ClientLedger,
        rules: QueueRules,
        max_sent: int | None = None,
    ) -> None:
        self.ready: list[Ticket] = []
        self.unassigned = TicketQueues()
        self.rules = rules
        self.scheduler = rules.scheduler
        self.switches = 0  # changes of policy or weights: all deficits were forgotten
        self.sent = 0  # tickets in flight at all engines together
        self.max_sent = max_sent  # their largest number; None: no limit
        self.prices = EnginePrices()
        self._make = rules.maker(prices=self.prices.cost)
        self._table = engines
        self._engines = engines.engines
        self._placement = placement
        self._ledger = ledger
        self._self_fair = SelfFairEngines(engines)
        self._with_capacity: dict[WorkerId, None] = {}  # engines that can be sent one more at once
        self._changed: dict[WorkerId, None] = {}  # engines to fill before this event is over
        # Engines with capacity that `max_sent` blocks, in rotation: otherwise the engine that finishes
        # most requests would get every slot that becomes free.
        self._limited: dict[WorkerId, None] = {}

    def __len__(self) -> int:
        """Return the number of waiting tickets. O(1)."""
        return self._ledger.total_waiting

    @property
    def follows_prices(self) -> bool:
        """True if the policy's cost takes its prices from engines that report some. O(engines)."""
        queues = [engine.queue for engine in self._engines.values() if engine.queue is not None]
        costs = [queue.scheduler.cost for queue in queues]
        return any(isinstance(cost, ContextCost) and cost.fitted for cost in costs)

    def cost_source(self) -> str:
        """Return where the cost is from: `setting`, `engines` or `default`. O(engines)."""
        if self.follows_prices:
            return "engines" if self.prices.mean is not None else "default"
        return "default" if self.rules.cost is None else "setting"

    @property
    def is_full(self) -> bool:
        """True if as many tickets are in flight as `max_sent` allows. O(1)."""
        return self.max_sent is not None and self.sent >= self.max_sent

    def check_capacity(self, client: ClientId) -> None:
        """Raise QueueFull or NoEngine if no further ticket of `client` may wait. O(1).

        With a queue size of 0 a ticket is refused only if it has to wait, which is not known here.
        """
        waiting = self._ledger.waiting(client)
        if waiting >= self.rules.queue_size > 0:
            raise QueueFull(f"you have {waiting} requests waiting, and may have no more")
        if len(self) >= self.rules.queue_total:
            raise NoEngine("the queue is full")

    # -- tickets

    def submit(self, ticket: Ticket, candidates: frozenset[WorkerId]) -> None:
        """Send `ticket`, assign it to one of `candidates` (not empty), or keep it unassigned.

        O(chunks of the prompt); where the chosen engine has no capacity O(engines).
        """
        matches = self._placement.matches(ticket)
        all_up = len(candidates) == self._table.up
        chosen = self._placement.choose(ticket, matches, None if all_up else candidates)
        if self._placement.pins(ticket):
            ticket.pinned, candidates = True, frozenset((chosen,))
        queue, is_full = self._engines[chosen].queue, self.is_full
        if queue is not None and (is_full or chosen not in self._with_capacity):
            if is_full:
                free: set[WorkerId] = set()
                self._limited.update(
                    (name, None) for name in self._with_capacity if name in candidates
                )
            else:
                free = self._with_capacity.keys() & candidates
                free.update(each for each in self._self_fair.with_capacity() if each in candidates)
            if free:
                chosen = self._placement.choose(ticket, matches, free)
            elif not ticket.tried and not self._may_assign(ticket, queue, candidates):
                self._enqueue(ticket)
                self.unassigned.add(ticket)
                return
        if not self._ledger.total_waiting and not is_full and chosen in self._with_capacity:
            self._send_only(ticket, chosen, matches.of(chosen))
            return
        self._enqueue(ticket)
        self._assign(ticket, chosen, matches.of(chosen))
        self.run()

    def withdraw(self, ticket: Ticket) -> None:
        """Remove a waiting ticket. O(log waiting)."""
        self._ledger.dequeued(ticket.request.client)
        if not ticket.worker:
            self.unassigned.remove(ticket)
            return
        self._unassign(ticket)
        self._assign_next(ticket.request.client)
        self.run()

    def changed(self, name: WorkerId) -> None:
        """Fill the engine `name` after its load or state changed. O(1) if no ticket waits."""
        waiting = self._ledger.total_waiting
        if waiting and not self._limited:
            self._changed[name] = None
            self.run()
            return
        engine = self._engines.get(name)
        if engine is not None and engine.queue is not None:
            self._note_capacity(name, engine, engine.queue)
        if waiting:  # behind the engines that `max_sent` blocked before
            self._limited[name] = None
            self.run()

    def run(self) -> None:
        """Restore the invariant."""
        while True:
            while self._changed:
                name = next(iter(self._changed))
                del self._changed[name]
                self._fill(name)
            if self._limited and not self.is_full:
                name = next(iter(self._limited))
                del self._limited[name]
                self._changed[name] = None
            elif not self._ledger.total_waiting or not self._help_out():
                return

    # -- engines

    def open(self, name: WorkerId, *, queues: bool) -> None:
        """Include the engine `name`, which is up; `queues`: its requests wait here, not in the engine."""
        engine = self._engines[name]
        if queues and engine.queue is None:
            engine.queue = EngineQueue(
                make=self._make,
                limit=self.rules.make_limit(),
                prefix_len=self._placement.prefix_len,
            )
        elif not queues and engine.queue is not None:
            queue, engine.queue = engine.queue, None
            self._with_capacity.pop(name, None)
            for ticket in _by_age(queue.waiting):
                self._unassign(ticket)
                self._assign(ticket, name, self._placement.matches(ticket).of(name))
        if engine.queue is None:
            self._self_fair.names[name] = None
        else:
            self._self_fair.names.pop(name, None)
        self._resubmit_unassigned()
        self.changed(name)

    def drain(self, name: WorkerId) -> None:
        """Exclude the engine `name`, which accepts no more requests. O(waiting).

        Its queued tickets are reassigned where another engine can serve them, else they stay.
        """
        self._with_capacity.pop(name, None)
        self._limited.pop(name, None)
        queue = self._engines[name].queue
        self._reassign(queue.waiting if queue is not None else ())
        # An unassigned ticket that no open engine serves waits for this one.
        for ticket in self._unservable():
            if self._engines[name].serves(ticket.model):
                self.unassigned.remove(ticket)
                self._assign(ticket, name, self._placement.matches(ticket).of(name))
        self._resubmit_unassigned()
        self.changed(name)

    def lose(self, name: WorkerId) -> list[Ticket]:
        """Exclude the engine `name`, which is down; return the tickets to be placed again. O(waiting).

        Those are all tickets assigned to it, and the unassigned ones that no open engine serves.
        """
        self._with_capacity.pop(name, None)
        self._limited.pop(name, None)
        self._self_fair.names.pop(name, None)
        self._resubmit_unassigned()
        stuck = self._unservable()
        queue = self._engines[name].queue
        if queue is not None:
            stuck.extend(queue.waiting)
            queue.clear()
        return stuck

    def models_changed(self, name: WorkerId) -> list[Ticket]:
        """Reassign what the engine `name` no longer serves; return the tickets that no open engine serves.

        O(waiting).
        """
        engine = self._engines[name]
        waiting = engine.queue.waiting if engine.queue is not None else ()
        self._reassign(ticket for ticket in waiting if not engine.serves(ticket.model))
        for ticket in [each for each in waiting if not engine.serves(each.model)]:
            self._unassign(ticket)
            ticket.pinned = False
            self.unassigned.add(ticket)
        self._resubmit_unassigned()
        self.changed(name)
        return self._unservable()

    # -- rules

    def limit_waiting(self, queue_size: int) -> None:
        """Change how many requests a client may have waiting. O(1)."""
        self.rules = replace(self.rules, queue_size=queue_size)

    def limit_sent(self, max_sent: int | None) -> None:
        """Change how many tickets may be in flight at all engines. O(1), and the tickets sent for it."""
        self.max_sent = max_sent
        if self._ledger.total_waiting:
            self.run()

    def change_weights(self, weights: Weights) -> None:
        """Change the clients' weights; all deficits are forgotten. O(tickets)."""
        self.rules = replace(self.rules, weights=weights)
        self.switch(self.scheduler)

    def switch(self, name: str) -> None:
        """Change the policy; all deficits are forgotten. O(tickets). Raises ConfigError."""
        self._make, self.scheduler = self.rules.maker(name, prices=self.prices.cost), name
        self.switches += 1
        for url, engine in self._engines.items():
            if engine.queue is not None:
                engine.queue.switch(self._make)
                self._changed[url] = None  # precedence of clients elsewhere no longer counts
        self.run()

    # -- placing one ticket

    def _may_assign(
        self, ticket: Ticket, queue: EngineQueue, candidates: frozenset[WorkerId]
    ) -> bool:
        """Return whether the client has fewer tickets assigned there than allowed, or no alternative."""
        assigned = queue.waiting.count(ticket.request.client)
        return len(candidates) == 1 or assigned < self.rules.max_assigned_per_client

    def _assign(self, ticket: Ticket, name: WorkerId, matched_len: int) -> None:
        """Charge `ticket` to an engine: it waits in the engine's queue, or is sent if there is none."""
        self._placement.charge(ticket, name, matched_len)
        engine = self._engines[name]
        if engine.queue is None:
            self._ledger.dequeued(ticket.request.client)
            self._send(ticket, engine)
            return
        engine.queue.assign(ticket)
        if engine.queue.limit.has_capacity:
            self._changed[name] = None

    def _send_only(self, ticket: Ticket, name: WorkerId, matched_len: int) -> None:
        """Do in one step what `_assign` and `run` do if no ticket waits and the engine has capacity."""
        self._placement.charge(ticket, name, matched_len)
        engine = self._engines[name]
        queue = engine.queue
        assert queue is not None and not queue.waiting
        if queue.send_only(ticket, self._placement.tokens(ticket, queue.matched(ticket))):
            self._send(ticket, engine)
        else:  # clients that wait at other gateways have precedence
            self._enqueue(ticket)
            self.run()
        self._note_capacity(name, engine, queue)

    def _unassign(self, ticket: Ticket) -> None:
        assert isinstance(ticket.queue, EngineQueue), ticket
        ticket.queue.unassign(ticket)
        self._placement.refund(ticket)

    def _enqueue(self, ticket: Ticket) -> None:
        ticket.state = TicketState.QUEUED
        self._ledger.enqueued(ticket.request.client)

    def _send(self, ticket: Ticket, engine: Engine) -> None:
        ticket.state, ticket.is_notified = TicketState.WAITING, False
        engine.add(ticket)
        self.sent += 1
        self.ready.append(ticket)
        if engine.gate is not None:
            engine.gate.sent()
            if not engine.gate.lets_through:
                self._table.changed()

    def _assign_next(self, client: ClientId) -> None:
        """Assign the client's oldest unassigned tickets, for as long as the chosen engine may have more."""
        for oldest in self.unassigned.oldest_by_model(client):
            ticket: Ticket | None = oldest
            while ticket is not None and (candidates := self._table.untried(ticket)):
                matches = self._placement.matches(ticket)
                all_up = len(candidates) == self._table.up
                chosen = self._placement.choose(ticket, matches, None if all_up else candidates)
                queue = self._engines[chosen].queue
                if queue is not None and not self._may_assign(ticket, queue, candidates):
                    break
                self.unassigned.remove(ticket)
                self._assign(ticket, chosen, matches.of(chosen))
                ticket = self.unassigned.oldest(ticket.model, client)

    # -- filling one engine

    def _fill(self, name: WorkerId) -> None:
        """Send tickets while the engine has capacity: its own first, then those that wait elsewhere."""
        engine = self._engines.get(name)
        if engine is None or engine.queue is None or not engine.up:
            return
        queue = engine.queue
        while queue.limit.has_capacity and engine.lets_through:
            if self.is_full:
                self._limited[name] = None
                break
            ticket = queue.next()
            if (
                ticket is None
                and self._ledger.total_waiting
                and engine.accepts
                and self._take_over(name, engine)
            ):
                ticket = queue.next()
            if ticket is None:
                break
            ticket.matched_len = self._placement.tokens(ticket, queue.matched(ticket))
            if ticket.evictions != queue.evictions:  # parts of its prompt may be evicted by now
                self._placement.insert(ticket)
            queue.send(ticket)
            self._ledger.dequeued(ticket.request.client)
            self._send(ticket, engine)
            if self.unassigned:
                self._assign_next(ticket.request.client)
        self._note_capacity(name, engine, queue)
        if self._ledger.total_waiting and not queue.limit.has_capacity:
            queue.limit.turned_away()

    def _note_capacity(self, name: WorkerId, engine: Engine, queue: EngineQueue) -> None:
        """Record whether the engine can be sent one more ticket at once."""
        if queue.limit.has_capacity and engine.is_open and not queue.waiting:
            self._with_capacity[name] = None
        else:
            self._with_capacity.pop(name, None)

    def _take_over(self, name: WorkerId, engine: Engine) -> bool:
        """Assign to an engine the candidate from elsewhere with the highest credit; False if there is none.

        Cost as `_candidates`.
        """
        queue, candidates = engine.queue, self._candidates(name, engine)
        if not candidates or queue is None:
            return False
        credit = queue.scheduler.credit
        best = max(candidates, key=lambda each: (credit(each.request.client), -each.request.order))
        if queue.waiting and credit(best.request.client) <= 0:
            return False  # it would only wait here, behind clients at other gateways
        self._move(best, name)
        return True

    def _help_out(self) -> bool:
        """Send one ticket that waits for another engine to a self-fair engine; False if there is none.

        O(engines), and cost as `_candidates`.
        """
        for name in () if self.is_full else self._self_fair.with_capacity():
            if candidates := self._candidates(name, self._engines[name]):
                best = self._self_fair.choose(name, candidates, self.rules)
                self._move(best, name)
                self._assign_next(best.request.client)
                return True
        return False

    def _candidates(self, name: WorkerId, engine: Engine) -> list[Ticket]:
        """Return tickets that wait elsewhere and could go to this engine; at least one if there is any.

        O(models), and O(engines) if any are assigned: a few unassigned clients are examined, and a few of
        the longest queue that has something for this engine.
        """
        found = self.unassigned.candidates(name, engine)
        if self._ledger.total_waiting > len(self.unassigned):
            others = [other.queue for other in self._engines.values() if other is not engine]
            queues = [queue for queue in others if queue is not None and queue.waiting]
            for queue in sorted(queues, key=lambda queue: -len(queue.waiting)):
                if assigned := queue.waiting.candidates(name, engine, newest=True):
                    found += assigned
                    break
        return found

    def _move(self, ticket: Ticket, name: WorkerId) -> None:
        """Assign a ticket that waits elsewhere to the engine `name`."""
        if ticket.worker:
            self._unassign(ticket)
        else:
            self.unassigned.remove(ticket)
        self._assign(ticket, name, self._placement.matches(ticket).of(name))

    # -- placing many tickets again

    def _reassign(self, tickets: Iterable[Ticket]) -> None:
        """Submit assigned tickets again if an engine can serve them, oldest first. O(tickets * engines)."""
        for ticket in _by_age(tickets):
            if candidates := self._table.untried(ticket):
                self._unassign(ticket)
                self._ledger.dequeued(ticket.request.client)
                self.submit(ticket, candidates)

    def _resubmit_unassigned(self) -> None:
        """Submit again each unassigned ticket that a self-fair engine serves; other engines take theirs."""
        for ticket in list(self.unassigned):
            candidates = self._table.untried(ticket)
            if not ticket.worker and any(self._engines[name].queue is None for name in candidates):
                self.unassigned.remove(ticket)
                self._ledger.dequeued(ticket.request.client)
                self.submit(ticket, candidates)

    def _unservable(self) -> list[Ticket]:
        """Return the unassigned tickets that no open engine serves. O(unassigned)."""
        return [ticket for ticket in self.unassigned if not self._table.untried(ticket)]


def _by_age(tickets: Iterable[Ticket]) -> list[Ticket]:
    return sorted(tickets, key=lambda ticket: ticket.request.order)

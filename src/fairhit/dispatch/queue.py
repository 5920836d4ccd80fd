"""The gateway's queue: tickets wait unassigned, and an engine with capacity takes the best one for its cache.

Invariant, after every event: no engine has free capacity while a ticket waits that it could take, unless
clients that wait at other gateways have precedence (`accounting/ledger_sharing.py`).

A ticket waits in the *lane* of the engines that may take it: those that are up, serve its model and have not
failed it; where a session is kept at one engine, or while it is held for one (`delay`), only that one. Mostly
there is one lane. Under a policy with
shared deficits all lanes charge the same ones, so that a client has one account in the fleet; under another
each lane has accounts of its own.

| event                        | what happens                                                   | by        |
|------------------------------|----------------------------------------------------------------|-----------|
| a ticket arrives             | the router chooses among the engines with capacity, and it is  | submit    |
|                              | sent; without one, it waits                                    |           |
| an engine has capacity       | it takes what its lanes' policies admit next by its cache,     | _fill     |
|                              | until it has none or nothing is due. A ticket of which another | _hold     |
|                              | one has more cached is held for that one                       |           |
| an engine comes or goes, or  | waiting tickets change to the lanes of the engines that may    | _sort     |
| its models change            | take them now                                                  |           |

So a ticket is bound when it is sent, by the caches and the free capacity of that moment.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.costs import ContextCost
from fairhit.core.fair_queue import FairQueue
from fairhit.core.ledgers.shared_deficits import SharedDeficits
from fairhit.core.request import ClientId, WorkerId
from fairhit.core.service import Cost, Weights
from fairhit.core.waiting.fleet import FleetCaches
from fairhit.dispatch.accounting.client_ledger import ClientLedger
from fairhit.dispatch.accounting.engine_prices import EnginePrices
from fairhit.dispatch.delay import DelayScheduling, OnHold
from fairhit.dispatch.engine import Engine, EngineTable
from fairhit.dispatch.lane import EngineView, Lane
from fairhit.dispatch.lanes import Lanes
from fairhit.dispatch.memory_room import MemoryRoom
from fairhit.dispatch.placement import Placement
from fairhit.dispatch.queue_rules import QueueRules
from fairhit.dispatch.ticket import Ticket, TicketState
from fairhit.errors import NoEngine, QueueFull
from fairhit.policies.shared import DLPMShared, FairShared

# Tokens of a match that make a difference between lanes.
_NEAR = 256
_MOST_DECLINED = 16  # tickets that an engine declines before it takes one
_MOST_HOLDING = 64  # lanes beyond which no ticket is held: each is notified of charges


class GatewayQueue:
    """Holds waiting tickets, and collects in `ready` those to be sent now.

    With `queues` False no ticket waits: each is sent to the router's choice at once.
    """

    def __init__(
        self,
        *,
        engines: EngineTable,
        placement: Placement,
        ledger: ClientLedger,
        rules: QueueRules,
        queues: bool,
        max_sent: int | None = None,
        on_hold: OnHold | None = None,
    ) -> None:
        self.ready: list[Ticket] = []
        self.rules = rules
        self.scheduler = rules.scheduler
        self.queues = queues
        self.switches = 0  # changes of policy or weights: all deficits were forgotten
        self.holds = 0  # tickets that were held for an engine
        self.sent = 0  # tickets in flight at all engines together
        self.max_sent = max_sent  # their largest number; None: no limit
        self.prices = EnginePrices()
        self._table = engines
        self._engines = engines.engines
        self._placement = placement
        self._ledger = ledger
        self.lanes = Lanes(self._engines, finder=placement.index.match, schedule=self._schedule)
        self._with_capacity: dict[WorkerId, None] = {}  # engines that can be sent one more at once
        self._changed: dict[WorkerId, None] = {}  # engines to fill before this event is over
        # Engines with capacity that `max_sent` blocks, in rotation: else the fastest would get every slot.
        self._limited: dict[WorkerId, None] = {}
        self._delay = DelayScheduling(
            engines=self._engines,
            placement=placement,
            longest_us=rules.max_hold_us if on_hold is not None else 0,
        )
        self._on_hold = on_hold
        self._use(rules.scheduler)

    def __len__(self) -> int:
        """Return the number of waiting tickets. O(1)."""
        return self._ledger.total_waiting

    def _use(self, name: str) -> None:
        """Make schedulers of the policy `name` from now on, with new deficits. Raises ConfigError."""
        self._make = self.rules.maker(name, prices=self.prices.cost)
        self.scheduler = name
        # No ticket waits in it: it has the ledger that the lanes share.
        self._first: FairQueue = self._make(FleetCaches(), None)
        policy = self._first.policy
        self.deficits: SharedDeficits | None = None
        if isinstance(policy, DLPMShared | FairShared):
            self.deficits = policy.shared

    @property
    def cost(self) -> Cost | None:
        """Return the cost in force; None for a policy without one. O(1)."""
        for lane in self.lanes:
            return lane.scheduler.cost
        return self._first.cost

    @property
    def follows_prices(self) -> bool:
        """True if the policy's cost takes its prices from engines that report some."""
        cost = self._first.cost
        return self.queues and isinstance(cost, ContextCost) and cost.fitted

    def cost_source(self) -> str:
        """Return where the cost is from: `setting`, `engines` or `default`."""
        if self.follows_prices:
            return "engines" if self.prices.mean is not None else "default"
        return "default" if self.rules.cost is None else "setting"

    @property
    def is_full(self) -> bool:
        """True if as many tickets are in flight as `max_sent` allows. O(1)."""
        return self.max_sent is not None and self.sent >= self.max_sent

    def waits_for_last(self, name: WorkerId) -> bool:
        """Return whether a ticket waits that the draining engine `name` alone may take. O(its lanes)."""
        return any(self._is_last(lane) for lane in self.lanes.waits_for(name))

    def credit(self, client: ClientId) -> int:
        """Return a client's credit in units: of the fleet, or the least of its lanes. O(1), or O(lanes)."""
        if self.deficits is not None:
            return self.deficits.value(client)
        lanes = [lane for lane in self.lanes if lane.scheduler.waiting(client)]
        return min((lane.scheduler.credit(client) for lane in lanes), default=0)

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
        """Send `ticket` to one of `candidates` (not empty) if one has capacity, else let it wait.

        O(chunks of the prompt); where not every engine is a candidate, O(engines).
        """
        matches = self._placement.matches(ticket)
        all_up = len(candidates) == self._table.up
        if not self.queues:
            chosen = self._placement.choose(ticket, matches, None if all_up else candidates)
            self._placement.charge(ticket, chosen, matches.of(chosen))
            self._send(ticket, self._engines[chosen])
            return
        if self._placement.pins(ticket):
            ticket.pinned = self._placement.choose(ticket, matches, None if all_up else candidates)
            candidates = candidates & {ticket.pinned}
        self._enqueue(ticket)
        self._offer(ticket, candidates, matches)

    def release(self, ticket: Ticket) -> None:
        """Hold a ticket no longer: each engine of its model may take it. O(as `submit`)."""
        if ticket.held and ticket.state is TicketState.QUEUED:
            ticket.held = ""
            self._change_lane(ticket)
            self._offer(ticket, self._table.untried(ticket), self._placement.matches(ticket))

    def _offer(
        self, ticket: Ticket, candidates: frozenset[WorkerId], matches: PrefixMatches
    ) -> None:
        """Send a waiting ticket to one of `candidates` if one has capacity, and it is due."""
        free: Collection[WorkerId] = self._with_capacity
        if len(candidates) < self._table.up:
            free = self._with_capacity.keys() & candidates
        if not free:
            return
        if self.is_full:
            self._limited.update(dict.fromkeys(free))
            return
        chosen = self._placement.choose_free(ticket, matches, free)
        if not self._hold(ticket, chosen, matches):
            lane, is_alone = ticket.lane, self._ledger.total_waiting == 1
            if is_alone and isinstance(lane, Lane) and lane.propose(chosen) is ticket:
                engine = self._engines[chosen]
                if self._take(ticket, chosen, engine):
                    self._note_capacity(chosen, engine)
                    return
            self._changed[chosen] = None
        self.run()
        if not (ticket.worker or ticket.held):  # the engine took another one
            self._changed.update((name, None) for name in self._with_capacity if name in candidates)
            self.run()

    def withdraw(self, ticket: Ticket) -> None:
        """Remove a waiting ticket. O(log waiting)."""
        assert ticket.lane is not None, ticket
        ticket.lane.leave(ticket)
        self._ledger.dequeued(ticket.request.client)

    def changed(self, name: WorkerId) -> None:
        """Fill the engine `name` after its load or state changed. O(1) if no ticket waits."""
        engine = self._engines.get(name)
        if engine is not None and engine.up:
            self._note_capacity(name, engine)
        if self._ledger.total_waiting:
            (self._limited or self._changed)[name] = None
            self.run()

    def refill(self) -> None:
        """Fill all engines with capacity: clients may be due that were not. O(engines with capacity)."""
        if self._ledger.total_waiting:
            self._changed.update(self._with_capacity)
            self.run()

    def run(self) -> None:
        """Restore the invariant."""
        while True:
            while self._changed:
                name = next(iter(self._changed))
                del self._changed[name]
                self._fill(name)
            if not self._limited or self.is_full:
                return
            name = next(iter(self._limited))
            del self._limited[name]
            self._changed[name] = None

    # -- engines

    def open(self, name: WorkerId) -> list[Ticket]:
        """Include the engine `name`, which is up. O(waiting).

        Returns the waiting tickets that no engine serves now, as do the next methods.
        """
        if not self.queues:
            return []
        engine = self._engines[name]
        if engine.view is None:
            engine.view = EngineView(self._placement.prefix_len)
            engine.limit = self.rules.make_limit()
            if self.rules.max_engine_requests is None:
                engine.room = MemoryRoom()
        self.lanes.open(name)
        return self._sort(name)

    def lose(self, name: WorkerId) -> list[Ticket]:
        """Exclude the engine `name`, which is down, and forget its cache. O(waiting)."""
        for waiting in (self._with_capacity, self._limited, self._changed):
            waiting.pop(name, None)
        self.lanes.close(name)
        self._engines[name].forget()
        return self._sort(name)

    def models_changed(self, name: WorkerId) -> list[Ticket]:
        """Consider what models the engine `name`, which is up, serves now. O(waiting)."""
        return self._sort(name) if self.queues else []

    def drain(self, name: WorkerId) -> None:
        """Send the engine `name` nothing more, but tickets that no other engine can take. O(waiting)."""
        self._with_capacity.pop(name, None)
        self._limited.pop(name, None)
        self._sort(name)

    def _sort(self, name: WorkerId) -> list[Ticket]:
        """Let each waiting ticket wait in the lane of the engines that may take it now, and fill them.

        Returns the tickets that no engine may take.
        """
        stuck: list[Ticket] = []
        for lane in list(self.lanes):
            for ticket in lane.waiting():
                if ticket.pinned:
                    self._pin_anew(ticket)
                if self._may_take(ticket) == lane.engines:
                    continue
                if not self._change_lane(ticket).engines:
                    stuck.append(ticket)
        self.lanes.drop_lost()
        self.changed(name)
        self.refill()
        return [ticket for ticket in stuck if not ticket.worker]

    # -- rules

    def limit_waiting(self, queue_size: int) -> None:
        """Change how many requests a client may have waiting. O(1)."""
        self.rules = replace(self.rules, queue_size=queue_size)

    def limit_sent(self, max_sent: int | None) -> None:
        """Change how many tickets may be in flight at all engines. O(1), and the tickets sent for it."""
        self.max_sent = max_sent
        self.run()

    def change_weights(self, weights: Weights) -> None:
        """Change the clients' weights; all deficits are forgotten. O(tickets)."""
        self.rules = replace(self.rules, weights=weights)
        self.switch(self.scheduler)

    def switch(self, name: str) -> None:
        """Change the policy; all deficits are forgotten. O(tickets). Raises ConfigError."""
        self._use(name)
        self.switches += 1
        for lane in self.lanes:
            self._schedule(lane)
        self.refill()  # precedence of clients elsewhere no longer counts

    # -- lanes

    def _may_take(self, ticket: Ticket) -> frozenset[WorkerId]:
        """Return the engines that are up and may take the ticket. O(1), O(engines) after a failure.

        It is not held any longer for one that may not.
        """
        engines = self._table.up_for(ticket.model)
        if ticket.tried:
            engines = engines.difference(ticket.tried)
        if ticket.held:
            if ticket.held in engines and self._engines[ticket.held].is_steady:
                return frozenset((ticket.held,))
            ticket.held = ""
        return engines & {ticket.pinned} if ticket.pinned else engines

    def _pin_anew(self, ticket: Ticket) -> None:
        """Pin a ticket to another engine if its own is down, drains or has failed it: a session moves."""
        name = ticket.pinned
        engine = self._engines.get(name)
        if engine is not None and engine.up and engine.accepts and name not in ticket.tried:
            return
        others = self._table.untried(ticket)
        if others:
            ticket.pinned = self._placement.choose(ticket, self._placement.matches(ticket), others)
        elif engine is None or not engine.up or name in ticket.tried:
            ticket.pinned = ""

    def _schedule(self, lane: Lane) -> None:
        lane.schedule(self._make, self.deficits)

    # -- one ticket

    def _change_lane(self, ticket: Ticket) -> Lane:
        """Let a waiting ticket wait in the lane of the engines that may take it now. O(prompt)."""
        assert ticket.lane is not None, ticket
        ticket.lane.leave(ticket)
        lane = self.lanes.get(self._may_take(ticket))
        lane.enter(ticket)
        return lane

    def _hold(self, ticket: Ticket, name: WorkerId, matches: PrefixMatches | None = None) -> bool:
        """Hold a ticket that `name` could take for an engine that has more of it cached, if there is one.

        Returns whether it is held. Not for an engine for which as many are held as it runs at once.
        """
        deficits, on_hold = self.deficits, self._on_hold
        if deficits is None or on_hold is None or deficits.queues >= _MOST_HOLDING:
            return False
        hold = self._delay.hold(ticket, name, among=self._may_take(ticket), matches=matches)
        if hold is None:
            return False
        limit = self._engines[hold.engine].limit
        if limit is None or len(self.lanes.get(frozenset((hold.engine,)))) >= limit.size:
            return False
        ticket.held = hold.engine
        self.holds += 1
        self._change_lane(ticket)
        self._changed[hold.engine] = None
        on_hold(ticket, hold.longest_us)
        return True

    def _enqueue(self, ticket: Ticket) -> None:
        ticket.state = TicketState.QUEUED
        self._ledger.enqueued(ticket.request.client)
        self.lanes.get(self._may_take(ticket)).enter(ticket)

    def _take(self, ticket: Ticket, name: WorkerId, engine: Engine) -> bool:
        """Charge a waiting ticket at the engine, and send it there. O(prompt).

        Returns False, and does nothing, if its prompt does not fit in the engine's memory, or if the engine
        has capacity for cached prompts only.
        """
        view, limit, lane = engine.view, engine.limit, ticket.lane
        assert view is not None and limit is not None and lane is not None
        prompt = ticket.request.prompt
        matched_len = self._placement.tokens(ticket, view.match_len(prompt))
        if not engine.has_capacity_for(ticket.request, matched_len):
            return False
        self._placement.charge(ticket, name, matched_len)
        lane.admit(ticket)
        ticket.held = ticket.held and ""
        ticket.number = limit.sent(streams=ticket.streams)
        # No more than the prefix index holds: its evictions are reported, and the view would keep the rest.
        view.learn(prompt[: ticket.indexed])
        self._ledger.dequeued(ticket.request.client)
        self._send(ticket, engine)
        return True

    def _send(self, ticket: Ticket, engine: Engine) -> None:
        ticket.state, ticket.is_notified = TicketState.WAITING, False
        engine.add(ticket)
        self.sent += 1
        self.ready.append(ticket)
        if engine.gate is not None:
            engine.gate.sent()
            if not engine.gate.lets_through:
                self._table.changed()

    # -- one engine

    def _fill(self, name: WorkerId) -> None:
        """Send tickets while the engine has capacity and one is due."""
        engine = self._engines.get(name)
        if engine is None or engine.limit is None or not engine.up:
            return
        limit, sent, declined = engine.limit, False, 0
        while engine.lets_through and self._ledger.total_waiting:
            if not (limit.has_capacity or (sent and engine.takes_hits)):
                break
            if self.is_full:
                self._limited[name] = None
                break
            ticket = self._next(name, engine)
            if ticket is not None and declined < _MOST_DECLINED and self._hold(ticket, name):
                declined += 1
                continue
            if ticket is None or not self._take(ticket, name, engine):
                break
            sent = True
        self._note_capacity(name, engine)
        if not limit.has_capacity and self._ledger.total_waiting:
            limit.turned_away()

    def _next(self, name: WorkerId, engine: Engine) -> Ticket | None:
        """Return the ticket that the engine takes next, the best of its lanes' proposals.

        None if clients that wait at other gateways have precedence. O(lanes examined).
        """
        lanes = self.lanes.of(name)
        if not engine.accepts:
            lanes = [lane for lane in lanes if self._is_last(lane)]
        best = self._best((lane.propose(name) for lane in lanes), engine)
        if best is None and self._may_lend(name):
            best = self._best((lane.lend(name) for lane in lanes), engine)
        return best

    def _may_lend(self, name: WorkerId) -> bool:
        """Return whether clients are due, and none of them waits for this engine, here or elsewhere.

        No client waits elsewhere for one that drains.
        """
        deficits = self.deficits
        if deficits is None or deficits.is_dry:
            return False
        return not (self._engines[name].accepts and deficits.is_due_elsewhere(name))

    def _best(self, tickets: Iterable[Ticket | None], engine: Engine) -> Ticket | None:
        """Return the best of the lanes' proposals: as within a lane, the longest match, then credit.

        By credit alone where lanes have accounts of their own.
        """
        found = [ticket for ticket in tickets if ticket is not None]
        if len(found) < 2:
            return found[0] if found else None
        return max(found, key=lambda ticket: self._precedence(ticket, engine))

    def _precedence(self, ticket: Ticket, engine: Engine) -> tuple[int, int, int]:
        assert isinstance(ticket.lane, Lane) and ticket.scheduled is not None
        assert engine.view is not None
        matched = 0
        if self.deficits is not None:
            units = engine.view.match_len(ticket.request.prompt)
            matched = self._placement.tokens(ticket, units) // _NEAR
        credit = ticket.lane.scheduler.credit(ticket.scheduled.client)
        return matched, credit, -ticket.request.order

    def _is_last(self, lane: Lane) -> bool:
        """Return whether no engine of the lane accepts requests, so that one that drains must."""
        return not any(self._engines[name].is_open for name in lane.engines)

    def _note_capacity(self, name: WorkerId, engine: Engine) -> None:
        """Record whether the engine can be sent one more ticket at once."""
        if engine.limit is not None and engine.limit.has_capacity and engine.is_open:
            self._with_capacity[name] = None
        else:
            self._with_capacity.pop(name, None)

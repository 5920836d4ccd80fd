"""A lane: waiting tickets that the same engines may take, in the order of one scheduler for all of them."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from itertools import islice

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.fair_queue import FairQueue
from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.ledgers.shared_deficits import SharedDeficits
from fairhit.core.request import ClientId, Request, RequestId, WorkerId
from fairhit.core.waiting.fleet import FleetCaches
from fairhit.core.waiting.fleet_trie import Finder
from fairhit.dispatch.ticket import Ticket
from fairhit.errors import QueueFull
from fairhit.policies.shared import DLPMShared, FairShared

# Clients examined in rotation where none of a lane's is due.
_CLIENTS_EXAMINED = 4


class EngineView(BlockCache):
    """The units that an engine has cached. They differ in size: their tokens are estimated, or counted.

    The units are those of the prompts: chunks of text, or blocks of tokens. All texts are cut at the same
    positions, so more matched chunks mean more matched text: policies see a block size of 1 and order the
    requests as they would by tokens.
    """

    def __init__(self, prefix_len: Callable[[int], int]) -> None:
        super().__init__(block_size=1)
        self._tokens = prefix_len

    def prefix_len(self, units: int, /) -> int:
        """Return the tokens in the first `units` units of a prompt, as estimated now. O(1)."""
        return self._tokens(units)


# Makes a scheduler over the engines' caches, with the deficits of other lanes if their policy shares them.
MakeScheduler = Callable[[FleetCaches, SharedDeficits | None], FairQueue]


class Lane:
    """Tickets for the same engines, waiting and in flight."""

    def __init__(self, engines: frozenset[WorkerId], finder: Finder) -> None:
        self.engines = engines
        self._finder = finder
        self._views: dict[WorkerId, EngineView] = {}
        self._caches = FleetCaches(finder=finder)
        self._tickets: dict[RequestId, Ticket] = {}
        self._ring: OrderedDict[ClientId, None] = OrderedDict()  # clients that wait, in rotation

    def schedule(self, make: MakeScheduler, ledger: SharedDeficits | None) -> None:
        """Hand the waiting tickets to a new scheduler. O(tickets * log tickets).

        Deficits are forgotten, and tickets in flight are charged nothing more.
        """
        self.close()
        self._caches = FleetCaches(finder=self._finder)
        for name, view in self._views.items():
            self._caches.add_engine(name, view)
        self.scheduler = make(self._caches, ledger)
        for ticket in self._tickets.values():
            ticket.scheduled = None
        for ticket in self.waiting():
            ticket.scheduled = self._schedule(ticket.request)

    def close(self) -> None:
        """Follow the engines' caches no longer. O(anchors)."""
        for name in self._views:
            self._caches.remove_engine(name)

    def add_engine(self, name: WorkerId, view: EngineView) -> None:
        """Include an engine of the lane that is up. O(what it holds of the waiting prompts)."""
        self._views[name] = view
        self._caches.add_engine(name, view)

    def remove_engine(self, name: WorkerId) -> None:
        """Exclude an engine that is down. O(its anchors)."""
        del self._views[name]
        self._caches.remove_engine(name)

    def __len__(self) -> int:
        """Return the number of waiting tickets. O(1)."""
        return len(self.scheduler)

    @property
    def is_idle(self) -> bool:
        """True if no ticket of the lane waits or is in flight."""
        return not self._tickets

    def waiting(self) -> list[Ticket]:
        """Return the waiting tickets, the oldest first. O(tickets * log tickets)."""
        found = [ticket for ticket in self._tickets.values() if not ticket.worker]
        return sorted(found, key=lambda ticket: ticket.request.order)

    def clients(self, most: int) -> list[ClientId]:
        """Return up to `most` clients that wait. O(clients returned)."""
        return list(islice(self._ring, most))

    def enter(self, ticket: Ticket) -> None:
        """Add a ticket that waits. O(prompt + log waiting)."""
        ticket.lane = self
        self._tickets[ticket.request.id] = ticket
        ticket.scheduled = self._schedule(ticket.request)

    def leave(self, ticket: Ticket) -> None:
        """Remove a ticket that waits. O(log waiting)."""
        assert ticket.scheduled is not None
        self.scheduler.cancel(ticket.scheduled)
        self.forget(ticket)

    def propose(self, name: WorkerId) -> Ticket | None:
        """Return the ticket that the policy admits next at the engine `name`; None if no client is due."""
        self._caches.at(name)
        self.scheduler.begin_pass()
        request = self.scheduler.propose()
        return None if request is None else self._tickets[request.id]

    def lend(self, name: WorkerId) -> Ticket | None:
        """Return a ticket of a client that is not due, where those that are due wait for other engines.

        That of the client with the most credit, of the few that have not been examined for longest.
        """
        policy = self.scheduler.policy
        if not isinstance(policy, DLPMShared | FairShared):
            return None
        few = list(islice(self._ring, _CLIENTS_EXAMINED))
        if not few:
            return None
        for client in few:
            self._ring.move_to_end(client)
        self._caches.at(name)
        request = policy.lend(max(few, key=self.scheduler.credit))
        return None if request is None else self._tickets[request.id]

    def admit(self, ticket: Ticket) -> None:
        """Charge a ticket that is sent. O(log clients)."""
        assert ticket.scheduled is not None
        self.scheduler.admit(ticket.scheduled, extend_len=ticket.extend_len)
        self._left(ticket.scheduled.client)

    def emitted(self, ticket: Ticket) -> None:
        """Charge the outputs that were counted since the last call. O(log clients)."""
        more = ticket.output_len - ticket.charged_len
        if more > 0 and ticket.scheduled is not None:
            ticket.charged_len = ticket.output_len
            self.scheduler.decode(ticket.scheduled, more)

    def ended(self, ticket: Ticket, *, extend_len: int, finished: bool) -> None:
        """Replace the estimate by `extend_len` computed tokens, 0 for nothing served. O(log waiting)."""
        if ticket.scheduled is not None:
            if extend_len:
                self.emitted(ticket)
            input_len = extend_len and extend_len + ticket.matched_len
            self.scheduler.correct(ticket.scheduled, input_len=input_len, extend_len=extend_len)
            end = self.scheduler.finish if finished else self.scheduler.cancel
            end(ticket.scheduled)
        self.forget(ticket)

    def forget(self, ticket: Ticket) -> None:
        """Drop a ticket that neither waits here nor is in flight any more. O(1)."""
        if ticket.scheduled is not None:
            self._left(ticket.scheduled.client)
        del self._tickets[ticket.request.id]
        ticket.lane = ticket.scheduled = None

    def _schedule(self, request: Request) -> Request:
        """Add `request` to the scheduler; if its table of clients is full, as a request of OTHER."""
        try:
            self.scheduler.add(request)
        except QueueFull:
            request = replace(request, client=OTHER)
            self.scheduler.add(request)
        self._ring.setdefault(request.client)
        return request

    def _left(self, client: ClientId) -> None:
        if not self.scheduler.waiting(client):
            self._ring.pop(client, None)

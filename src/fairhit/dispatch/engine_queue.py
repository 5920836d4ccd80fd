"""The gateway's queue for one engine: a scheduler over the gateway's view of that engine's cache.

The view's units are those of the prompts: chunks of text, or blocks of tokens. Chunks differ in size,
but all texts are cut at the same positions, so more matched chunks mean more matched text: the policies
see a block size of 1 and order the requests as they would by tokens. A policy that compares matches with
lengths in tokens (`fair`) asks the view how many tokens a match has.
"""

from collections.abc import Callable
from dataclasses import replace

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.fair_queue import FairQueue
from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.request import Request, RequestId, Unit
from fairhit.dispatch.concurrency_limit import ConcurrencyLimit
from fairhit.dispatch.ticket import Ticket, TicketState
from fairhit.dispatch.ticket_queues import TicketQueues
from fairhit.errors import QueueFull


class EngineView(BlockCache):
    """The units that an engine has cached. They differ in size: their tokens are estimated, or counted."""

    def __init__(self, prefix_len: Callable[[int], int]) -> None:
        super().__init__(block_size=1)
        self._tokens = prefix_len

    def prefix_len(self, units: int, /) -> int:
        """Return the tokens in the first `units` units of a prompt, as estimated now. O(1)."""
        return self._tokens(units)


MakeScheduler = Callable[[EngineView], FairQueue]


class EngineQueue:
    """Tickets assigned or sent to one engine, in the order of its scheduler; implements `TicketObserver`."""

    def __init__(
        self, *, make: MakeScheduler, limit: ConcurrencyLimit, prefix_len: Callable[[int], int]
    ) -> None:
        self.view = EngineView(prefix_len)
        self.scheduler = make(self.view)
        self.limit = limit
        self.waiting = TicketQueues()
        self.evictions = 0
        self._tickets: dict[RequestId, Ticket] = {}

    # -- waiting tickets

    def assign(self, ticket: Ticket) -> None:
        """Add `ticket` to the waiting tickets. O(prompt + log waiting)."""
        self._enter(ticket)
        self.waiting.add(ticket)

    def unassign(self, ticket: Ticket) -> None:
        """Remove `ticket` from the waiting tickets. O(log waiting)."""
        assert ticket.scheduled is not None
        self.waiting.remove(ticket)
        self.scheduler.cancel(ticket.scheduled)
        self._forget(ticket)

    def next(self) -> Ticket | None:
        """Return the ticket that the policy admits next.

        None if no ticket waits here, or if clients that wait at other gateways have precedence.
        """
        if not self.waiting:
            return None
        self.scheduler.begin_pass()
        request = self.scheduler.propose()
        return None if request is None else self._tickets[request.id]

    # -- tickets in flight

    def matched(self, ticket: Ticket) -> int:
        """Return the number of leading prompt units that the engine has cached or is computing. O(prompt)."""
        return self.view.match_len(ticket.request.prompt)

    def send(self, ticket: Ticket) -> None:
        """Admit `ticket`, charged for the prompt tokens that the view lacks. O(prompt)."""
        self.waiting.remove(ticket)
        self._admit(ticket)

    def send_only(self, ticket: Ticket, matched_len: int) -> bool:
        """Do as `assign`, `next` and `send` where no ticket waits; False if it has to wait. O(prompt)."""
        self._enter(ticket)
        self.scheduler.begin_pass()
        if self.scheduler.propose() is None:
            self.waiting.add(ticket)
            return False
        ticket.matched_len = matched_len
        self._admit(ticket)
        return True

    def started(self, ticket: Ticket) -> None:
        """Record that the engine has begun to answer `ticket`. O(1) amortised."""
        self.limit.started(ticket.number)

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
        answered = finished or ticket.state is TicketState.STARTED
        self.limit.ended(ticket.number, answered=answered)
        self._forget(ticket)

    # -- changes

    def switch(self, make: MakeScheduler) -> None:
        """Hand the waiting tickets to a new scheduler. O(tickets * log tickets).

        Deficits are forgotten, and tickets in flight are charged nothing more.
        """
        self.view.unlisten()
        self.scheduler = make(self.view)
        for ticket in self._tickets.values():
            ticket.scheduled = None
        for ticket in sorted(self.waiting, key=lambda ticket: ticket.request.order):
            ticket.scheduled = self._schedule(ticket.request)

    def evicted(self, unit: Unit) -> None:
        """Remove `unit` from the view: the engine has probably evicted it. O(waiting on it)."""
        self.evictions += 1
        if unit in self.view:
            self.view.evict(unit)

    def clear(self) -> None:
        """Forget the engine's cache and what was learnt of its concurrency, not the deficits. O(view)."""
        self.view.clear()
        self.evictions += 1
        self.limit.restart()

    def _enter(self, ticket: Ticket) -> None:
        ticket.queue, ticket.evictions = self, self.evictions
        self._tickets[ticket.request.id] = ticket
        ticket.scheduled = self._schedule(ticket.request)

    def _admit(self, ticket: Ticket) -> None:
        assert ticket.scheduled is not None
        self.scheduler.admit(ticket.scheduled, extend_len=ticket.extend_len)
        ticket.number = self.limit.sent(streams=ticket.streams)
        # No more than the prefix index holds: its evictions are reported, and the view would keep the rest.
        self.view.learn(ticket.request.prompt[: ticket.indexed])

    def _schedule(self, request: Request) -> Request:
        """Add `request` to the scheduler; if its table of clients is full, as a request of OTHER."""
        try:
            self.scheduler.add(request)
        except QueueFull:
            request = replace(request, client=OTHER)
            self.scheduler.add(request)
        return request

    def _forget(self, ticket: Ticket) -> None:
        del self._tickets[ticket.request.id]
        ticket.queue = ticket.scheduled = None

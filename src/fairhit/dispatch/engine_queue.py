"""What waits for one engine at the gateway: a scheduler over the gateway's view of that engine's cache.

The view's units are those of the prompts: chunks of text, or blocks of tokens. Chunks are of several
sizes, but all texts are cut at the same places, so more chunks matched is more text matched: the
policies see a block size of 1, and their order is the same as by tokens.
"""

from collections.abc import Callable
from dataclasses import replace

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.client_table import OTHER
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request, RequestId, Unit
from fairhit.dispatch.concurrency_limit import ConcurrencyLimit
from fairhit.dispatch.ticket import Ticket, TicketState
from fairhit.dispatch.ticket_queues import TicketQueues
from fairhit.errors import QueueFull

MakeScheduler = Callable[[BlockCache], FairQueue]


class EngineQueue:
    """The tickets bound to one engine, those sent there, and what each client was charged for them."""

    def __init__(self, *, make: MakeScheduler, window: ConcurrencyLimit) -> None:
        self.view = BlockCache(block_size=1)
        self.scheduler = make(self.view)
        self.window = window
        self.waiting = TicketQueues()
        self.evictions = 0
        self._tickets: dict[RequestId, Ticket] = {}

    # -- those that wait

    def bind(self, ticket: Ticket) -> None:
        """It waits here. O(prompt + log waiting)."""
        self._enter(ticket)
        self.waiting.add(ticket)

    def unbind(self, ticket: Ticket) -> None:
        """It goes elsewhere, or away. O(log waiting)."""
        assert ticket.booked is not None
        self.waiting.remove(ticket)
        self.scheduler.cancel(ticket.booked)
        self._forget(ticket)

    def next(self) -> Ticket | None:
        """Whose turn it is. None: nobody waits here, or it is the turn of those who wait elsewhere."""
        if not self.waiting:
            return None
        self.scheduler.begin_pass()
        request = self.scheduler.propose()
        return None if request is None else self._tickets[request.id]

    # -- those that are sent

    def matched(self, ticket: Ticket) -> int:
        """How many leading units of its prompt the engine has cached, or will have. Pure. O(prompt)."""
        return self.view.match_len(ticket.request.prompt)

    def send_lone(self, ticket: Ticket, matched_len: int) -> bool:
        """As `bind`, `next` and `send` of all that waits here; False if it waits on. O(prompt)."""
        self._enter(ticket)
        self.scheduler.begin_pass()
        if self.scheduler.propose() is None:
            self.waiting.add(ticket)
            return False
        ticket.matched_len = matched_len
        self._sent(ticket)
        return True

    def send(self, ticket: Ticket) -> None:
        """It goes to the engine, charged for the prompt tokens that the view lacks. O(prompt)."""
        self.waiting.remove(ticket)
        self._sent(ticket)

    def emitted(self, ticket: Ticket) -> None:
        """Charge the outputs counted so far that were not. O(log clients)."""
        more = ticket.output_len - ticket.charged_len
        if more > 0 and ticket.booked is not None:
            ticket.charged_len = ticket.output_len
            self.scheduler.decode(ticket.booked, more)

    def ended(self, ticket: Ticket, *, extend_len: int, finished: bool) -> None:
        """It has ended, having got this much: 0 for nothing. O(log waiting)."""
        if ticket.booked is not None:
            if extend_len:
                self.emitted(ticket)
            input_len = extend_len and extend_len + ticket.matched_len
            self.scheduler.correct(ticket.booked, input_len=input_len, extend_len=extend_len)
            end = self.scheduler.finish if finished else self.scheduler.cancel
            end(ticket.booked)
        answered = finished or ticket.state is TicketState.STARTED
        self.window.ended(ticket.number, answered=answered)
        self._forget(ticket)

    # -- what changes

    def switch(self, make: MakeScheduler) -> None:
        """Another policy takes over what waits. O(tickets * log tickets).

        Debts are forgotten, and who runs is charged nothing more.
        """
        self.view.unlisten()
        self.scheduler = make(self.view)
        for ticket in self._tickets.values():
            ticket.booked = None
        for ticket in sorted(self.waiting, key=lambda ticket: ticket.request.order):
            ticket.booked = self._book(ticket.request)

    def evicted(self, unit: Unit) -> None:
        """The engine has probably not cached it any more; who waits may have been to bring it."""
        self.evictions += 1
        if unit in self.view:
            self.view.evict(unit)

    def lose(self) -> None:
        """The engine's cache is gone, and what was learnt of it. O(view). Debts are not."""
        self.view.clear()
        self.evictions += 1
        self.window.restart()

    def _enter(self, ticket: Ticket) -> None:
        ticket.queue, ticket.evictions = self, self.evictions
        self._tickets[ticket.request.id] = ticket
        ticket.booked = self._book(ticket.request)

    def _sent(self, ticket: Ticket) -> None:
        assert ticket.booked is not None
        self.scheduler.admit(ticket.booked, extend_len=ticket.extend_len)
        ticket.number = self.window.sent(streams=ticket.streams)
        # No more than the index holds, which says when it is forgotten: the view would keep the rest.
        self.view.learn(ticket.request.prompt[: ticket.held])

    def _book(self, request: Request) -> Request:
        """As the scheduler knows it: where its table of clients is full, one of `other`'s."""
        try:
            self.scheduler.add(request)
        except QueueFull:
            request = replace(request, client=OTHER)
            self.scheduler.add(request)
        return request

    def _forget(self, ticket: Ticket) -> None:
        del self._tickets[ticket.request.id]
        ticket.queue = ticket.booked = None

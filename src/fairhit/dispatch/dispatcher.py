"""The gateway's state machine: what happened goes in, where to send a request comes out. No I/O.

A request is a *ticket* from its arrival to its end. Every ticket ends exactly once: finished by its
engine, refused by it, given up by its caller, or failed for want of an engine that could serve it.
What it was charged at dispatch is then replaced by what it really got (DESIGN 3.4).
"""

from collections.abc import Callable, Iterable, Sequence

from fairhit.core.policy import Router
from fairhit.core.request import ClientId, Request, Unit, WorkerId
from fairhit.core.service import Weights
from fairhit.dispatch.accounting.client_ledger import ClientLedger
from fairhit.dispatch.accounting.estimate_errors import EstimateErrors
from fairhit.dispatch.accounting.reports import Reports
from fairhit.dispatch.engine import Engine, EngineTable, TrialGate
from fairhit.dispatch.placement import Placement
from fairhit.dispatch.queue import GatewayQueue
from fairhit.dispatch.queue_rules import QueueRules
from fairhit.dispatch.ticket import Ticket, TicketState, Usage
from fairhit.errors import EngineFailed, NoEngine, QueueFull
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex
from fairhit.routers.prefix_index.interface import Admitting, PrefixIndex
from fairhit.routers.prefix_index.precise import PrecisePrefixIndex


class Dispatcher:
    """Owns the router, the prefix index, the tickets and the clients' accounts.

    With `rules` requests wait here until an engine has room; `on_ready` then hears of each that is to
    be sent, except of one that its own `arrive` or `failed` hands back to be sent.
    """

    def __init__(
        self,
        *,
        router: Router,
        index: PrefixIndex,
        max_in_flight: int = 1024,
        max_sent: int | None = None,
        named: int = 1000,
        rules: QueueRules | None = None,
        on_ready: Callable[[Ticket], None] | None = None,
    ) -> None:
        self.router = router
        self.index = index
        self.placing = Placement(router=router, index=index)
        self._admitting = index if isinstance(index, Admitting) else None
        self.scale = self.placing.scale
        self.estimates = EstimateErrors()
        self._reports = Reports(scale=self.scale, estimates=self.estimates)
        self.ledger = ClientLedger(named=named)
        self.fleet = EngineTable()
        self.workers = self.fleet.workers
        self.queueing = GatewayQueue(
            fleet=self.fleet, placing=self.placing, rules=rules or QueueRules()
        )
        self.queueing.max_sent = max_sent
        self.retries = 0
        self.on_ready = on_ready
        self._queues = rules is not None
        self._max_in_flight = max_in_flight
        self._reserved: dict[ClientId, int] = {}  # no client has a zero here
        if isinstance(index, ApproximatePrefixIndex | PrecisePrefixIndex):
            index.follow(self)

    # -- requests

    def reserve(self, client: ClientId) -> None:
        """Keep a place for a request of `client` that has yet to arrive. O(1). Raises QueueFull."""
        self._check_room(client)
        self._reserved[client] = self._reserved.get(client, 0) + 1

    def release(self, client: ClientId) -> None:
        """The request that a place was kept for arrives now, or never. O(1)."""
        left = self._reserved.pop(client) - 1
        assert left >= 0, client
        if left:
            self._reserved[client] = left

    def check_limit(self) -> None:
        """Whether a request may come while so many are in flight, whosever it is. O(1). Raises QueueFull."""
        if self.queueing.is_full and not (self._queues and self.queueing.rules.queue_size):
            raise QueueFull("too many requests are in flight, and none may wait")

    def arrive(
        self,
        request: Request,
        *,
        model: str | None,
        text_len: int,
        streams: bool = False,
        answers: int = 1,
    ) -> Ticket:
        """The ticket for `request`: WAITING, to be sent now, or QUEUED. O(chunks of the prompt + workers).

        `answers`: how many it asks for, 0 if they have no outputs; `streams`: their outputs are seen.

        Raises QueueFull, NotFound (no engine has the model) or NoEngine.
        """
        self.check_limit()
        self._check_room(request.client)
        candidates = self.fleet.serving(model)
        self.queueing.check_room(request.client)
        ticket = Ticket(request, model, text_len, streams=streams, answers=answers)
        self.queueing.place(ticket, candidates)
        if ticket.state is TicketState.QUEUED and not self.queueing.rules.queue_size:
            self.queueing.leave(ticket)
            self._tell()
            raise QueueFull("no engine has room, and nothing may wait")
        self.ledger.begin(request.client)
        self._tell(ticket)
        return ticket

    def started(self, ticket: Ticket) -> None:
        """The caller gets the first byte of the answer: this counts as admission. O(1)."""
        assert ticket.state is TicketState.WAITING, ticket
        ticket.state = TicketState.STARTED
        self._admitted(ticket)
        if ticket.queue is not None:
            ticket.queue.window.started(ticket.number)
            self.changed(ticket.worker)

    def emitted(self, ticket: Ticket, output_len: int) -> None:
        """So many outputs have passed by: for long answers, a few times before the end. O(log clients)."""
        ticket.output_len = output_len
        if ticket.queue is not None:
            ticket.queue.emitted(ticket)

    def finished(self, ticket: Ticket, usage: Usage | None, *, ran_us: int) -> None:
        """The engine answered in full, `ran_us` after it was asked. O(1)."""
        self._admitted(ticket)
        extend_len = ticket.estimated_len = ticket.extend_len
        worker = self.workers.get(ticket.worker)
        if usage is not None:
            extend_len = self._reports.learn(ticket, worker, usage)
            if worker is not None and ticket.answers:
                worker.pace.learn(ran_us=ran_us, outputs=ticket.output_len // ticket.answers)
        self._end(ticket, extend_len=extend_len, finished=True)

    def remember(self, name: WorkerId, chunks: Sequence[Unit]) -> None:
        """`name` has these chunks cached too: the answer, with which the next turn begins."""
        worker = self.workers.get(name)
        if worker is not None and worker.up:
            held = self.index.insert(name, chunks)
            if worker.queue is not None:
                worker.queue.view.learn(chunks[:held])

    def refused(self, ticket: Ticket) -> None:
        """The engine answered that it will not serve this request: nothing is charged."""
        self._end(ticket, extend_len=0)

    def gone(self, ticket: Ticket, *, ran_us: int) -> None:
        """The caller left, `ran_us` after its engine was asked; 0: no engine has been. O(log waiting).

        The ticket stays charged for what the engine can have done: the prompt, and the outputs that were
        seen, or where none are seen before the answer is complete, as many as the time was enough for.
        """
        worker = self.workers.get(ticket.worker)
        if ran_us and not ticket.streams and worker is not None:
            outputs = ticket.answers * worker.pace.outputs(ran_us)
            ticket.output_len = max(ticket.output_len, min(outputs, ticket.request.max_tokens))
        self._end(ticket, extend_len=ticket.extend_len if ran_us else 0)

    def failed(self, ticket: Ticket) -> None:
        """Its engine failed. Afterwards it is WAITING at the next to try, the charge moved there, or QUEUED.

        Raises EngineFailed, NoEngine or NotFound if the ticket has ended instead: its answer had
        begun, every engine was tried once, or none has the model any more.
        """
        if ticket.state is TicketState.STARTED:
            self._end(ticket, extend_len=ticket.extend_len)
            raise EngineFailed("the engine failed while answering")
        sent = ticket.state is TicketState.WAITING
        if sent:
            ticket.tried += (ticket.worker,)
        left = self.fleet.untried(ticket)
        if not left:
            self._end(ticket, extend_len=0)
            if sent and self.ready():
                raise EngineFailed("the engine failed, and there is no other left to try")
            self.fleet.serving(ticket.model)  # says so where none has the model
            raise NoEngine("no engine is ready")
        failed = ticket.worker
        if sent:
            self._leave_worker(ticket, extend_len=0)
            self.placing.withdraw(ticket)
            self.retries += 1
        else:
            self.queueing.leave(ticket)
        self.queueing.place(ticket, left)
        self.queueing.changed(failed)
        self._tell(ticket)

    def can_retry(self, ticket: Ticket) -> bool:
        """Whether `failed` would find another engine. Pure."""
        return ticket.state is TicketState.WAITING and bool(self.fleet.others(ticket))

    # -- workers

    def worker_up(self, name: WorkerId, *, models: Iterable[str] | None = None) -> list[Ticket]:
        """`name` is up with these; tickets that wait in vain for others, to be `failed`. O(waiting)."""
        worker = self.workers.setdefault(name, Engine())
        self.fleet.set_models(name, models)
        stuck = self.queueing.remodelled(name) if worker.up else []
        if not worker.up:
            worker.up = True
            self.fleet.up += 1
            worker.reports_cached = None  # it may be another build, or have other flags
            self.router.add_worker(name)
            self.index.add_worker(name)
            self.queueing.open(name, queues=self._queues)
        self._tell()
        return stuck

    def worker_down(self, name: WorkerId) -> list[Ticket]:
        """`name` is lost with its cache; the tickets it had not begun to answer, to be `failed`.

        And those that wait here, and now in vain. O(waiting).
        """
        worker = self.workers.setdefault(name, Engine())
        self.fleet.changed()
        waiting = [ticket for ticket in worker.tickets if ticket.state is TicketState.WAITING]
        if worker.up:
            worker.up = False
            self.fleet.up -= 1
            self.router.remove_worker(name)
            self.index.drop_worker(name)
            waiting += self.queueing.close(name, lost=True)
            self._tell()
        return sorted(waiting, key=lambda ticket: ticket.request.order)

    def forget_worker(self, name: WorkerId) -> list[Ticket]:
        """As `worker_down`, and `name` is not expected back."""
        waiting = self.worker_down(name)
        del self.workers[name]
        self.estimates.forget(name)
        return waiting

    def set_taking(self, name: WorkerId, *, taking: bool, gate: TrialGate | None = None) -> None:
        """Whether `name` gets requests while it is up, through `gate`; it keeps its own. O(waiting)."""
        worker = self.workers[name]
        if worker.takes == taking and worker.gate is gate is None:  # a gate may have reopened
            return
        worker.takes, worker.gate = taking, gate
        self.fleet.changed()
        if worker.up and taking:
            self.queueing.changed(name)
        elif worker.up:
            self.queueing.close(name, lost=False)
        self._tell()

    def set_queueing(self, name: WorkerId, *, queues: bool) -> None:
        """Whether the requests for `name`, which is up, wait here, or there, for it shares fairly."""
        self.queueing.open(name, queues=queues)
        self._tell()

    def set_scheduler(self, name: str) -> None:
        """Queue under another policy; debts are forgotten. O(waiting). Raises ConfigError if it cannot."""
        self.queueing.switch(name)
        self._tell()

    def observed(self, name: WorkerId, *, running: int, waiting: int) -> None:
        """The engine says how many requests run and wait in it. O(1) and what is sent for it."""
        worker = self.workers.get(name)
        if worker is not None and worker.queue is not None and worker.up:
            worker.load_problem = None
            worker.queue.window.observed(running=running, waiting=waiting)
            self.changed(name)

    def unobserved(self, name: WorkerId, problem: str) -> None:
        """It has not said so, for this reason; this never stops anything. O(1) and what is sent for it."""
        worker = self.workers.get(name)
        if worker is None or worker.queue is None:
            return
        worker.load_problem = problem
        if worker.queue.window.is_observed:
            worker.queue.window.unobserved()
            self.changed(name)

    def changed(self, name: WorkerId) -> None:
        """Something about this engine or its clients' credit. O(1) and what is sent for it."""
        self.queueing.changed(name)
        self._tell()

    def stored(self, worker: WorkerId, block: Unit) -> None:
        """An engine's own events say so: see `TokenFollower`."""
        queue = self.workers[worker].queue
        if queue is not None:
            queue.view.learn((block,))

    def evicted(self, worker: WorkerId, chunk: Unit) -> None:
        """The index says so: see `Follower`."""
        queue = self.workers[worker].queue
        if queue is not None:
            queue.evicted(chunk)

    def change(
        self, *, max_in_flight: int, weights: Weights | None, max_sent: int | None = None
    ) -> None:
        """Go on by other limits and, where they are given, other shares. O(waiting).

        What a client owes the others for a worker stays; the schedulers of what waits here start anew.
        """
        self._max_in_flight = max_in_flight
        self.queueing.limit_sent(max_sent)
        self._tell()
        if weights is None:
            return
        if isinstance(self.router, D2LPM):
            self.router.change_weights(weights)
        self.queueing.change_weights(weights)
        self._tell()

    def ready(self) -> bool:
        """Whether any engine can be asked. O(workers)."""
        return any(worker.is_open for worker in self.workers.values())

    # -- inside

    def _check_room(self, client: ClientId) -> None:
        in_flight = self.ledger.in_flight(client) + self._reserved.get(client, 0)
        if in_flight >= self._max_in_flight:
            raise QueueFull(f"you have {in_flight} requests in flight, and may have no more")

    def _tell(self, own: Ticket | None = None) -> None:
        """The host hears what is to be sent, but for its own ticket, which it has at hand."""
        if own is not None:
            own.is_told = True
        if not self.queueing.ready:
            return
        ready, self.queueing.ready = self.queueing.ready, []
        for ticket in ready:
            if not ticket.is_told and ticket.state is TicketState.WAITING:
                ticket.is_told = True
                assert self.on_ready is not None, "who queues hears what is to be sent"
                self.on_ready(ticket)

    def _admitted(self, ticket: Ticket) -> None:
        if self._admitting is not None:
            self._admitting.admitted(ticket.worker, ticket.request.prompt)

    def _end(self, ticket: Ticket, *, extend_len: int, finished: bool = False) -> None:
        """Settle: `extend_len` 0 says that nothing was served."""
        assert ticket.state is not TicketState.ENDED, ticket
        cached_len, output_len = ticket.matched_len, ticket.output_len
        if not extend_len:
            cached_len = output_len = 0
        if ticket.state is TicketState.QUEUED:
            self.queueing.leave(ticket)
        else:
            self.router.settle(
                ticket.request, ticket.worker, extend_len=extend_len, output_len=output_len
            )
            self._leave_worker(ticket, extend_len=extend_len, finished=finished)
            if self._queues:
                self.queueing.changed(ticket.worker)
        ticket.state, ticket.settled_len = TicketState.ENDED, extend_len
        self.ledger.end(
            ticket.request.client,
            extend_len=extend_len,
            cached_len=cached_len,
            output_len=output_len,
        )
        self._tell()

    def _leave_worker(self, ticket: Ticket, *, extend_len: int, finished: bool = False) -> None:
        self.queueing.sent -= 1
        assert self.queueing.sent >= 0, "no more end than are sent"
        if ticket.queue is not None:
            ticket.queue.ended(ticket, extend_len=extend_len, finished=finished)
        worker = self.workers.get(ticket.worker)
        if worker is not None:
            worker.leave(ticket)

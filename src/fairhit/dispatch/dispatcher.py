"""The gateway's core without I/O: events go in, and which request is sent to which engine comes out.

A request is a *ticket* from its arrival to its end. Every ticket ends exactly once: finished by its
engine, refused by it, cancelled by its client, or failed because no engine could serve it. What it was
charged when it was sent is then replaced by what it really took (DESIGN 3.4).
"""

from collections.abc import Callable, Iterable, Sequence

from fairhit.core.policy import Router
from fairhit.core.request import ClientId, Request, Unit, WorkerId
from fairhit.core.service import Weights
from fairhit.dispatch.accounting.client_ledger import ClientLedger
from fairhit.dispatch.accounting.consumption import Consumption
from fairhit.dispatch.accounting.estimate_errors import EstimateErrors
from fairhit.dispatch.accounting.reports import Reports
from fairhit.dispatch.delay import OnHold
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
    """Routes requests over engines, queues them, and keeps the clients' and engines' accounts.

    With `rules`, requests wait here until an engine has capacity; `on_ready` is then called with each ticket
    that is to be sent, except with one that its own `arrive` or `failed` returns ready to be sent.
    `on_hold`, where given, is called with each ticket that is held for an engine, and with the microseconds
    after which to call `hold_over` with it. `max_in_flight` limits a client's requests, `max_sent` those at
    all engines together.
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
        on_hold: OnHold | None = None,
    ) -> None:
        self.router = router
        self.index = index
        self.placement = Placement(router=router, index=index)
        self._admitting = index if isinstance(index, Admitting) else None
        self.scale = self.placement.scale
        self.estimates = EstimateErrors()
        self.consumption = Consumption()
        self._reports = Reports(scale=self.scale, estimates=self.estimates)
        self.ledger = ClientLedger(named=named)
        self.engine_table = EngineTable()
        self.engines = self.engine_table.engines
        self.queue = GatewayQueue(
            engines=self.engine_table,
            placement=self.placement,
            ledger=self.ledger,
            rules=rules or QueueRules(),
            queues=rules is not None,
            max_sent=max_sent,
            on_hold=on_hold,
        )
        self.retries = 0
        self.on_ready = on_ready
        self._max_in_flight = max_in_flight
        if isinstance(index, ApproximatePrefixIndex | PrecisePrefixIndex):
            index.follow(self)

    # -- requests

    def reserve(self, client: ClientId) -> None:
        """Count a request of `client` that has yet to arrive towards its limit. O(1). Raises QueueFull."""
        self._check_client(client)
        self.ledger.reserve(client)

    def release(self, client: ClientId) -> None:
        """Undo one `reserve`: the request arrives now, or never. O(1)."""
        self.ledger.release(client)

    def check_limit(self) -> None:
        """Raise QueueFull if as many requests as allowed are in flight and none may wait. O(1)."""
        if self.queue.is_full and not (self.queue.queues and self.queue.rules.queue_size):
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
        """Return the ticket for `request`: WAITING, to be sent now, or QUEUED.

        `text_len`: bytes from which `request.input_len` was estimated, 0 if the tokens were counted;
        `answers`: sequences asked for, 0 if they have no outputs; `streams`: the answer is streamed.
        O(chunks of the prompt + engines).

        Raises QueueFull, NotFound (no engine serves the model) or NoEngine.
        """
        self.check_limit()
        self._check_client(request.client)
        candidates = self.engine_table.serving(model)
        self.queue.check_capacity(request.client)
        ticket = Ticket(request, model, text_len, streams=streams, answers=answers)
        self.queue.submit(ticket, candidates)
        if ticket.state is TicketState.QUEUED and not self.queue.rules.queue_size:
            self.queue.withdraw(ticket)
            self._notify()
            raise QueueFull("no engine has free capacity, and no request may wait")
        self.ledger.begin(request.client)
        self._notify(ticket)
        return ticket

    def started(self, ticket: Ticket) -> None:
        """Record the first byte of the answer, which counts as admission. O(1)."""
        assert ticket.state is TicketState.WAITING, ticket
        ticket.state = TicketState.STARTED
        self._admitted(ticket)
        engine = self.engines.get(ticket.worker)
        if engine is not None and engine.limit is not None:
            engine.limit.started(ticket.number)
            self.changed(ticket.worker)

    def emitted(self, ticket: Ticket, output_len: int) -> None:
        """Record the outputs streamed so far; for long answers, called a few times. O(log clients)."""
        ticket.output_len = output_len
        if ticket.lane is not None:
            ticket.lane.emitted(ticket)

    def finished(self, ticket: Ticket, usage: Usage | None, *, ran_us: int) -> None:
        """End `ticket`, which the engine answered in full `ran_us` after it was sent. O(1)."""
        self._admitted(ticket)
        extend_len = ticket.estimated_len = ticket.extend_len
        engine = self.engines.get(ticket.worker)
        if usage is not None:
            extend_len = self._reports.learn(ticket, engine, usage)
            if engine is not None and ticket.answers:
                engine.pace.learn(ran_us=ran_us, outputs=ticket.output_len // ticket.answers)
        self._end(ticket, extend_len=extend_len, finished=True)

    def remember(self, name: WorkerId, chunks: Sequence[Unit]) -> None:
        """Record that `name` has `chunks` cached, which end with an answer: a next turn begins with them."""
        engine = self.engines.get(name)
        if engine is not None and engine.up:
            indexed = self.index.insert(name, chunks)
            if engine.view is not None:
                engine.view.learn(chunks[:indexed])

    def refused(self, ticket: Ticket) -> None:
        """End `ticket`, which the engine refused to serve; nothing is charged."""
        self._end(ticket, extend_len=0)

    def cancelled(self, ticket: Ticket, *, ran_us: int) -> None:
        """End `ticket`, which its client cancelled `ran_us` after it was sent; 0: not sent. O(log waiting).

        It stays charged for what the engine can have done: the prompt, and the outputs that were
        streamed, or if the answer is not streamed, as many as fit in the time.
        """
        engine = self.engines.get(ticket.worker)
        if ran_us and not ticket.streams and engine is not None:
            outputs = ticket.answers * engine.pace.outputs(ran_us)
            ticket.output_len = max(ticket.output_len, min(outputs, ticket.request.max_tokens))
        self._end(ticket, extend_len=ticket.extend_len if ran_us else 0)

    def failed(self, ticket: Ticket) -> None:
        """Submit `ticket` to another engine after its engine failed: it is WAITING there, or QUEUED.

        Raises EngineFailed, NoEngine or NotFound if the ticket has ended instead: its answer had
        begun, every engine was tried once, or none serves the model any more.
        """
        if ticket.state is TicketState.STARTED:
            self._end(ticket, extend_len=ticket.extend_len)
            raise EngineFailed("the engine failed while answering")
        sent = ticket.state is TicketState.WAITING
        if sent:
            ticket.tried += (ticket.worker,)
        left = self.engine_table.untried(ticket)
        if not left:
            self._end(ticket, extend_len=0)
            if sent and self.ready():
                raise EngineFailed("the engine failed, and there is no other left to try")
            self.engine_table.serving(ticket.model)  # raises NotFound if no engine serves the model
            raise NoEngine("no engine is ready")
        failed = ticket.worker
        if sent:
            self._remove_from_engine(ticket, extend_len=0)
            self.placement.refund(ticket)
            self.retries += 1
        else:
            self.queue.withdraw(ticket)
        self.queue.submit(ticket, left)
        self.queue.changed(failed)
        self._notify(ticket)

    def can_retry(self, ticket: Ticket) -> bool:
        """Return whether `failed` would find another engine. Pure."""
        return ticket.state is TicketState.WAITING and bool(self.engine_table.others(ticket))

    # -- engines

    def engine_up(self, name: WorkerId, *, models: Iterable[str] | None = None) -> list[Ticket]:
        """Record that `name` is up and serves `models`, None: any.

        Returns the waiting tickets that no engine serves now, each of which must be `failed`. O(waiting).
        """
        engine = self.engines.setdefault(name, Engine())
        self.engine_table.set_models(name, models)
        if engine.up:
            stuck = self.queue.models_changed(name)
        else:
            engine.up = True
            self.engine_table.changed()
            self.engine_table.up += 1
            engine.reports_cached = None  # it may be another build, or have other flags
            self.router.add_worker(name)
            self.index.add_worker(name)
            stuck = self.queue.open(name)
        self._notify()
        return stuck

    def engine_down(self, name: WorkerId) -> list[Ticket]:
        """Record that `name` is lost with its cache.

        Returns the tickets that it had not begun to answer, and the waiting tickets that no engine serves
        now; each of them must be `failed`. O(waiting).
        """
        engine = self.engines.setdefault(name, Engine())
        self.engine_table.changed()
        stuck = [ticket for ticket in engine.tickets if ticket.state is TicketState.WAITING]
        if engine.up:
            engine.up = False
            self.engine_table.changed()
            self.engine_table.up -= 1
            self.router.remove_worker(name)
            self.index.drop_worker(name)
            stuck += self.queue.lose(name)
            self._notify()
        return sorted(stuck, key=lambda ticket: ticket.request.order)

    def remove_engine(self, name: WorkerId) -> list[Ticket]:
        """Do as `engine_down`, and forget the engine. O(waiting + clients)."""
        stuck = self.engine_down(name)
        del self.engines[name]
        self.estimates.forget(name)
        self.consumption.forget(name)
        self.ledger.forget_engine(name)
        return stuck

    def set_accepting(
        self, name: WorkerId, *, accepts: bool, gate: TrialGate | None = None
    ) -> None:
        """Send requests to `name` while it is up, limited by `gate`, or drain it. O(waiting)."""
        engine = self.engines[name]
        if engine.accepts == accepts and engine.gate is gate is None:  # a gate may have reopened
            return
        engine.accepts, engine.gate = accepts, gate
        self.engine_table.changed()
        if engine.up and accepts:
            self.queue.changed(name)
        elif engine.up:
            self.queue.drain(name)
        self._notify()

    def observed(
        self, name: WorkerId, *, running: int, waiting: int, free_len: int | None = None
    ) -> None:
        """Record how many requests run and wait in an engine, and the tokens that its memory has left.

        O(its tickets in flight) and the tickets sent for it. `free_len` None: the engine does not report it.
        """
        engine = self.engines.get(name)
        if engine is not None and engine.limit is not None and engine.up:
            if engine.room is not None:
                newest, pending_len = (
                    (0, 0) if free_len is None else engine.running_and_pending(running)
                )
                engine.room.reported(
                    free_len, newest=newest, pending_len=pending_len, waiting=waiting
                )
            engine.load_problem = None
            engine.limit.observed(running=running, waiting=waiting)
            self.changed(name)

    def unobserved(self, name: WorkerId, problem: str) -> None:
        """Record that an engine's load is unknown, and why. O(1) and the tickets sent for it."""
        engine = self.engines.get(name)
        if engine is None or engine.limit is None:
            return
        engine.load_problem = problem
        if engine.limit.is_observed:
            engine.limit.unobserved()
            if engine.room is not None:
                engine.room.restart()
            self.changed(name)

    def changed(self, name: WorkerId) -> None:
        """Send what a change at an engine, or of its clients' credit, allows. O(1) and the tickets sent."""
        self.queue.changed(name)
        self._notify()

    def hold_over(self, ticket: Ticket) -> None:
        """End the time for which `ticket` is held; nothing if it waits no longer. O(as `arrive`)."""
        self.queue.release(ticket)
        self._notify()

    def refill(self) -> None:
        """Send what a change of the clients' deficits allows. O(engines with capacity)."""
        self.queue.refill()
        self._notify()

    def stored(self, worker: WorkerId, block: Unit) -> None:
        """Enter a block that an engine's event reported into its view; see `TokenFollower`."""
        view = self.engines[worker].view
        if view is not None:
            view.learn((block,))

    def evicted(self, worker: WorkerId, chunk: Unit) -> None:
        """Remove a chunk that the index evicted from the engine's view; see `Follower`."""
        view = self.engines[worker].view
        if view is not None and chunk in view:
            view.evict(chunk)

    def ready(self) -> bool:
        """Return whether any engine can be sent a request. O(engines)."""
        return any(engine.is_open for engine in self.engines.values())

    # -- settings

    def set_scheduler(self, name: str) -> None:
        """Change the queue's policy; deficits are forgotten. O(waiting). Raises ConfigError."""
        self.queue.switch(name)
        self._notify()

    def change(
        self, *, max_in_flight: int, weights: Weights | None, max_sent: int | None = None
    ) -> None:
        """Change the limits and, unless None, the clients' weights. O(waiting).

        The router's deficits stay; with other weights those of the queue are forgotten.
        """
        self._max_in_flight = max_in_flight
        self.queue.limit_sent(max_sent)
        self._notify()
        if weights is None:
            return
        if isinstance(self.router, D2LPM):
            self.router.change_weights(weights)
        self.queue.change_weights(weights)
        self._notify()

    # -- inside

    def _check_client(self, client: ClientId) -> None:
        in_flight = self.ledger.in_flight(client) + self.ledger.reserved(client)
        if in_flight >= self._max_in_flight:
            raise QueueFull(f"you have {in_flight} requests in flight, and may have no more")

    def _notify(self, own: Ticket | None = None) -> None:
        """Call `on_ready` with the tickets to be sent, except with `own`, which the caller has."""
        if own is not None:
            own.is_notified = True
        if not self.queue.ready:
            return
        ready, self.queue.ready = self.queue.ready, []
        for ticket in ready:
            if not ticket.is_notified and ticket.state is TicketState.WAITING:
                ticket.is_notified = True
                assert self.on_ready is not None, "a dispatcher with rules needs on_ready"
                self.on_ready(ticket)

    def _admitted(self, ticket: Ticket) -> None:
        if self._admitting is not None:
            self._admitting.admitted(ticket.worker, ticket.request.prompt)

    def _end(self, ticket: Ticket, *, extend_len: int, finished: bool = False) -> None:
        """Close the accounts of `ticket` with `extend_len` computed tokens, 0 for nothing served."""
        assert ticket.state is not TicketState.ENDED, ticket
        cached_len, output_len = ticket.matched_len, ticket.output_len
        if not extend_len:
            cached_len = output_len = 0
        if ticket.state is TicketState.QUEUED:
            self.queue.withdraw(ticket)
        else:
            self.router.true_up(
                ticket.request, ticket.worker, extend_len=extend_len, output_len=output_len
            )
            self._remove_from_engine(ticket, extend_len=extend_len, finished=finished)
            self.queue.changed(ticket.worker)
        ticket.state, ticket.final_len = TicketState.ENDED, extend_len
        self.ledger.end(
            ticket.request.client,
            ticket.worker,
            extend_len=extend_len,
            cached_len=cached_len,
            output_len=output_len,
        )
        self._notify()

    def _remove_from_engine(
        self, ticket: Ticket, *, extend_len: int, finished: bool = False
    ) -> None:
        self.queue.sent -= 1
        assert self.queue.sent >= 0, "no more tickets end than were sent"
        answered = finished or ticket.state is TicketState.STARTED
        if ticket.lane is not None:
            ticket.lane.ended(ticket, extend_len=extend_len, finished=finished)
        engine = self.engines.get(ticket.worker)
        if engine is not None:
            if engine.limit is not None:
                engine.limit.ended(ticket.number, answered=answered)
                if engine.room is not None:
                    engine.room.ended(ticket.number, ticket.extend_len, ticket.output_len)
            engine.tickets.discard(ticket)
            if extend_len:
                engine.peaks.record(ticket, extend_len=extend_len)

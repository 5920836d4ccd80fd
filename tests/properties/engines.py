"""Engines with a number of slots behind a dispatcher, stepped by the test."""

import random
from collections import Counter
from dataclasses import dataclass, field

from fairhit.core.policy import Router
from fairhit.core.request import Request
from fairhit.dispatch import Dispatcher, QueueRules, Ticket, TicketState, Usage
from fairhit.errors import EngineError, NotFound
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex, ChunkedText, chunks_len

TEXT = 2000  # bytes of a prompt, half of it shared by those of one topic
PROMPT = TEXT // 4
STEP_US = 10_000


@dataclass(eq=False)
class Asked:
    """A request in an engine."""

    ticket: Ticket
    left: int  # outputs until it ends
    emitted: int = 0
    extend_len: int = 0
    sent_at: int = 0  # its engine's steps when it was sent


@dataclass
class Engine:
    """An engine that runs `slots` requests first come, first served; a step emits one output of each."""

    slots: int
    cache: set[int] = field(default_factory=set)
    queue: list[Asked] = field(default_factory=list)
    running: list[Asked] = field(default_factory=list)
    steps: int = 0


class World:
    """A dispatcher and its engines, the service of each client, and the ends of each ticket."""

    def __init__(
        self, *slots: int, rules: QueueRules, streams: bool | None = None, capacity: int = 32_768,
        max_sent: int | None = None, router: Router | None = None, text_len: int = TEXT,
    ) -> None:  # fmt: skip
        self.text_len, self.prompt_len = text_len, text_len // 4
        self.steps = 0
        self.held: list[tuple[int, Ticket]] = []  # the step in which each hold is over
        self.streams = streams  # None: some do
        self.index = ApproximatePrefixIndex(capacity=capacity)
        self.dispatcher = Dispatcher(
            router=D2LPM() if router is None else router,
            index=self.index,
            rules=rules,
            max_in_flight=10**6,
            max_sent=max_sent,
            on_ready=self.send,
            on_hold=self.hold,
        )
        self.engines = {f"w{number}": Engine(each) for number, each in enumerate(slots)}
        self.outputs: dict[Ticket, int] = {}
        self.ends: Counter[Ticket] = Counter()
        self.served: Counter[str] = Counter()  # extend + 2 * output, as the engines computed it
        self.number = 0
        for name in self.engines:
            self.up(name)

    # -- callers

    def ask(
        self, client: str, *, output_len: int, topic: int, model: str | None = None, key: str = ""
    ) -> Ticket:
        """Submit a request. Raises QueueFull, NotFound or NoEngine."""
        self.number += 1
        half = self.text_len // 14
        text = b"%07d" % topic * half + b"%07d" % self.number * half
        streams = bool(self.number % 3) if self.streams is None else self.streams
        request = Request(
            id=str(self.number),
            client=client,
            prompt=ChunkedText().extended(text).chunks,
            input_len=self.prompt_len,
            max_tokens=output_len,
            order=self.number,
            routing_key=key,
        )
        ticket = self.dispatcher.arrive(request, model=model, text_len=len(text), streams=streams)
        self.outputs[ticket] = output_len
        if ticket.state is TicketState.WAITING:
            self.send(ticket)
        return ticket

    def leave(self, ticket: Ticket) -> None:
        sent = [asked for asked in self.asked() if asked.ticket is ticket]
        ran_us = sum(self.ran_us(asked) for asked in sent)
        self._withdraw(ticket)
        self.dispatcher.cancelled(ticket, ran_us=ran_us)
        self.ends[ticket] += 1

    def open_tickets(self) -> list[Ticket]:
        return [ticket for ticket in self.outputs if ticket.state is not TicketState.ENDED]

    # -- engines

    def asked(self) -> list[Asked]:
        """Return the requests in the engines."""
        engines = self.engines.values()
        return [asked for engine in engines for asked in (*engine.queue, *engine.running)]

    def ran_us(self, asked: Asked) -> int:
        """Return how long the ticket has been at its engine."""
        return max(1, STEP_US * (self.engines[asked.ticket.worker].steps - asked.sent_at))

    def send(self, ticket: Ticket) -> None:
        assert self.dispatcher.engines[ticket.worker].serves(ticket.model), ticket
        engine = self.engines[ticket.worker]
        engine.queue.append(Asked(ticket, self.outputs[ticket], sent_at=engine.steps))

    def hold(self, ticket: Ticket, longest_us: int) -> None:
        assert ticket.held and self.dispatcher.engines[ticket.held].is_open, ticket
        self.held.append((self.steps + longest_us // STEP_US, ticket))

    def step(self, name: str) -> None:
        """Fill the engine's slots and emit an output of each request."""
        self.steps += 1
        over = [ticket for at, ticket in self.held if at <= self.steps]
        self.held = [(at, ticket) for at, ticket in self.held if at > self.steps]
        for ticket in over:
            self.dispatcher.hold_over(ticket)
        engine = self.engines[name]
        engine.steps += 1
        while engine.queue and len(engine.running) < engine.slots:
            asked = engine.queue.pop(0)
            engine.running.append(asked)
            prompt = asked.ticket.request.prompt
            hit = next((at for at, c in enumerate(prompt) if c not in engine.cache), len(prompt))
            engine.cache.update(prompt)
            asked.extend_len = self.prompt_len - chunks_len(hit) // 4
            self.served[asked.ticket.request.client] += asked.extend_len
        for asked in list(engine.running):
            if asked not in engine.running:
                continue  # it left while another one's output was reported
            asked.emitted += 1
            asked.left -= 1
            self.served[asked.ticket.request.client] += 2
            if asked.emitted == 1 and asked.ticket.streams:
                self.dispatcher.started(asked.ticket)
            elif asked.ticket.streams:
                self.dispatcher.emitted(asked.ticket, asked.emitted)
            if not asked.left:
                engine.running.remove(asked)
                self.ends[asked.ticket] += 1
                usage = Usage(self.prompt_len, asked.emitted, self.prompt_len - asked.extend_len)
                self.dispatcher.finished(asked.ticket, usage, ran_us=self.ran_us(asked))

    def report(self, name: str) -> None:
        """Report the engine's load to the dispatcher."""
        engine = self.engines[name]
        self.dispatcher.observed(name, running=len(engine.running), waiting=len(engine.queue))

    def fail(self, ticket: Ticket) -> None:
        """Fail a request by a broken connection."""
        self._withdraw(ticket)
        self._failed(ticket)

    def down(self, name: str) -> None:
        engine = self.engines[name]
        lost = [asked.ticket for asked in (*engine.queue, *engine.running)]
        engine.queue.clear()
        engine.running.clear()
        engine.cache.clear()
        for ticket in self.dispatcher.engine_down(name):
            if ticket.worker in {name, ""}:  # as the gateway: another may have taken it meanwhile
                self._failed(ticket)
        for ticket in lost:
            if ticket.state is TicketState.STARTED and ticket.worker == name:
                self._failed(ticket)

    def up(self, name: str, *models: str) -> None:
        for ticket in self.dispatcher.engine_up(name, models=models or None):
            if ticket.worker in {name, ""}:
                self._failed(ticket)

    def _failed(self, ticket: Ticket) -> None:
        if ticket.state is TicketState.ENDED:
            return
        try:
            self.dispatcher.failed(ticket)
        except (EngineError, NotFound):
            self.ends[ticket] += 1
            return
        if ticket.state is TicketState.WAITING:
            self.send(ticket)

    def _withdraw(self, ticket: Ticket) -> None:
        for engine in self.engines.values():
            engine.queue = [asked for asked in engine.queue if asked.ticket is not ticket]
            engine.running = [asked for asked in engine.running if asked.ticket is not ticket]

    # -- what must hold

    def check(self) -> None:
        """Assert the invariant of the queue, and that all counts agree."""
        dispatcher = self.dispatcher
        queued = [ticket for ticket in self.outputs if ticket.state is TicketState.QUEUED]
        assert len(dispatcher.queue) == len(queued)
        sent_count = len(self.open_tickets()) - len(queued)
        assert dispatcher.queue.sent == sent_count
        max_sent = dispatcher.queue.max_sent
        is_full = max_sent is not None and sent_count >= max_sent
        for client, count in Counter(ticket.request.client for ticket in queued).items():
            assert dispatcher.ledger.waiting(client) == count
        for ticket in queued:
            assert any(
                worker.up and worker.serves(ticket.model) and name not in ticket.tried
                for name, worker in dispatcher.engines.items()
            ), ticket
        for name, worker in dispatcher.engines.items():
            sent = [asked.ticket for engine in [self.engines[name]]
                    for asked in (*engine.queue, *engine.running)]  # fmt: skip
            assert set(sent) == {t for t in worker.tickets if t.state is not TicketState.ENDED}, (
                name
            )
            if not worker.up:
                continue
            assert worker.limit.in_flight == len(sent)
            assert worker.view._copies.keys() <= self.index._recency[name].keys(), name
            if worker.limit.has_capacity and worker.is_open and not is_full:
                takeable = [
                    t for t in queued if worker.serves(t.model) and name not in t.tried
                    and t.pinned in {"", name} and t.held in {None, "", name}
                ]  # fmt: skip
                assert not takeable, (name, takeable[0])

    def finish(self, rng: random.Random) -> None:
        """Run until every request has ended."""
        for _ in range(100_000):
            if not self.open_tickets():
                return
            for name in self.engines:
                if self.dispatcher.engines[name].up:
                    self.step(name)
                    if rng.random() < 0.3:
                        self.report(name)
        raise AssertionError("a request waits for ever")

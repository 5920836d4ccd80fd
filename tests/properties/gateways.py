"""Several gateways in front of the same engines, each with its own queue, which exchange a ledger."""

import random
from collections import Counter, deque
from collections.abc import Mapping

from fairhit.core.request import Request
from fairhit.core.service import TokenCost, Weights
from fairhit.dispatch import (
    Dispatcher,
    LedgerSharing,
    LedgerUpdate,
    QueueRules,
    SharedLedger,
    Ticket,
    Usage,
)
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex, ChunkedText

PROMPT = 40  # tokens, none of them cached
# Tokens of a prompt that is wholly cached once it was sent: 4 bytes each, in full chunks of the index.
CACHED_PROMPT, TEXTS = 640, 3


class Gateways:
    """`count` dispatchers and `engines` first-come-first-served engines of `slots` each.

    Every `period` steps each gateway exchanges with the account; what it receives reaches it `delay` steps
    later. 0: they never do.
    """

    def __init__(
        self, *, count: int, engines: int, slots: int, quantum: int, weights: Mapping[str, object],
        period: int, delay: int = 0, window: int | None = None, policy: str = "dlpm",
        overdraft: int | None = None, cached: bool = False,
    ) -> None:  # fmt: skip
        """`cached`: each client has TEXTS prompts of CACHED_PROMPT tokens; else all differ."""
        rules = QueueRules(
            scheduler=policy, quantum=quantum, weights=Weights(weights), shared=period > 0,
            max_engine_requests=window, overdraft=overdraft,
            cost=TokenCost() if policy == "fair" else None,
        )  # fmt: skip
        self.overdraft = 0 if overdraft is None else overdraft
        self.prompt = CACHED_PROMPT if cached else PROMPT
        self.cached = cached
        self.slots, self.period, self.delay = slots, period, delay
        self.accounts = SharedLedger()
        self.queues: dict[str, deque[tuple[int, Ticket]]] = {}
        self.running: dict[str, list[list]] = {}
        for number in range(engines):
            self.queues[f"w{number}"], self.running[f"w{number}"] = deque(), []
        self.gateways = [self._gateway(number, rules) for number in range(count)]
        self.shared = [LedgerSharing(gateway) for gateway in self.gateways]
        self.news: deque[tuple[int, int, LedgerUpdate]] = deque()
        self.served: Counter[str] = Counter()
        self.lengths: dict[Ticket, int] = {}
        self.step_number = self.asked = 0
        self.idle = 0  # slots of a step that were empty while a request waited somewhere
        self.work: list[Counter[str]] = []  # tokens of service that each engine gave, step by step
        self.cut_off: set[int] = set()  # gateways that do not reach the ledger
        self.dead: set[int] = set()

    def _gateway(self, number: int, rules: QueueRules) -> Dispatcher:
        gateway = Dispatcher(
            router=D2LPM(), index=ApproximatePrefixIndex(), rules=rules, max_in_flight=10**6,
            on_ready=lambda ticket: self._send(number, ticket),
        )  # fmt: skip
        for name in self.queues:
            gateway.engine_up(name)
        return gateway

    def ask(self, client: str, at: int, *, output_len: int) -> None:
        """Submit a request of the client to the gateway `at`."""
        self.asked += 1
        name = (
            b"%s %d" % (client.encode(), self.asked % TEXTS) if self.cached else b"%d" % self.asked
        )
        text = name.rjust(16) * (self.prompt // 4)
        request = Request(
            id=str(self.asked), client=client, prompt=ChunkedText().extended(text).chunks,
            input_len=self.prompt, max_tokens=output_len, order=self.asked,
        )  # fmt: skip
        ticket = self.gateways[at].arrive(request, model=None, text_len=len(text), streams=True)
        self.lengths[ticket] = output_len
        if ticket.worker and ticket.state.name == "WAITING":
            self._send(at, ticket)

    def backlog(self, client: str, at: int, *, depth: int, output_len: int) -> None:
        """Submit requests until `depth` of the client wait there."""
        while self.gateways[at].ledger.waiting(client) < depth:
            self.ask(client, at, output_len=output_len)

    def step(self, rng: random.Random) -> None:
        """Emit a token of each running request; exchange with the ledger if it is time."""
        self.step_number += 1
        self.work.append(Counter())
        for name in self.queues:
            self._step_engine(name, rng)
        if self.period:
            for number in range(len(self.gateways)):
                if (self.step_number + number) % self.period == 0:
                    self._exchange(number)
        while self.news and self.news[0][0] <= self.step_number:
            _, number, heard = self.news.popleft()
            if number not in self.cut_off:
                self.shared[number].adopt(heard)

    def kill(self, number: int) -> None:
        """A gateway dies with its queue: engines abort its requests, and its last charges are unknown."""
        self.dead.add(number)
        self.cut_off.add(number)
        self.accounts.forget([str(number)])  # once its reports have stopped for long enough
        for name in self.queues:
            self.queues[name] = deque(one for one in self.queues[name] if one[0] != number)
            self.running[name] = [slot for slot in self.running[name] if slot[0] != number]

    def most_in_flight(self) -> int:
        """Return the largest number of requests in flight at each engine from each gateway, added up."""
        return sum(
            engine.peaks.in_flight
            for gateway in self.gateways
            for engine in gateway.engines.values()
        )

    def most_unheard(self) -> int:
        """Return the most service of all engines in the time that a charge takes to reach every gateway."""
        steps = 2 * (self.period + self.delay)
        return max(
            sum(step.total() for step in self.work[at : at + steps]) for at in range(len(self.work))
        )

    def _exchange(self, number: int) -> None:
        shared = self.shared[number]
        if number in self.cut_off:  # as `LedgerExchange` after each attempt that failed
            shared.detach()
            self.accounts.forget([str(number)])
            return
        report = shared.report()
        assert report is not None
        heard = self.accounts.exchange(str(number), report, shared.quantum_of())
        self.news.append((self.step_number + self.delay, number, heard))

    def _send(self, number: int, ticket: Ticket) -> None:
        self.queues[ticket.worker].append((number, ticket))

    def _step_engine(self, name: str, rng: random.Random) -> None:
        queue, running = self.queues[name], self.running[name]
        while queue and len(running) < self.slots:
            number, ticket = queue.popleft()
            running.append([number, ticket, 0])
            self._serve(name, ticket.request.client, ticket.extend_len)
        if len(running) < self.slots and any(
            len(each.queue) for at, each in enumerate(self.gateways) if at not in self.dead
        ):
            self.idle += self.slots - len(running)
        for slot in list(running):
            number, ticket, emitted = slot
            gateway, slot[2] = self.gateways[number], emitted + 1
            self._serve(name, ticket.request.client, 2)
            if emitted == 0:
                gateway.started(ticket)
            else:
                gateway.emitted(ticket, emitted + 1)
            if emitted + 1 == self.lengths[ticket]:
                running.remove(slot)
                gateway.finished(ticket, self._usage(ticket, emitted + 1), ran_us=1)
        if rng.random() < 0.3:
            for gateway in self.gateways:
                gateway.observed(name, running=len(running), waiting=len(queue))

    def _usage(self, ticket: Ticket, outputs: int) -> Usage:
        """The engine computed what the gateway estimated: charges are exact."""
        return Usage(self.prompt, outputs, self.prompt - ticket.extend_len)

    def _serve(self, name: str, client: str, tokens: int) -> None:
        self.served[client] += tokens
        self.work[-1][name] += tokens

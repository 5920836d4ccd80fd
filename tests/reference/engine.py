"""The ideal engine of the theorems: one token for each running request and step, full reservation."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.fair_queue import FairQueue
from fairhit.core.policy import Policy
from fairhit.core.request import Request
from fairhit.core.service import Cost
from fairhit_lab.sim.memory.admission import Grant, Reserve


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A request and the step it arrives in; it emits `output_len`, or else all of its max_tokens."""

    step: int
    request: Request
    output_len: int | None = None


@dataclass
class IdealEngine:
    """Runs arrivals to their end and writes down every admission and every service, in order.

    `observers` (reference/gaps.py) receive the backlogged clients and the service of each: by `price`, or in
    units by `cost`. The scheduler receives outputs and ends `delay` steps late.
    """

    policy: Policy
    tree: RadixTree
    capacity: int
    max_running: int = 64
    skip_misfits: bool = True
    observers: list = field(default_factory=list)
    price: tuple[int, int] = (1, 2)
    weights: dict = field(default_factory=dict)
    charge_input: bool = False
    on_finish: Callable[[Request, int], None] | None = None
    on_arrive: Callable[[Request], None] | None = None
    on_admit: Callable[[Request], None] | None = None
    cost: Cost | None = None
    delay: int = 0
    checks_tree: bool = True

    def __post_init__(self):
        self.scheduler = FairQueue(self.policy, max_skips=None)
        self.memory = Reserve(self.tree, capacity=self.capacity)
        self.running: dict[Request, tuple[Grant, int]] = {}
        self.outputs: dict[Request, int] = {}
        self.untold: deque[tuple[int, Request, bool]] = deque()  # (step, emitted a token, its last)
        self.admitted: list[str] = []
        self.rejected: list[str] = []
        self.finished: list[str] = []
        self.step = 0

    def run(self, arrivals: list[Arrival], *, steps: int | None = None) -> "IdealEngine":
        """Until nothing is left, or for `steps` steps."""
        todo = deque(sorted(arrivals, key=lambda a: (a.step, a.request.order)))
        self.outputs.update((a.request, a.output_len or a.request.max_tokens) for a in arrivals)
        while (todo or self.running or len(self.scheduler)) and self.step != steps:
            while todo and todo[0].step <= self.step:
                self.arrive(todo.popleft().request)
            self.advance()
        return self

    def advance(self):
        """Run a step: admit, then every running request emits a token."""
        self.notify_scheduler()
        self.admit_waiting()
        idle = not self.running and len(self.scheduler)
        assert not idle, f"step {self.step}: idle while {list(self.scheduler)} wait"
        self.decode()
        if self.checks_tree:
            self.tree.check()
        self.step += 1
        assert self.step < 100_000, "this does not end"

    def arrive(self, request):
        if not self.memory.fits_ever(request):
            self.rejected.append(request.id)
            return
        if not self.scheduler.waiting(request.client):
            self.tell("begin", request.client)
        self.scheduler.add(request)
        if self.on_arrive:
            self.on_arrive(request)

    def admit_waiting(self):
        self.scheduler.begin_pass()
        while len(self.running) < self.max_running and (request := self.scheduler.propose()):
            grant = self.memory.admit(request, self.step)
            if grant is None:
                if not self.skip_misfits:
                    return
                self.scheduler.skip(request)
                continue
            # A client whose last waiting request leaves is backlogged up to, not past, that moment.
            if self.scheduler.waiting(request.client) == 1:
                self.tell("end", request.client)
            if self.on_admit:
                self.on_admit(request)
            self.scheduler.admit(request, extend_len=grant.extend_len)
            self.running[request] = (grant, self.outputs.get(request, request.max_tokens))
            self.admitted.append(request.id)
            computed = request.input_len if self.charge_input else grant.extend_len
            cached = request.input_len - computed
            prefill = self.cost.prefill(computed, cached) if self.cost else self.price[0] * computed
            self.serve(request.client, prefill)

    def decode(self):
        for request, (grant, left) in list(self.running.items()):
            self.untold.append((self.step + self.delay, request, left == 1))
            if not self.delay:
                self.notify_scheduler()
            emitted = self.outputs.get(request, request.max_tokens) - left
            output = self.cost.decode(request.input_len, emitted, 1) if self.cost else self.price[1]
            self.serve(request.client, output)
            self.running[request] = (grant, left - 1)
            if left == 1:
                del self.running[request]
                self.memory.release(grant)
                self.finished.append(request.id)
                if self.on_finish:
                    self.on_finish(request, grant.extend_len)

    def notify_scheduler(self):
        """Report to the scheduler the outputs and ends that are due by this step."""
        while self.untold and self.untold[0][0] <= self.step:
            _, request, is_last = self.untold.popleft()
            self.scheduler.decode(request, 1)
            if is_last:
                self.scheduler.finish(request)

    def serve(self, client, amount):
        for observer in self.observers:
            observer.serve(client, amount / self.weights[client] if self.weights else amount)

    def tell(self, what, client):
        for observer in self.observers:
            getattr(observer, what)(client)

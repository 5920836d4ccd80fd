"""The ideal engine of the theorems: one token for each running request and step, full reservation."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from fairlead.core.admission import Grant, Reserve
from fairlead.core.protocols import Policy
from fairlead.core.radix_tree import RadixTree
from fairlead.core.request import Request
from fairlead.core.scheduler import Scheduler


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A request and the step it arrives in; it emits all of its max_tokens."""

    step: int
    request: Request


@dataclass
class IdealEngine:
    """Runs arrivals to their end and writes down every admission and every service, in order.

    `observers` (metrics.fairness) hear who is backlogged and who is served, in `amount(kind, n)`.
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

    def __post_init__(self):
        self.scheduler = Scheduler(self.policy, max_misfits=None)
        self.memory = Reserve(self.tree, capacity=self.capacity)
        self.running: dict[Request, tuple[Grant, int]] = {}
        self.admitted: list[str] = []
        self.rejected: list[str] = []
        self.finished: list[str] = []
        self.step = 0

    def run(self, arrivals: list[Arrival], *, steps: int | None = None) -> "IdealEngine":
        """Until nothing is left, or for `steps` steps."""
        todo = deque(sorted(arrivals, key=lambda a: (a.step, a.request.order)))
        while (todo or self.running or len(self.scheduler)) and self.step != steps:
            while todo and todo[0].step <= self.step:
                self.arrive(todo.popleft().request)
            self.advance()
        return self

    def advance(self):
        """One step: admit, then every running request emits a token."""
        self.look()
        idle = not self.running and len(self.scheduler)
        assert not idle, f"step {self.step}: idle while {list(self.scheduler)} wait"
        self.decode()
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

    def look(self):
        self.scheduler.begin()
        while len(self.running) < self.max_running and (request := self.scheduler.propose()):
            grant = self.memory.admit(request, self.step)
            if grant is None:
                if not self.skip_misfits:
                    return
                self.scheduler.pass_over(request)
                continue
            # A client whose last waiting request leaves is backlogged up to, not past, that moment.
            if self.scheduler.waiting(request.client) == 1:
                self.tell("end", request.client)
            self.scheduler.admit(request, extend_len=grant.extend_len)
            self.running[request] = (grant, request.max_tokens)
            self.admitted.append(request.id)
            computed = request.input_len if self.charge_input else grant.extend_len
            self.serve(request.client, self.price[0] * computed)

    def decode(self):
        for request, (grant, left) in list(self.running.items()):
            self.scheduler.decode(request, 1)
            self.serve(request.client, self.price[1])
            self.running[request] = (grant, left - 1)
            if left == 1:
                del self.running[request]
                self.memory.release(grant)
                self.scheduler.finish(request)
                self.finished.append(request.id)
                if self.on_finish:
                    self.on_finish(request, grant.extend_len)

    def serve(self, client, amount):
        for observer in self.observers:
            observer.serve(client, amount / self.weights[client] if self.weights else amount)

    def tell(self, what, client):
        for observer in self.observers:
            getattr(observer, what)(client)

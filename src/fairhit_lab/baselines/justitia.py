"""Justitia: agents one after the other, in the order in which fair shares would end them (arXiv:2510.17015).

    C     cost of a request: the KV memory that it occupies, in tokens times outputs
    V     virtual time: how much each agent would have by now if all active ones shared equally
    F_a   virtual finish of agent a, V at its arrival + C; the agent of the least F_a is first

Only the abstract was read. Chosen here: an agent is a program (`Request.routing_key`), and a request
without one is an agent by itself. The paper predicts the cost of a whole agent when it arrives; a trace is
read as it comes, so each request adds its own cost when it arrives: F_a = max(F_a, V) + C. C uses the true
output length, which only a trace knows. V runs by the memory that running requests did occupy, instead
of capacity times time: while memory is full the two are the same. A cancelled request keeps its C in F_a.
"""

from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import ClientId, Request
from fairhit.core.waiting.arrival_queue import ArrivalQueue
from fairhit_lab.baselines.vtc_oracle import OutputLen, most


def occupied(input_len: int, before: int, tokens: int) -> int:
    """Return the KV tokens occupied, summed over `tokens` outputs after the first `before`. O(1)."""
    return tokens * (input_len + before) + tokens * (tokens - 1) // 2


class VirtualTime:
    """V and F_a under equal sharing of what was occupied among the agents with F_a > V."""

    def __init__(self) -> None:
        self.now = 0  # V
        self._rest = 0  # occupied, and too little for every active agent to have one more
        self._finish: dict[str, int] = {}  # F_a of the active agents
        self._heap: LazyHeap[tuple[int, str]] = LazyHeap()

    def arrive(self, agent: str, cost: int) -> int:
        """Return F_a with one more request of the agent. O(log agents)."""
        finish = self._finish[agent] = self._finish.get(agent, self.now) + cost
        self._heap.push((finish, agent), self._is_active)
        return finish

    def advance(self, work: int) -> None:
        """Share `work` among the active agents. O(log agents) for each that finishes, else O(1)."""
        self._rest += work
        while top := self._heap.top(self._is_active):
            each = min(top[0] - self.now, self._rest // len(self._finish))
            self.now += each
            self._rest -= each * len(self._finish)
            if top[0] > self.now:
                return
            del self._finish[top[1]]
        self._rest = 0  # no agent is active: V stands still

    def _is_active(self, item: tuple[int, str]) -> bool:
        return self._finish.get(item[1]) == item[0]


class Justitia:
    """The agent with the least F_a first; its oldest request first. `output_len` None is max_tokens."""

    def __init__(self, *, output_len: OutputLen | None = None) -> None:
        self._output_len = output_len or most
        self._time = VirtualTime()
        self._finish: dict[str, int] = {}  # F_a of agents with a waiting request
        self._queues: dict[str, ArrivalQueue] = {}
        self._skipped: dict[str, None] = {}
        self._heap: LazyHeap[tuple[int, int, str]] = LazyHeap()  # F_a, order of its head, a

    def add(self, request: Request) -> None:
        """Add the request's cost to F_a. O(log n)."""
        agent = _agent(request)
        cost = occupied(request.input_len, 0, max(1, self._output_len(request)))
        self._finish[agent] = self._time.arrive(agent, cost)
        self._queues.setdefault(agent, ArrivalQueue()).add(request)
        self._enter(agent)

    def remove(self, request: Request) -> None:
        """See `Policy.remove`. O(log n)."""
        agent = _agent(request)
        self._queues[agent].remove(request)
        if self._queues[agent]:
            self._enter(agent)
        else:
            del self._queues[agent], self._finish[agent]
            self._skipped.pop(agent, None)

    def begin_pass(self) -> None:
        """See `Policy.begin_pass`. O(skipped * log n)."""
        for agent in self._skipped:
            self._queues[agent].show_all()
            self._enter(agent)
        self._skipped.clear()

    def next(self) -> Request | None:
        """Return the oldest request of the agent with the least F_a. O(log n) amortised."""
        top = self._heap.top(self._is_head)
        return self._queues[top[2]].first() if top else None

    def skip(self, request: Request) -> None:
        """See `Policy.skip`."""
        agent = _agent(request)
        self._skipped[agent] = None
        self._queues[agent].hide(request)
        self._enter(agent)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """See `Charging.on_admit`; F_a has the cost since the arrival."""
        self.remove(request)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Let V run by what the outputs occupied."""
        self._time.advance(occupied(request.input_len, before, tokens))

    def credit(self, client: ClientId) -> int:
        """Return 0: agents have an order, and clients have none."""
        return 0

    def _enter(self, agent: str) -> None:
        """Push the agent's head, unless all its requests are skipped."""
        if head := self._queues[agent].first():
            self._heap.push((self._finish[agent], head.order, agent), self._is_head)

    def _is_head(self, item: tuple[int, int, str]) -> bool:
        finish, order, agent = item
        queue = self._queues.get(agent)
        head = queue.first() if queue else None
        return head is not None and head.order == order and self._finish[agent] == finish


def _agent(request: Request) -> str:
    """Return the name of the request's agent, which no other client's agent has."""
    return f"{request.client}\n{request.routing_key or request.id}"

"""Deficit round robin for LLM serving: Sheng et al., OSDI 2024, Appendix C.2, with a gated refill.

    C_i   deficit of client i: service it may still receive before the next refill (core/ledgers/deficits.py)
    Q     the quantum; Q_i = w_i * Q
    P     cost of the prompts scheduled in a visit; outputs are charged when they are emitted

The clients with a waiting request form a ring. A visit serves its client, oldest request first, while
C_i > 0. As printed, each visit to a client with C_i <= 0 refills it, and what ends a round while
memory is full is left open: if rounds go on, they forgive every debt and the first client in the ring
is served for ever. So a refill runs only when no client in the ring has C_i > 0, as in DLPM.
"""

from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.ledgers.deficits import Deficits
from fairhit.core.request import ClientId, Request
from fairhit.core.service import Cost, ServiceCost, Weights
from fairhit.core.waiting.arrival_queue import ArrivalQueue

# When a client is visited next: (round, position in the ring).
Visit = tuple[int, int]


class DRR:
    """Clients with C_i > 0 in rotation, each until its deficit is used up; its oldest request first.

    `quantum` is Q in tokens. A client whose oldest request does not fit is skipped with all its
    requests, and is the first of the next scheduling pass.
    """

    def __init__(
        self,
        *,
        quantum: int = 4096,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "input",
        max_clients: int = 1_000_000,
    ) -> None:
        self.cost = ServiceCost(cost, charge=charge)
        self.ledger = Deficits(quantum=quantum, weights=weights, max_clients=max_clients)
        self.ledger.listen(on_positive=self._open, on_exhausted=self._close)
        self._queues: dict[ClientId, ArrivalQueue] = {}  # the ring
        self._positions: dict[ClientId, int] = {}
        self._joined = 0
        self._now: Visit = (0, 0)  # of the client being visited
        self._visits: dict[ClientId, Visit] = {}  # of clients with C_i > 0 that were not skipped
        self._heap: LazyHeap[tuple[Visit, ClientId]] = LazyHeap()
        self._skipped: dict[ClientId, Visit] = {}

    def add(self, request: Request) -> None:
        """Enqueue; a client joins the ring behind all others, with the deficit it left with."""
        client = request.client
        if client in self._queues:
            self._queues[client].add(request)
            return
        positive = self.ledger.join(client)
        self._joined += 1
        self._positions[client] = self._joined
        self._queues[client] = ArrivalQueue()
        self._queues[client].add(request)
        if positive:
            self._open(client)

    def remove(self, request: Request) -> None:
        """Dequeue; with its last request a client leaves the ring."""
        client = request.client
        self._queues[client].remove(request)
        if not self._queues[client]:
            del self._queues[client], self._positions[client]
            self._close(client)
            self.ledger.leave(client)

    def begin_pass(self) -> None:
        """Begin a pass; skipped clients keep their visits."""
        for client, visit in self._skipped.items():
            self._plan(client, visit)
        self._skipped.clear()

    def next(self) -> Request | None:
        """App. C.2, step 3: the client being visited, or the next one in the ring with C_i > 0."""
        while True:
            top = self._heap.top(self._is_planned)
            if top is None:
                if not self.ledger.check_refill():
                    return None
            elif self.ledger.is_positive(top[1]):
                self._now, client = top
                return self._queues[client].first()

    def skip(self, request: Request) -> None:
        """Visit the next client. C_i > 0 stays, so no refill passes the skipped client by."""
        client = request.client
        self._skipped[client] = self._visits.pop(client)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """App. C.2, step 3: subtract P from C_i, which the last request of a visit may exceed."""
        self.remove(request)
        self.ledger.charge(request.client, self.cost.prompt(request.input_len, extend_len))

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """App. C.2, step 4: subtract the outputs; C_i may fall below zero by more than Q."""
        self.ledger.charge(request.client, self.cost.outputs(request.input_len, before, tokens))

    def credit(self, client: ClientId) -> int:
        """Return C_i in units."""
        return self.ledger.value(client)

    def _open(self, client: ClientId) -> None:
        """Plan the visit of a client with C_i > 0 again: at its next position, not the visit just over."""
        rounds, at = self._now
        position = self._positions[client]
        self._plan(client, (rounds if position > at else rounds + 1, position))

    def _close(self, client: ClientId) -> None:
        self._visits.pop(client, None)
        self._skipped.pop(client, None)

    def _plan(self, client: ClientId, visit: Visit) -> None:
        self._visits[client] = visit
        self._heap.push((visit, client), self._is_planned)

    def _is_planned(self, item: tuple[Visit, ClientId]) -> bool:
        return self._visits.get(item[1]) == item[0]

"""Deficit round robin for LLM serving: Sheng et al., OSDI 2024, Appendix C.2, with a gated refill.

    C_i   deficit of client i: what it may still receive before a refill (core/deficits.py)
    Q     the quantum; Q_i = w_i * Q
    P     cost of the prompts scheduled in a visit; outputs are charged as they are decoded

The clients with something waiting stand in a ring. A visit serves its client, oldest request first,
while C_i > 0. As printed, each visit to a client with C_i <= 0 refills it, and what ends a round
while memory is full is left open: if rounds go on, they forgive every debt and the first in the ring
is served for ever. So a refill runs only when nobody in the ring has C_i > 0, as in DLPM.
"""

from collections.abc import Callable

from fairhit.core.deficits import Deficits
from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.policy import nothing_due
from fairhit.core.request import ClientId, Request
from fairhit.core.request_record import Prompt
from fairhit.core.service import Cost, TokenCost, Weights, parse_charge
from fairhit.core.waiting.arrival_queue import ArrivalQueue

# A client's place in the ring and the round of its next visit: (round, place).
Turn = tuple[int, int]


class DRR:
    """Clients with C_i > 0 by turns, each until its deficit is used up; its oldest request first.

    `quantum` is Q in tokens. Who does not fit is passed over with all its requests, and is the
    first of the next look.
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
        self.settle: Callable[[ClientId | None], None] = nothing_due  # see `Asking`
        self._cost = cost or TokenCost()
        self._charge = parse_charge(charge)
        self._deficits = Deficits(quantum=quantum, weights=weights, max_clients=max_clients)
        self._lines: dict[ClientId, ArrivalQueue] = {}  # the ring
        self._places: dict[ClientId, int] = {}
        self._joined = 0
        self._now: Turn = (0, 0)  # of the client being visited
        self._turns: dict[ClientId, Turn] = {}  # of those with C_i > 0 that were not passed over
        self._heap: LazyHeap[tuple[Turn, ClientId]] = LazyHeap()
        self._passed: dict[ClientId, Turn] = {}

    def add(self, request: Request) -> None:
        """A client that joins the ring stands behind all others; debt and credit are as it left."""
        client = request.client
        if client in self._lines:
            self._lines[client].add(request)
            return
        solvent = self._deficits.wait(client)
        self._joined += 1
        self._places[client] = self._joined
        self._lines[client] = ArrivalQueue()
        self._lines[client].add(request)
        if solvent:
            self._open(client)

    def remove(self, request: Request) -> None:
        """See `Ordering.remove`; with its last request a client leaves the ring."""
        client = request.client
        self._lines[client].remove(request)
        if not self._lines[client]:
            del self._lines[client], self._places[client]
            self._turns.pop(client, None)
            self._passed.pop(client, None)
            self._deficits.leave(client)

    def begin(self) -> None:
        """Who was passed over keeps its turn."""
        for client, turn in self._passed.items():
            self._turn(client, turn)
        self._passed.clear()

    def next(self) -> Request | None:
        """App. C.2, step 3: the client being visited, or the next one in the ring with C_i > 0."""
        while True:
            top = self._heap.top(self._is_true)
            if top is None:
                if not self._refill():
                    return None
            elif self._pays(top[1]):
                self._now, client = top
                return self._lines[client].first()

    def pass_over(self, request: Request) -> None:
        """It does not fit: the next client's turn. C_i > 0 stays, so no refill passes it by."""
        client = request.client
        self._passed[client] = self._turns.pop(client)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """App. C.2, step 3: P is taken from C_i, the last request of a visit exceeding it."""
        self.remove(request)
        self._spend(request.client, self._price(request.input_len, extend_len))

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """App. C.2, step 4: C_i may fall below zero by more than Q."""
        self._spend(request.client, self._cost.decode(request.input_len, before, tokens))

    def correct(self, request: Request, *, charged: Prompt, true: Prompt) -> None:
        """See `Correcting`."""
        units = self._price(*true) - self._price(*charged)
        if units > 0:
            self._spend(request.client, units)
        elif self._deficits.give_back(request.client, -units):
            self._open(request.client)

    def credit(self, client: ClientId) -> int:
        """C_i in units."""
        return self._deficits.value(client)

    @property
    def refill_rounds(self) -> int:
        """How many times the ring has been refilled."""
        return self._deficits.rounds

    def _pays(self, client: ClientId) -> bool:
        """Whether C_i > 0 with all that the client has emitted; if not, it has no turn now."""
        self.settle(client)
        return self._deficits.value(client) > 0

    def _refill(self) -> bool:
        """The gate: nobody in the ring has C_i > 0. False if somebody has, or nobody waits."""
        if not self._deficits.is_dry:
            return False
        self.settle(None)
        refilled = self._deficits.check_refill()
        for client in refilled:
            self._open(client)
        return bool(refilled)

    def _open(self, client: ClientId) -> None:
        """C_i > 0 again: its turn is when the ring next comes to its place, not the visit just over."""
        rounds, at = self._now
        place = self._places[client]
        self._turn(client, (rounds if place > at else rounds + 1, place))

    def _turn(self, client: ClientId, turn: Turn) -> None:
        self._turns[client] = turn
        self._heap.push((turn, client), self._is_true)

    def _is_true(self, item: tuple[Turn, ClientId]) -> bool:
        return self._turns.get(item[1]) == item[0]

    def _price(self, input_len: int, extend_len: int) -> int:
        tokens = input_len if self._charge == "input" else extend_len
        return self._cost.prefill(tokens) if tokens else 0

    def _spend(self, client: ClientId, units: int) -> None:
        if not self._deficits.charge(client, units):
            self._turns.pop(client, None)
            self._passed.pop(client, None)

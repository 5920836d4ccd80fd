"""Deficit longest prefix match (DLPM): arXiv:2501.14312v1, Algorithm 1, with the repairs of DESIGN 3.2.

    q_i   deficit of client i: what it may still receive before a refill (core/deficits.py)
    Q_i   its quantum, w_i * Q^u
    w_e   cost of an extend token, charged at admission; w_q of an output token, charged as emitted

The printed loop sorts the queue by match and walks it. Here the waiting index holds that order at
all times, and only clients with q_i > 0 are *open* in it, so the walk is "take the best" again and
again: after a refill, too, it starts from the longest match (repair 3).
"""

from collections.abc import Callable

from fairhit.core.cache.cache_view import Cache
from fairhit.core.deficits import Deficits
from fairhit.core.policy import nothing_due
from fairhit.core.request import ClientId, Request
from fairhit.core.request_record import Prompt
from fairhit.core.service import Cost, TokenCost, Weights, parse_charge
from fairhit.core.waiting.aging import Aging
from fairhit.core.waiting.cache_listener import waiting_index


class DLPM:
    """The longest cached prefix first, among the clients whose deficit is positive.

    `quantum` is Q^u in tokens. `max_overtake`, in tokens of service, lets a client's oldest request
    go before its better matches once they have taken more than that past it; None is the paper.
    """

    def __init__(
        self,
        *,
        cache: Cache,
        quantum: int = 4096,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "extend",
        max_overtake: int | None = None,
        max_clients: int = 1_000_000,
    ) -> None:
        self.settle: Callable[[ClientId | None], None] = nothing_due  # see `Asking`
        self._cost = cost or TokenCost()
        self._charge = parse_charge(charge)
        self._deficits = Deficits(quantum=quantum, weights=weights, max_clients=max_clients)
        self._index = waiting_index(cache)
        self._passed: dict[Request, None] = {}
        self._barred: dict[ClientId, None] = {}  # for this look
        self._ageing = None if max_overtake is None else Aging(limit=max_overtake)

    def add(self, request: Request) -> None:
        """Alg. 1, lines 11-13: new clients start at q_i = 0; others keep debt and credit."""
        first = not self._index.waiting(request.client)
        solvent = first and self._deficits.wait(request.client)
        self._index.add(request)
        if self._ageing:
            self._ageing.add(request)
        if solvent:
            self._open(request.client)

    def remove(self, request: Request) -> None:
        """See `Ordering.remove`; a client with nothing left to schedule has no say in a refill."""
        self._passed.pop(request, None)
        self._index.remove(request)
        if self._ageing:
            self._ageing.remove(request)
        if not self._index.waiting(request.client):
            self._deficits.leave(request.client)
            if self._ageing:
                self._ageing.close(request.client)

    def begin(self) -> None:
        """Alg. 1, line 16: the next look considers everyone again."""
        for request in self._passed:
            self._index.show(request)
        self._passed.clear()
        for client in self._barred:
            if self._index.waiting(client) and self._deficits.value(client) > 0:
                self._index.open(client)
        self._barred.clear()

    def next(self) -> Request | None:
        """Alg. 1, lines 16-21: the best match with q_i > 0; refill when no waiting client has any."""
        while True:
            request = self._overtaken() or self._index.best()
            if request is None:
                if not self._refill():
                    return None
            elif self._pays(request.client):
                return request

    def pass_over(self, request: Request) -> None:
        """Alg. 1, line 21, CANADD is false: its client keeps q_i > 0, so others wait with it."""
        self._passed[request] = None
        self._index.hide(request)
        if self._ageing and self._ageing.is_due(request):
            # Its client's later requests would take the room it waits for, look after look.
            self._barred[request.client] = None
            self._index.close(request.client)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Alg. 1, lines 22-24: cached tokens are free, or fairness would undo locality."""
        units = self._price(request.input_len, extend_len)
        if self._ageing:
            self._ageing.overtake(request, units)
        self.remove(request)
        self._spend(request.client, units)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Alg. 1, line 26: w_q for each output token, the first included."""
        self._spend(request.client, self._cost.decode(request.input_len, before, tokens))

    def correct(self, request: Request, *, charged: Prompt, true: Prompt) -> None:
        """See `Correcting`. A client may hold more than Q_i then, if it was refilled meanwhile."""
        units = self._price(*true) - self._price(*charged)
        if units > 0:
            self._spend(request.client, units)
        elif self._deficits.give_back(request.client, -units):
            self._open(request.client)

    def credit(self, client: ClientId) -> int:
        """q_i in units."""
        return self._deficits.value(client)

    def quantum_of(self, client: ClientId) -> int:
        """Q_i in units."""
        return self._deficits.quantum_of(client)

    @property
    def refill_rounds(self) -> int:
        """How many times q_i <- q_i + Q_i has run."""
        return self._deficits.rounds

    def _open(self, client: ClientId) -> None:
        """q_i > 0 and something waits."""
        self._index.open(client)
        if self._ageing:
            self._ageing.open(client)

    def _close(self, client: ClientId) -> None:
        """q_i <= 0."""
        self._index.close(client)
        if self._ageing:
            self._ageing.close(client)

    def _pays(self, client: ClientId) -> bool:
        """Whether q_i > 0 with all that the client has emitted; if not, it is closed now."""
        self.settle(client)
        return self._deficits.value(client) > 0

    def _refill(self) -> bool:
        """Alg. 1, line 20: False if a waiting client has q_i > 0, or nobody waits."""
        if not self._deficits.is_dry:
            return False
        self.settle(None)
        refilled = self._deficits.check_refill()
        for client in refilled:
            self._open(client)
        return bool(refilled)

    def _price(self, input_len: int, extend_len: int) -> int:
        tokens = extend_len if self._charge == "extend" else input_len
        return self._cost.prefill(tokens) if tokens else 0

    def _spend(self, client: ClientId, units: int) -> None:
        if not self._deficits.charge(client, units):
            self._close(client)

    def _overtaken(self) -> Request | None:
        """Ageing: the oldest request of the first client with q_i > 0 whose oldest is due."""
        if self._ageing:
            for client in self._ageing.due():
                request = self._ageing.oldest(client)
                if request not in self._passed:
                    return request
        return None

"""Deficit longest prefix match (DLPM): arXiv:2501.14312v1, Algorithm 1.

Each line of the printed box, and each repair of it: docs/explanation/paper-map.md.

    q_i   deficit of client i: service it may still receive before the next refill (core/ledgers/deficits.py)
    Q_i   quantum of client i, w_i * Q^u
    w_e   cost of an extend token, charged at admission; w_q of an output token, charged when emitted

The printed loop sorts the queue by matched prefix and walks it. The prefix order keeps the waiting
requests sorted instead, and only clients with q_i > 0 are open in it, so each step of the walk is
"take the best open request"; after a refill, too, selection restarts from the longest match (repair 3).
"""

from fairhit.core.ledgers.deficits import Deficits
from fairhit.core.request import ClientId, Request
from fairhit.core.service import Cost, ServiceCost, Weights
from fairhit.core.waiting.aging import PrefixOrder
from fairhit.core.waiting.cache_listener import AnyCache


class DLPM:
    """Longest cached prefix first, among the clients whose deficit is positive.

    `quantum` is Q^u in tokens. `max_overtake`, in tokens of service, bounds how much a client's better
    matches may take past its oldest request (core/waiting/aging.py); None, as in the paper: no bound.
    """

    def __init__(
        self,
        *,
        cache: AnyCache,
        quantum: int = 4096,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "extend",
        max_overtake: int | None = None,
        max_clients: int = 1_000_000,
    ) -> None:
        self.cost = ServiceCost(cost, charge=charge)
        self._queue = PrefixOrder(cache, max_overtake=max_overtake)
        self.ledger = Deficits(quantum=quantum, weights=weights, max_clients=max_clients)
        self.ledger.listen(on_positive=self._queue.open, on_exhausted=self._queue.close)

    def add(self, request: Request) -> None:
        """Alg. 1, lines 11-13: enqueue; a new client starts at q_i = 0, others keep debt and credit."""
        joins = not self._queue.count(request.client)
        positive = joins and self.ledger.join(request.client)
        self._queue.add(request)
        if positive:
            self._queue.open(request.client)

    def remove(self, request: Request) -> None:
        """Dequeue; a client without schedulable requests has no part in a refill (repair 5)."""
        self._queue.remove(request)
        if not self._queue.count(request.client):
            self.ledger.leave(request.client)

    def begin_pass(self) -> None:
        """Alg. 1, line 16: the next walk considers every request again."""
        self._queue.show_all()

    def next(self) -> Request | None:
        """Alg. 1, lines 17-20: the best match with q_i > 0; refill when no waiting client has any."""
        while True:
            request = self._queue.best()
            if request is None:
                if not self.ledger.check_refill():  # Alg. 1, CheckRefill
                    return None
            elif self.ledger.is_positive(request.client):
                return request

    def skip(self, request: Request) -> None:
        """Alg. 1, line 21, CanAdd is false: the client keeps q_i > 0, which delays a refill."""
        self._queue.hide(request)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Alg. 1, lines 22-24: charge w_e * extend; cached tokens are free, or fairness undoes locality."""
        units = self.cost.prompt(request.input_len, extend_len)
        self._queue.admitted(request, units)
        self.remove(request)
        self.ledger.charge(request.client, units)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Alg. 1, line 26: charge w_q for each output token, the first included."""
        self.ledger.charge(request.client, self.cost.outputs(request.input_len, before, tokens))

    def credit(self, client: ClientId) -> int:
        """Return q_i in units."""
        return self.ledger.value(client)

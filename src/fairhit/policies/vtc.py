"""Virtual token counter (VTC): Sheng et al., OSDI 2024, Algorithm 2, with the repairs of DESIGN 3.3.

    c_i   virtual counter of client i: the service it has received, divided by its weight
    w_p   cost of an input token, charged at selection; w_q of an output token, charged when emitted

A client that starts to wait is lifted to the least counter of the waiting clients, so that being
away earns no credit.
"""

from collections.abc import Callable

from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.ledgers.client_table import ClientTable
from fairhit.core.policy import SyncCharges, nothing_pending
from fairhit.core.request import ClientId, Request
from fairhit.core.service import WEIGHT_SCALE, Cost, ServiceCost, Weights, divide_half_up
from fairhit.core.waiting.arrival_queue import ArrivalQueue


class VirtualCounters:
    """The counters c_i, in units per weight. A full table forgets counters as `may_forget` allows.

    A client forgotten while it runs is charged from `level()`. `on_lowered` is called with a client
    whose counter went down. `sync` charges pending outputs; `value` calls it.
    """

    def __init__(
        self,
        *,
        weights: Weights | None,
        max_clients: int,
        may_forget: Callable[[ClientId], bool],
        level: Callable[[], int],
        on_lowered: Callable[[ClientId], None],
    ) -> None:
        self.sync: SyncCharges = nothing_pending  # see `Ledger`
        self.charges: dict[ClientId, int] | None = None
        self._weights = weights or Weights()
        self._level = level
        self._on_lowered = on_lowered
        self._counters: ClientTable[int] = ClientTable(limit=max_clients, may_forget=may_forget)

    def __contains__(self, client: ClientId) -> bool:
        return client in self._counters

    def value(self, client: ClientId) -> int:
        """Return c_i, pending outputs included; 0 without a record. O(its running requests)."""
        self.sync(client)
        return self._counters.get(client) or 0

    def lift(self, client: ClientId, level: int) -> None:
        """Alg. 2, lines 8-13: c_i <- max(c_i, level). Raises QueueFull for a new client. O(1)."""
        if client in self._counters:
            self._counters.update(client, max(self.value(client), level))
        else:
            self._counters.admit(client, level)

    def charge(self, client: ClientId, units: int) -> None:
        """Add `units` of service to c_i, divided by the weight. O(1)."""
        if self.charges is not None:
            self.charges[client] = self.charges.get(client, 0) + units
        self._raise(client, self._share(client, units))

    def replace(self, client: ClientId, *, charged: int, true: int) -> None:
        """Replace the share of an earlier charge by that of the true cost, both in units. O(log clients)."""
        if self.charges is not None:
            self.charges[client] = self.charges.get(client, 0) + true - charged
        change = self._share(client, true) - self._share(client, charged)
        if change >= 0:
            self._raise(client, change)
        elif client in self._counters:  # a forgotten client is lifted when it returns
            self._counters.update(client, self.value(client) + change)
            self._on_lowered(client)

    def is_unweighted(self, client: ClientId) -> bool:
        """Return whether the client's weight is 1, so that no share is rounded. O(1)."""
        return self._weights.of(client) == WEIGHT_SCALE

    def _raise(self, client: ClientId, share: int) -> None:
        counter = self._counters.get(client)
        self._counters.update(client, (self._level() if counter is None else counter) + share)

    def _share(self, client: ClientId, units: int) -> int:
        """Return what `units` of service add to c_i, rounded half up."""
        weight = self._weights.of(client)
        return units if weight == WEIGHT_SCALE else divide_half_up(units * WEIGHT_SCALE, weight)


class VTC:
    """The client with the smallest counter first; its oldest request first."""

    def __init__(
        self,
        *,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "input",
        max_clients: int = 1_000_000,
    ) -> None:
        self.cost = ServiceCost(cost, charge=charge)
        self.ledger = VirtualCounters(
            weights=weights,
            max_clients=max_clients,
            may_forget=self._may_forget,
            level=self._level,
            on_lowered=self._on_lowered,
        )
        self._queues: dict[ClientId, ArrivalQueue] = {}  # Q: clients with a waiting request
        self._skipped: dict[ClientId, None] = {}
        self._last_left: ClientId | None = None
        # (c_i, order of i's first request, i). An entry may be too small, never too large: counters
        # only grow, are corrected at the top, and a client is entered again when its counter is
        # lowered or an older request of it is unblocked.
        self._heap: LazyHeap[tuple[int, int, ClientId]] = LazyHeap()
        self._entered: dict[ClientId, tuple[int, int]] = {}

    def add(self, request: Request) -> None:
        """Alg. 2, lines 5-14."""
        client = request.client
        if client not in self._queues:
            self._lift(client)
            self._queues[client] = ArrivalQueue()
        self._queues[client].add(request)
        self._enter(client)

    def remove(self, request: Request) -> None:
        """See `Policy.remove`."""
        client = request.client
        queue = self._queues[client]
        queue.remove(request)
        if not queue:
            del self._queues[client]
            self._entered.pop(client, None)
            self._skipped.pop(client, None)
            self._last_left = client

    def begin_pass(self) -> None:
        """See `Policy.begin_pass`."""
        for client in self._skipped:
            self._queues[client].show_all()
            self._enter(client)
        self._skipped.clear()

    def next(self) -> Request | None:
        """Alg. 2, lines 20-21: k = arg min c_i over Q; the oldest head wins a tie."""
        while top := self._heap.top(self._is_entered):
            counter, order, client = top
            first = self._queues[client].first()
            if first is not None and (self.ledger.value(client), first.order) == (counter, order):
                return first
            self._heap.drop()
            del self._entered[client]
            self._enter(client)
        return None

    def skip(self, request: Request) -> None:
        """See `Policy.skip`."""
        self._skipped[request.client] = None
        self._queues[request.client].hide(request)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Alg. 2, lines 24-26: charge at selection, or one client would take the whole batch."""
        self.remove(request)
        self.ledger.charge(request.client, self.cost.prompt(request.input_len, extend_len))

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Alg. 2, line 30: charge w_q for each output token.

        With a weight, as a difference of two totals: the rounding is the same in one charge or in many.
        """
        client, input_len = request.client, request.input_len
        if self.ledger.is_unweighted(client):
            self.ledger.charge(client, self.cost.outputs(input_len, before, tokens))
        else:
            charged = self.cost.outputs(input_len, 0, before)
            true = self.cost.outputs(input_len, 0, before + tokens)
            self.ledger.replace(client, charged=charged, true=true)

    def credit(self, client: ClientId) -> int:
        """Return -c_i: the client that has received most is preempted first."""
        return -self.ledger.value(client)

    def _lift(self, client: ClientId) -> None:
        """Alg. 2, lines 8-13."""
        self.ledger.lift(client, self._level())

    def _level(self) -> int:
        """Return the least counter in Q; with Q empty, that of the last client that left it."""
        if not self._queues:
            return self.ledger.value(self._last_left) if self._last_left is not None else 0
        first = self.next()
        waiting = [*self._skipped] if first is None else [first.client, *self._skipped]
        return min(self.ledger.value(client) for client in waiting)

    def _enter(self, client: ClientId) -> None:
        """Enter the client in the heap, unless its entry is true or too small already."""
        first = self._queues[client].first()
        if first is None:
            return
        truth = (self.ledger.value(client), first.order)
        entered = self._entered.get(client)
        if entered is None or truth < entered:
            self._entered[client] = truth
            self._heap.push((*truth, client), self._is_entered)

    def _is_entered(self, item: tuple[int, int, ClientId]) -> bool:
        return self._entered.get(item[2]) == item[:2]

    def _on_lowered(self, client: ClientId) -> None:
        if client in self._queues:
            self._enter(client)

    def _may_forget(self, client: ClientId) -> bool:
        """Return whether the client does not wait, and a new one would be lifted at least as high."""
        return (
            client not in self._queues
            and client != self._last_left
            and self.ledger.value(client) <= self._level()
        )

"""Virtual token counter (VTC): Sheng et al., OSDI 2024, Algorithm 2, with the repairs of DESIGN 3.3.

    c_i   virtual counter of client i: the service it has received, divided by its weight
    w_p   cost of an input token, charged at selection; w_q of an output token, charged as emitted

A client that starts to wait is lifted to the level of those who wait already, so that being away
earns nothing.
"""

from collections.abc import Callable

from fairhit.core.client_table import ClientTable
from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.policy import nothing_due
from fairhit.core.request import ClientId, Request
from fairhit.core.request_record import Prompt
from fairhit.core.service import (
    WEIGHT_SCALE,
    Cost,
    TokenCost,
    Weights,
    divide_half_up,
    parse_charge,
)
from fairhit.core.waiting.arrival_queue import ArrivalQueue


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
        self.settle: Callable[[ClientId | None], None] = nothing_due  # see `Asking`
        self._cost = cost or TokenCost()
        self._charge = parse_charge(charge)
        self._weights = weights or Weights()
        self._counters: ClientTable[int] = ClientTable(
            limit=max_clients, may_forget=self._may_forget
        )
        self._lines: dict[ClientId, ArrivalQueue] = {}  # clients with something waiting: Q
        self._passed: dict[ClientId, None] = {}
        self._last_left: ClientId | None = None
        # (c_i, order of i's first request, i). An entry may be too small, never too large: counters
        # only grow, are brought up to date at the top, and a client is entered again when an older
        # request of it comes back.
        self._heap: LazyHeap[tuple[int, int, ClientId]] = LazyHeap()
        self._entered: dict[ClientId, tuple[int, int]] = {}

    def add(self, request: Request) -> None:
        """Alg. 2, lines 5-14."""
        client = request.client
        if client not in self._lines:
            self._lift(client)
            self._lines[client] = ArrivalQueue()
        self._lines[client].add(request)
        self._enter(client)

    def remove(self, request: Request) -> None:
        """See `Ordering.remove`."""
        line = self._lines[request.client]
        line.remove(request)
        if not line:
            del self._lines[request.client]
            self._entered.pop(request.client, None)
            self._passed.pop(request.client, None)
            self._last_left = request.client

    def begin(self) -> None:
        """See `Ordering.begin`."""
        for client in self._passed:
            self._lines[client].show_all()
            self._enter(client)
        self._passed.clear()

    def next(self) -> Request | None:
        """Alg. 2, lines 20-21: k = arg min c_i over Q; the oldest head wins a tie."""
        while top := self._heap.top(self._is_entered):
            counter, order, client = top
            first = self._lines[client].first()
            if first is not None and (self._counter(client), first.order) == (counter, order):
                return first
            self._heap.drop()
            del self._entered[client]
            self._enter(client)
        return None

    def pass_over(self, request: Request) -> None:
        """See `Ordering.pass_over`."""
        self._passed[request.client] = None
        self._lines[request.client].hide(request)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Alg. 2, lines 24-26: charged at selection, or one client would take the whole batch."""
        self.remove(request)
        self._spend(request.client, self._price(request.input_len, extend_len))

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Alg. 2, line 30: w_q for each output token."""
        self._spend_outputs(request, before, before + tokens)

    def correct(self, request: Request, *, charged: Prompt, true: Prompt) -> None:
        """See `Correcting`: the share of the one replaces that of the other."""
        client = request.client
        was, now = (self._share(client, self._price(*prompt)) for prompt in (charged, true))
        if now >= was:
            self._raise(client, now - was)
        else:
            self._lower(client, was - now)

    def credit(self, client: ClientId) -> int:
        """-c_i: who has received most is owed least."""
        return -self._counter(client)

    def _counter(self, client: ClientId) -> int:
        """c_i, all that the client has emitted included. O(its running requests)."""
        self.settle(client)
        return self._counters.get(client) or 0

    def _share(self, client: ClientId, units: int) -> int:
        """Weighted VTC: what `units` of service add to c_i."""
        weight = self._weights.of(client)
        return units if weight == WEIGHT_SCALE else divide_half_up(units * WEIGHT_SCALE, weight)

    def _spend(self, client: ClientId, units: int) -> None:
        self._raise(client, self._share(client, units))

    def _spend_outputs(self, request: Request, start: int, end: int) -> None:
        """From output `start` to `end`: the same, rounding included, in one charge or in many."""
        client, input_len, decode = request.client, request.input_len, self._cost.decode
        if self._weights.of(client) == WEIGHT_SCALE:  # nothing to round
            share = decode(input_len, start, end - start)
        else:
            first, last = (self._share(client, decode(input_len, 0, at)) for at in (start, end))
            share = last - first
        self._raise(client, share)

    def _raise(self, client: ClientId, share: int) -> None:
        # Forgotten while it ran: it is charged from the level it would be lifted to.
        counter = self._counters.get(client)
        self._counters.update(client, (self._level() if counter is None else counter) + share)

    def _lower(self, client: ClientId, share: int) -> None:
        """Give back what was charged too much."""
        if client not in self._counters:  # forgotten while it ran: it is lifted when it returns
            return
        self._counters.update(client, self._counter(client) - share)
        if client in self._lines:
            self._enter(client)

    def _price(self, input_len: int, extend_len: int) -> int:
        tokens = input_len if self._charge == "input" else extend_len
        return self._cost.prefill(tokens) if tokens else 0

    def _lift(self, client: ClientId) -> None:
        """Alg. 2, lines 8-13: c_i <- max(c_i, level of those who wait, or of the last who did)."""
        level = self._level()
        if client in self._counters:
            self._counters.update(client, max(self._counter(client), level))
        else:
            self._counters.admit(client, level)

    def _level(self) -> int:
        """The least counter in Q; with Q empty, the counter of the last client that left it."""
        if not self._lines:
            return self._counter(self._last_left) if self._last_left is not None else 0
        first = self.next()
        waiting = [*self._passed] if first is None else [first.client, *self._passed]
        return min(self._counter(client) for client in waiting)

    def _enter(self, client: ClientId) -> None:
        """Enter the client in the heap, unless what is there is true or too small already."""
        first = self._lines[client].first()
        if first is None:
            return
        truth = (self._counter(client), first.order)
        entered = self._entered.get(client)
        if entered is None or truth < entered:
            self._entered[client] = truth
            self._heap.push((*truth, client), self._is_entered)

    def _is_entered(self, item: tuple[int, int, ClientId]) -> bool:
        return self._entered.get(item[2]) == item[:2]

    def _may_forget(self, client: ClientId) -> bool:
        """Not waiting, and a newcomer would be lifted at least as high."""
        return (
            client not in self._lines
            and client != self._last_left
            and self._counter(client) <= self._level()
        )

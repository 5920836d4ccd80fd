"""Service gaps between backlogged clients: the left-hand sides of the papers' theorems.

Feed it what happens, in order: who begins and ceases to be backlogged, and who is served how much.
The amounts may be any service: system view or client view, divided by weights or not.
"""

from collections.abc import Iterable
from fractions import Fraction

from fairhit.core.request import ClientId

Amount = int | Fraction


class BackloggedGaps:
    """The largest service gap of each pair over any interval in which both are backlogged.

    |W_f(t1, t2) - W_g(t1, t2)| over all t1 < t2 of an interval is the range of D = W_f - W_g in it.
    """

    def __init__(self) -> None:
        self._served: dict[ClientId, Amount] = {}
        self._backlogged: set[ClientId] = set()
        self._range: dict[tuple[ClientId, ClientId], tuple[Amount, Amount]] = {}
        self.largest: dict[tuple[ClientId, ClientId], Amount] = {}

    def begin(self, client: ClientId) -> None:
        """From now on the client has something waiting."""
        assert client not in self._backlogged
        self._backlogged.add(client)
        for other in self._backlogged - {client}:
            pair = _pair(client, other)
            gap = self._gap(pair)
            self._range[pair] = (gap, gap)
            self.largest.setdefault(pair, 0)

    def end(self, client: ClientId) -> None:
        """End the backlog of `client`, which has no waiting request any more."""
        self._backlogged.remove(client)
        for other in self._backlogged:
            del self._range[_pair(client, other)]

    def serve(self, client: ClientId, amount: Amount) -> None:
        """The client received `amount`. O(backlogged clients)."""
        self._served[client] = self._served.get(client, 0) + amount
        if client not in self._backlogged:
            return
        for other in self._backlogged - {client}:
            pair = _pair(client, other)
            gap = self._gap(pair)
            low, high = self._range[pair]
            self._range[pair] = low, high = min(low, gap), max(high, gap)
            self.largest[pair] = max(self.largest[pair], high - low)

    def _gap(self, pair: tuple[ClientId, ClientId]) -> Amount:
        first, second = pair
        return self._served.get(first, 0) - self._served.get(second, 0)


class StarvationGaps:
    """The most any client received beyond a backlogged one, over any interval of its backlog.

    W_g(t1, t2) - W_f(t1, t2), f backlogged throughout, g anything (Theorem 4.2): how far D = W_g -
    W_f rises above its lowest point in the interval.
    """

    def __init__(self, clients: Iterable[ClientId]) -> None:
        self._served: dict[ClientId, Amount] = dict.fromkeys(clients, 0)
        self._lowest: dict[tuple[ClientId, ClientId], Amount] = {}  # (f, g)
        self.largest: dict[tuple[ClientId, ClientId], Amount] = {}

    def begin(self, client: ClientId) -> None:
        """From now on the client has something waiting."""
        for other in self._served:
            if other != client:
                self._lowest[client, other] = self._served[other] - self._served[client]

    def end(self, client: ClientId) -> None:
        """End the backlog of `client`, which has no waiting request any more."""
        for other in self._served:
            self._lowest.pop((client, other), None)

    def serve(self, client: ClientId, amount: Amount) -> None:
        """The client received `amount`. O(clients)."""
        self._served[client] += amount
        for other in self._served.keys() - {client}:
            for pair in ((client, other), (other, client)):
                if pair in self._lowest:
                    ahead = self._served[pair[1]] - self._served[pair[0]]
                    self._lowest[pair] = min(self._lowest[pair], ahead)
                    rise = ahead - self._lowest[pair]
                    self.largest[pair] = max(self.largest.get(pair, 0), rise)


def _pair(first: ClientId, second: ClientId) -> tuple[ClientId, ClientId]:
    return (first, second) if first < second else (second, first)

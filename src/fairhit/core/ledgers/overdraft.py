"""Deficits with an overdraft: a client in debt may still use the prefix that it has just paid for.

Plain DLPM: a client pays for a long prefix, is thereby in debt, and must wait until all others are, too;
meanwhile they evict what it paid for. So from the charge that takes q_i from positive to not positive,
with q_i = d_i then, requests of the client that are almost wholly cached may be admitted while

    q_i > d_i - B_i

with the overdraft B_i. The debt stays until refills pay it; meanwhile such a client goes on at the rate
of its quantum, as the others do.
"""

from collections.abc import Callable
from enum import Enum

from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.ledgers.client_table import ClientTable
from fairhit.core.ledgers.deficits import Deficits
from fairhit.core.request import ClientId
from fairhit.core.service import UNITS_PER_TOKEN, WEIGHT_SCALE, Weights, parse_tokens
from fairhit.errors import ConfigError


class Standing(Enum):
    """Requests of a waiting client that may be admitted."""

    OPEN = "open"  # all: q_i > 0
    HITS = "hits"  # those whose prompt is cached: the client is within its overdraft
    CLOSED = "closed"  # none


class OverdraftDeficits(Deficits):
    """Deficits q_i, and for each client in debt the floor d_i - B_i of its overdraft.

    `overdraft` is B^u in tokens of cost, B_i = w_i * B^u, at most the quantum; 0 is none. Whenever the
    standing or the deficit of a waiting client changes, `on_change` is called with both.
    """

    def __init__(
        self,
        *,
        quantum: int,
        overdraft: int,
        on_change: Callable[[ClientId, Standing], None],
        weights: Weights | None = None,
        max_clients: int = 1_000_000,
    ) -> None:
        super().__init__(quantum=quantum, weights=weights, max_clients=max_clients)
        self.overdraft = parse_tokens(overdraft, least=0, where="overdraft")
        if overdraft > quantum:
            raise ConfigError(
                f"overdraft: expected at most the quantum, {quantum}, got {overdraft}"
            )
        self._on_change = on_change
        # d_i - B_i. A forgotten one only refuses an overdraft.
        self._floors: ClientTable[int] = ClientTable(limit=max_clients, may_forget=lambda _: True)
        # Waiting and closed: the round in which q_i is above the floor again.
        self._hit_rounds: dict[ClientId, int] = {}
        self._hit_schedule: LazyHeap[tuple[int, ClientId]] = LazyHeap()
        self.listen(on_positive=self._report_open, on_exhausted=_ignore)

    def standing(self, client: ClientId) -> Standing:
        """Return which requests of the client may be admitted. O(1)."""
        value = self.value(client)
        if value > 0:
            return Standing.OPEN
        floor = self._floors.get(client)
        return Standing.CLOSED if floor is None or value <= floor else Standing.HITS

    def place(self, client: ClientId) -> int:
        """Return the client's place among all, least first: the largest q_i / Q_i first. O(1).

        All clients in debt gain one quantum a round, so that the round is left out for them: a place
        stays true until `on_change` reports the client.
        """
        value = self.value(client)
        weight = self._weights.of(client)
        share = value if weight == WEIGHT_SCALE else value * WEIGHT_SCALE // weight
        if value > 0:
            return -share
        return self._round * self._quantum * UNITS_PER_TOKEN - share

    def join(self, client: ClientId) -> bool:
        """See `Deficits.join`; `on_change` is not called."""
        positive = super().join(client)
        self._expect_hits(client)
        return positive

    def leave(self, client: ClientId) -> None:
        """See `Deficits.leave`."""
        super().leave(client)
        self._hit_rounds.pop(client, None)

    def charge(self, client: ClientId, units: int, *, placed: bool = False) -> None:
        """Subtract `units` from q_i; below 0 the overdraft begins. O(log clients).

        `placed`: the caller reads the client's place anew, so that `on_change` need not be called while
        q_i > 0. As `Deficits.charge`, but q_i is read once: a tenth of the cost of a decision.
        """
        assert units >= 0, units
        if self.charges is not None:
            self.charges[client] = self.charges.get(client, 0) + units
        before = self.value(client)
        value = before - units
        self._records.update(client, (value, self._round))
        if value > 0:
            if not placed and client in self._positive:
                self._on_change(client, Standing.OPEN)
            return
        if before > 0 and self.overdraft:
            self._set_floor(client, value - self._overdraft_of(client))
        if client in self._positive:
            self._positive.remove(client)
            self._expect(client)
        self._report(client)

    def _overdraft_of(self, client: ClientId) -> int:
        """Return B_i in units. O(1)."""
        return self.overdraft * UNITS_PER_TOKEN // WEIGHT_SCALE * self._weights.of(client)

    def _set_floor(self, client: ClientId, floor: int) -> None:
        if client in self._floors:
            self._floors.update(client, floor)
        else:
            self._floors.admit(client, floor)

    def give_back(self, client: ClientId, units: int) -> None:
        """See `Deficits.give_back`."""
        super().give_back(client, units)
        self._report(client)

    def check_refill(self) -> list[ClientId]:
        """Refill until the first waiting client has q_i > 0, or is within its overdraft again.

        Returns these clients; none if a client with q_i > 0 waits. O(log clients) for each.
        """
        if not self.is_dry:
            return []
        self.sync(None)
        hit = self._hit_schedule.top(self._is_expected_hit)
        due = self._earliest() if hit is not None else None
        ready: list[ClientId] = []
        if hit is not None and due is not None and hit[0] < due[0]:
            self._round = hit[0]
        else:
            ready += super().check_refill()
        while (top := self._hit_schedule.top(self._is_expected_hit)) and top[0] <= self._round:
            self._hit_schedule.drop()
            ready.append(top[1])
            self._report(top[1])
        return ready

    def _report(self, client: ClientId) -> None:
        """Call `on_change` for a client that waits."""
        if client in self._positive:
            self._hit_rounds.pop(client, None)
            self._report_open(client)
        elif client in self._expected:
            self._expect_hits(client)
            self._on_change(client, self.standing(client))

    def _report_open(self, client: ClientId) -> None:
        self._on_change(client, Standing.OPEN)

    def _expect_hits(self, client: ClientId) -> None:
        """Note the round in which a closed client is within its overdraft again."""
        self._hit_rounds.pop(client, None)
        floor = self._floors.get(client)
        value = self.value(client)
        if floor is not None and value <= floor:
            rounds = (floor - value) // self.quantum_of(client) + 1
            item = (self._round + rounds, client)
            self._hit_rounds[client] = item[0]
            self._hit_schedule.push(item, self._is_expected_hit)

    def _is_expected_hit(self, item: tuple[int, ClientId]) -> bool:
        return self._hit_rounds.get(item[1]) == item[0]


def _ignore(client: ClientId) -> None:
    """Do nothing: every charge is reported already."""

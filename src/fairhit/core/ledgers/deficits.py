"""Deficits q_i of DLPM: arXiv:2501.14312v1, Algorithm 1, lines 3-8 and 12, refilled in closed form.

A refill round gives one quantum Q_i to every client whose q_i <= 0. Rounds are counted, not
performed: a record is (q_i, the round it was true at), and missed rounds are applied when the record
is read. One rule serves waiting and idle clients: of k missed rounds a client takes
min(k, floor(-q_i / Q_i) + 1), because after that many q_i > 0 (DESIGN 3.2).
"""

from collections.abc import Callable

from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.ledgers.client_table import ClientTable
from fairhit.core.policy import SyncCharges, nothing_pending
from fairhit.core.request import ClientId
from fairhit.core.service import UNITS_PER_TOKEN, WEIGHT_SCALE, Weights, parse_tokens


def _ignore(client: ClientId) -> None:
    """Stand in for a callback of `Deficits.listen` that was not given."""


class Deficits:
    """Service that each client may still receive before the next refill, in units.

    A deficit goes below zero only through work already admitted, so a client's debt is at most the
    cost of its running requests. `quantum` is Q^u in tokens; client i gets Q_i = w_i * Q^u. `sync`
    charges pending outputs, so that `is_positive` and `check_refill` decide on true deficits.
    """

    def __init__(
        self, *, quantum: int, weights: Weights | None = None, max_clients: int = 1_000_000
    ) -> None:
        self.sync: SyncCharges = nothing_pending  # see `Ledger`
        self.charges: dict[ClientId, int] | None = None
        self._quantum = parse_tokens(quantum, least=1, where="quantum")
        self._quantum_by_weight = quantum * UNITS_PER_TOKEN // WEIGHT_SCALE
        self._weights = weights or Weights()
        self._round = 0
        self._records: ClientTable[tuple[int, int]] = ClientTable(
            limit=max_clients, may_forget=self._may_forget
        )
        self._positive: set[ClientId] = set()  # waiting, q_i > 0
        # Waiting, q_i <= 0: a round before which q_i is not positive. An entry may be too early,
        # never too late, for a charge only moves that round away; the top is corrected when read.
        self._expected: dict[ClientId, int] = {}
        self._schedule: LazyHeap[tuple[int, ClientId]] = LazyHeap()
        self._on_positive: Callable[[ClientId], None] = _ignore
        self._on_exhausted: Callable[[ClientId], None] = _ignore

    def listen(
        self, *, on_positive: Callable[[ClientId], None], on_exhausted: Callable[[ClientId], None]
    ) -> None:
        """Call these whenever the deficit of a waiting client turns positive, or not positive."""
        self._on_positive, self._on_exhausted = on_positive, on_exhausted

    def __len__(self) -> int:
        """Return the number of clients with a record."""
        return len(self._records)

    def quantum_of(self, client: ClientId) -> int:
        """Return Q_i in units. O(1)."""
        return self._quantum_by_weight * self._weights.of(client)

    def value(self, client: ClientId) -> int:
        """Return q_i in units, with every missed refill, without pending outputs. O(1)."""
        q, seen = self._records.get(client) or (0, self._round)
        if q > 0 or seen == self._round:
            return q
        quantum = self.quantum_of(client)
        return q + quantum * min(self._round - seen, -q // quantum + 1)

    def is_positive(self, client: ClientId) -> bool:
        """Return whether q_i > 0 once pending outputs are charged. O(its running requests)."""
        self.sync(client)
        return self.value(client) > 0

    def charge(self, client: ClientId, units: int) -> None:
        """Subtract `units` from q_i. O(log clients)."""
        assert units >= 0, units
        if self.charges is not None:
            self.charges[client] = self.charges.get(client, 0) + units
        q = self.value(client) - units
        self._records.update(client, (q, self._round))
        if q <= 0 and client in self._positive:
            self._positive.remove(client)
            self._expect(client)
            self._on_exhausted(client)

    def give_back(self, client: ClientId, units: int) -> None:
        """Undo that much of earlier charges. O(log clients).

        q_i may exceed Q_i afterwards, if a refill ran in between. A forgotten client gets nothing.
        """
        assert units >= 0, units
        if client not in self._records:
            return
        if self.charges is not None:
            self.charges[client] = self.charges.get(client, 0) - units
        q = self.value(client) + units
        self._records.update(client, (q, self._round))
        if client not in self._expected:
            return
        if q <= 0:  # the round in which it turns positive is nearer now
            self._expect(client)
            return
        del self._expected[client]
        self._positive.add(client)
        self._notify_positive(client)

    def replace(self, client: ClientId, *, charged: int, true: int) -> None:
        """Replace an earlier charge by the true cost, both in units. O(log clients)."""
        if true > charged:
            self.charge(client, true - charged)
        else:
            self.give_back(client, charged - true)

    def join(self, client: ClientId) -> bool:
        """Add the client to those with a waiting request; return whether q_i > 0. O(log clients).

        Raises QueueFull for a new client if the table is full and no record may be forgotten.
        """
        assert client not in self._positive and client not in self._expected, client
        if client not in self._records:
            self._records.admit(client, (0, self._round))  # Alg. 1, line 12
        positive = self.value(client) > 0
        if positive:
            self._positive.add(client)
        else:
            self._expect(client)
        return positive

    def leave(self, client: ClientId) -> None:
        """Remove the client from those with a waiting request; debt or credit stays. O(1)."""
        self._positive.discard(client)
        self._expected.pop(client, None)

    @property
    def is_dry(self) -> bool:
        """Return whether clients wait and none of them has q_i > 0. O(1)."""
        return bool(self._expected) and not self._positive

    def check_refill(self) -> list[ClientId]:
        """Alg. 1, CheckRefill: return the waiting clients that turned positive; none if one was already.

        Runs as many rounds as the first of them needs, at once. O(log clients) for each returned.
        """
        if not self.is_dry:  # Alg. 1, lines 4-5
            return []
        self.sync(None)
        ready: list[ClientId] = []
        while (due := self._earliest()) and (not ready or due[0] == self._round):
            self._round, client = due  # Alg. 1, lines 6-7, all the rounds until then in one
            self._schedule.drop()
            del self._expected[client]
            self._positive.add(client)
            ready.append(client)
        assert ready and all(self.value(client) > 0 for client in ready)
        for client in ready:
            self._notify_positive(client)
        return ready

    @property
    def rounds(self) -> int:
        """Return how many refill rounds have run."""
        return self._round

    def _notify_positive(self, client: ClientId) -> None:
        self._on_positive(client)

    def _expect(self, client: ClientId) -> None:
        self._enter(client, self._due_round(client))

    def _enter(self, client: ClientId, due: int) -> None:
        self._expected[client] = due
        self._schedule.push((due, client), self._is_expected)

    def _is_expected(self, item: tuple[int, ClientId]) -> bool:
        return self._expected.get(item[1]) == item[0]

    def _due_round(self, client: ClientId) -> int:
        """Return the round in which q_i turns positive if nothing is charged until then."""
        q = self.value(client)
        return self._round if q > 0 else self._round + -q // self.quantum_of(client) + 1

    def _earliest(self) -> tuple[int, ClientId] | None:
        """Return the first round in which a waiting client turns positive, and that client."""
        while top := self._schedule.top(self._is_expected):
            expected, client = top
            due = self._due_round(client)
            if due == expected:
                return top
            assert due > expected, (client, due, expected)
            self._schedule.drop()
            self._enter(client, due)
        return None

    def _may_forget(self, client: ClientId) -> bool:
        """Return whether the client is idle and free of debt: starting again at 0 gives it no credit.

        Outputs that are pending for it are charged from 0 then.
        """
        return (
            client not in self._positive
            and client not in self._expected
            and self.value(client) >= 0
        )

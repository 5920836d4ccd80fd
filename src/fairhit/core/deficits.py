"""Deficits q_i of DLPM: arXiv:2501.14312v1, Algorithm 1, lines 3-8 and 12, refilled in closed form.

A refill round gives one quantum Q_i to every client whose q_i <= 0. Rounds are counted, not
performed: a record is (q_i, the round it was true at), and the rounds it missed are applied when it
is looked at. One rule serves the waiting and the idle: of k missed rounds a client takes
min(k, floor(-q_i / Q_i) + 1), because after that many q_i > 0 (DESIGN 3.2).
"""

from fairhit.core.client_table import ClientTable
from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import ClientId
from fairhit.core.service import UNITS_PER_TOKEN, WEIGHT_SCALE, Weights, parse_tokens


class Deficits:
    """What each client may still receive before the next refill, in units of service.

    A counter goes below zero only through work already admitted, so a client's debt is at most the
    cost of its running requests. `quantum` is Q^u in tokens; client i gets Q_i = w_i * Q^u.
    """

    def __init__(
        self, *, quantum: int, weights: Weights | None = None, max_clients: int = 1_000_000
    ) -> None:
        self._quantum = parse_tokens(quantum, least=1, where="quantum")
        self._weights = weights or Weights()
        self._round = 0
        self._records: ClientTable[tuple[int, int]] = ClientTable(
            limit=max_clients, may_forget=self._may_forget
        )
        self._solvent: set[ClientId] = set()  # waiting, q_i > 0
        # Waiting, q_i <= 0: a round in which it is not positive before. A promise may be too early,
        # never too late, for a charge only moves that round away; it is made true at the top.
        self._promised: dict[ClientId, int] = {}
        self._due: LazyHeap[tuple[int, ClientId]] = LazyHeap()

    def __len__(self) -> int:
        """The number of clients with a record."""
        return len(self._records)

    def quantum_of(self, client: ClientId) -> int:
        """Q_i in units. O(1)."""
        return self._quantum * UNITS_PER_TOKEN // WEIGHT_SCALE * self._weights.of(client)

    def value(self, client: ClientId) -> int:
        """q_i in units, with every refill it has missed. O(1)."""
        q, seen = self._records.get(client) or (0, self._round)
        if q > 0 or seen == self._round:
            return q
        quantum = self.quantum_of(client)
        return q + quantum * min(self._round - seen, -q // quantum + 1)

    def charge(self, client: ClientId, units: int) -> bool:
        """Take `units` from q_i; True while it stays positive. O(log clients)."""
        assert units >= 0, units
        q = self.value(client) - units
        self._records.update(client, (q, self._round))
        if q <= 0 and client in self._solvent:
            self._solvent.remove(client)
            self._owe(client)
        return q > 0

    def give_back(self, client: ClientId, units: int) -> bool:
        """Undo that much of a charge; True if who waits turned positive by it. O(log clients).

        q_i may exceed Q_i then, if a refill came while too much was charged. Forgotten is forgotten.
        """
        assert units >= 0, units
        if client not in self._records:
            return False
        q = self.value(client) + units
        self._records.update(client, (q, self._round))
        if client not in self._promised:
            return False
        if q <= 0:  # its round is nearer now, and no promise may be too late
            self._owe(client)
            return False
        del self._promised[client]
        self._solvent.add(client)
        return True

    def wait(self, client: ClientId) -> bool:
        """The client has something to schedule; True if q_i > 0. O(log clients).

        Raises QueueFull when it is new, the table is full and nobody may be forgotten.
        """
        assert client not in self._solvent and client not in self._promised, client
        if client not in self._records:
            self._records.admit(client, (0, self._round))  # Alg. 1, line 12
        solvent = self.value(client) > 0
        if solvent:
            self._solvent.add(client)
        else:
            self._owe(client)
        return solvent

    def leave(self, client: ClientId) -> None:
        """The client has nothing left to schedule; its debt or credit stays. O(1)."""
        self._solvent.discard(client)
        self._promised.pop(client, None)

    @property
    def is_dry(self) -> bool:
        """Whether somebody waits and nobody who waits has q_i > 0. O(1)."""
        return bool(self._promised) and not self._solvent

    def check_refill(self) -> list[ClientId]:
        """Alg. 1, CheckRefill: the waiting clients that turned positive; none if one was already.

        Runs as many rounds as the first of them needs, at once. O(log clients) for each returned.
        """
        if not self.is_dry:  # Alg. 1, lines 4-5
            return []
        ready: list[ClientId] = []
        while (due := self._earliest()) and (not ready or due[0] == self._round):
            self._round, client = due  # Alg. 1, lines 6-7, all the rounds until then in one
            self._due.drop()
            del self._promised[client]
            self._solvent.add(client)
            ready.append(client)
        assert ready and all(self.value(client) > 0 for client in ready)
        return ready

    @property
    def rounds(self) -> int:
        """How many refill rounds there have been."""
        return self._round

    def _owe(self, client: ClientId) -> None:
        self._promise(client, self._due_round(client))

    def _promise(self, client: ClientId, due: int) -> None:
        self._promised[client] = due
        self._due.push((due, client), self._is_promised)

    def _is_promised(self, item: tuple[int, ClientId]) -> bool:
        return self._promised.get(item[1]) == item[0]

    def _due_round(self, client: ClientId) -> int:
        """The round in which q_i turns positive if nothing is charged until then."""
        q = self.value(client)
        return self._round if q > 0 else self._round + -q // self.quantum_of(client) + 1

    def _earliest(self) -> tuple[int, ClientId] | None:
        """The first round in which a waiting client turns positive, and that client."""
        while top := self._due.top(self._is_promised):
            promised, client = top
            due = self._due_round(client)
            if due == promised:
                return top
            assert due > promised, (client, due, promised)
            self._due.drop()
            self._promise(client, due)
        return None

    def _may_forget(self, client: ClientId) -> bool:
        """Idle and free of debt: starting again at 0 then costs credit and never gives any.

        Neither does what it emitted and was not charged for yet: it is charged from 0 then.
        """
        return (
            client not in self._solvent and client not in self._promised and self.value(client) >= 0
        )

"""Deficits that several queues of a host share, and that other hosts keep, too: a copy of one shared ledger.

Charges made here are collected until `report` hands them to the shared ledger; `adopt` replaces the
local deficits by the ledger's, less what was charged here since that report. Between two
synchronisations, refills are applied locally to the last known deficits. A refill adds one quantum to
every waiting client, so it does not change their relative order; the shared ledger applies its own.

Queues of this host that serve different engines (lanes of the gateway) charge the same deficits. A client
joins with the first of its queues in which it waits, and leaves with the last.

An overdraft begins here: d_i is q_i when it is known here to be no longer positive, whether by a charge
made here or by the ledger. Each host has its own d_i; the shared ledger knows of none.
"""

from collections.abc import Callable, Collection, Mapping

from fairhit.core.ledgers.overdraft import OverdraftDeficits, Standing
from fairhit.core.request import ClientId, WorkerId
from fairhit.core.service import Weights
from fairhit.errors import QueueFull

# Engines that requests wait for; none: any of the fleet.
Engines = tuple[WorkerId, ...]


class SharedDeficits(OverdraftDeficits):
    """Deficits of clients that wait in this process, in others or in both; a refill considers them all.

    `on_change` of each queue in `attend` is called with clients that wait here. Without `places`, for
    policies that do not order clients by q_i, it is called only when a client's requests may be admitted, or
    may not any more.
    """

    def __init__(
        self,
        *,
        quantum: int,
        overdraft: int = 0,
        weights: Weights | None = None,
        max_clients: int = 1_000_000,
        places: bool = True,
    ) -> None:
        super().__init__(
            quantum=quantum,
            overdraft=overdraft,
            on_change=self._changed,
            weights=weights,
            max_clients=max_clients,
        )
        self._places = places
        self._queues: dict[Callable[[ClientId, Standing], None], None] = {}
        self._here: dict[
            ClientId, int
        ] = {}  # clients, by the number of queues here in which they wait
        self._elsewhere: dict[ClientId, None] = {}
        self._lanes: list[tuple[Engines, Collection[ClientId]]] = []  # the same, by engines
        # Units charged here, less those given back; None before the first report, for a host without one.
        self._unreported: dict[ClientId, int] | None = None

    def attend(self, on_change: Callable[[ClientId, Standing], None]) -> None:
        """Notify a queue of this host, which ignores clients that do not wait in it. O(1)."""
        self._queues[on_change] = None

    def quit(self, on_change: Callable[[ClientId, Standing], None]) -> None:
        """Notify the queue no longer, as nothing waits in it. O(1)."""
        self._queues.pop(on_change, None)

    @property
    def queues(self) -> int:
        """Return how many queues of this host are notified. O(1)."""
        return len(self._queues)

    def is_due_elsewhere(self, engine: WorkerId) -> bool:
        """Return whether a client with q_i > 0 waits for `engine` at another host. O(those), at C speed."""
        return any(
            not self._positive.isdisjoint(clients)
            for engines, clients in self._lanes
            if not engines or engine in engines
        )

    def charge(self, client: ClientId, units: int, *, placed: bool = False) -> None:
        """Charge as `OverdraftDeficits.charge`, and keep the charge for the next report."""
        if self._unreported is not None:
            self._unreported[client] = self._unreported.get(client, 0) + units
        super().charge(client, units, placed=placed or not self._places)

    def give_back(self, client: ClientId, units: int) -> None:
        """Give back as `Deficits.give_back`, and keep that for the next report."""
        if self._unreported is not None and client in self._records:
            self._unreported[client] = self._unreported.get(client, 0) - units
        super().give_back(client, units)

    def join(self, client: ClientId) -> bool:
        """Join as `Deficits.join`; the client may be waiting elsewhere already, or in another queue here."""
        queues = self._here.get(client, 0)
        self._here[client] = queues + 1
        positive = client in self._positive
        if queues:
            return positive
        if positive or client in self._expected:
            self._expect_hits(client)
            return positive
        try:
            return super().join(client)
        except QueueFull:
            del self._here[client]
            raise

    def leave(self, client: ClientId) -> None:
        """Leave as `Deficits.leave`, unless the client still waits elsewhere, or in another queue here."""
        queues = self._here.pop(client) - 1
        if queues:
            self._here[client] = queues
        elif client not in self._elsewhere:
            super().leave(client)
        else:
            self._hit_rounds.pop(client, None)

    def check_refill(self) -> list[ClientId]:
        """Refill as `OverdraftDeficits.check_refill`; return those of the clients that wait here."""
        return [client for client in super().check_refill() if client in self._here]

    def report(self) -> dict[ClientId, int]:
        """Return the units charged here since the last report, and begin the next one. O(1).

        The first one is empty: nothing is collected before it.
        """
        unreported, self._unreported = self._unreported, {}
        return unreported or {}

    def take_back(self, report: Mapping[ClientId, int]) -> None:
        """Add a report that was not delivered to the next one. O(clients in it)."""
        unreported = self._unreported = self._unreported or {}
        for client, units in report.items():
            unreported[client] = unreported.get(client, 0) + units

    def adopt(
        self, account: Mapping[ClientId, int], elsewhere: Mapping[Engines, Collection[ClientId]]
    ) -> None:
        """Replace q_i by those of the shared ledger, which include the last report.

        `elsewhere` are the clients that wait at other hosts, by the engines that they wait for.
        O((account + waiting) log).
        """
        for client in self._elsewhere:
            if client not in self._here:
                super().leave(client)
        self._lanes = list(elsewhere.items())
        self._elsewhere = dict.fromkeys(one for clients in elsewhere.values() for one in clients)
        for client, units in account.items():
            self._set(client, units - (self._unreported or {}).get(client, 0))
        for client in list(self._elsewhere):
            self._join_elsewhere(client)
        for client in self._here:
            self._report(client)

    def _changed(self, client: ClientId, standing: Standing) -> None:
        if client in self._here:
            for on_change in self._queues:
                on_change(client, standing)

    def _expect_hits(self, client: ClientId) -> None:
        """Note the round only of a client that waits here: of others no request can be admitted."""
        if client in self._here:
            super()._expect_hits(client)

    def _join_elsewhere(self, client: ClientId) -> None:
        if client not in self._positive and client not in self._expected:
            try:
                super().join(client)
            except QueueFull:  # the table is full: the client does not count in a refill here
                del self._elsewhere[client]

    def _set(self, client: ClientId, q: int) -> None:
        """Replace q_i; an overdraft begins if it was positive and is not any more."""
        if client in self._records:
            before = self.value(client)
            if before == q:
                return
            self._records.update(client, (q, self._round))
            if before > 0 >= q and self.overdraft:
                self._set_floor(client, q - self._overdraft_of(client))
        else:
            try:
                self._records.admit(client, (q, self._round))
            except QueueFull:
                return
        if client in self._positive or client in self._expected:
            if q > 0:
                self._expected.pop(client, None)
                self._positive.add(client)
            else:
                self._positive.discard(client)
                self._expect(client)

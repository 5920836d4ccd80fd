"""Deficits of clients that other hosts serve, too: a local copy of one shared ledger.

Charges made here are collected until `report` hands them to the shared ledger; `adopt` replaces the
local deficits by the ledger's, less what was charged here since that report. Between two
synchronisations, refills are applied locally to the last known deficits. A refill adds one quantum to
every waiting client, so it does not change their relative order; the shared ledger applies its own.
"""

from collections.abc import Collection, Mapping

from fairhit.core.ledgers.deficits import Deficits
from fairhit.core.request import ClientId
from fairhit.core.service import Weights
from fairhit.errors import QueueFull


class SharedDeficits(Deficits):
    """`Deficits` of clients that wait in this process, in others or in both; a refill considers them all."""

    def __init__(
        self, *, quantum: int, weights: Weights | None = None, max_clients: int = 1_000_000
    ) -> None:
        super().__init__(quantum=quantum, weights=weights, max_clients=max_clients)
        self._here: dict[ClientId, None] = {}  # clients with a request waiting here
        self._elsewhere: dict[ClientId, None] = {}
        self._unreported: dict[ClientId, int] = {}  # units charged here, less those given back

    def charge(self, client: ClientId, units: int) -> None:
        """Charge as `Deficits.charge`, and keep the charge for the next report."""
        self._unreported[client] = self._unreported.get(client, 0) + units
        super().charge(client, units)

    def give_back(self, client: ClientId, units: int) -> None:
        """Give back as `Deficits.give_back`, and keep that for the next report."""
        if client in self._records:
            self._unreported[client] = self._unreported.get(client, 0) - units
        super().give_back(client, units)

    def join(self, client: ClientId) -> bool:
        """Join as `Deficits.join`; the client may be waiting elsewhere already."""
        assert client not in self._here, client
        positive = client in self._positive
        if not positive and client not in self._expected:
            positive = super().join(client)
        self._here[client] = None
        return positive

    def leave(self, client: ClientId) -> None:
        """Leave as `Deficits.leave`, unless the client still waits elsewhere."""
        self._here.pop(client, None)
        if client not in self._elsewhere:
            super().leave(client)

    def check_refill(self) -> list[ClientId]:
        """Refill as `Deficits.check_refill`; return those of the clients that wait here."""
        return [client for client in super().check_refill() if client in self._here]

    def report(self) -> dict[ClientId, int]:
        """Return the units charged here since the last report, and begin the next one. O(1)."""
        unreported, self._unreported = self._unreported, {}
        return unreported

    def take_back(self, report: Mapping[ClientId, int]) -> None:
        """Add a report that was not delivered to the next one. O(clients in it)."""
        for client, units in report.items():
            self._unreported[client] = self._unreported.get(client, 0) + units

    def adopt(self, account: Mapping[ClientId, int], elsewhere: Collection[ClientId]) -> None:
        """Replace q_i by those of the shared ledger, which include the last report.

        `elsewhere` are the clients that wait at other hosts. O((account + waiting) log).
        """
        were = [client for client in self._here if client in self._positive]
        for client in self._elsewhere:
            if client not in self._here:
                super().leave(client)
        self._elsewhere = dict.fromkeys(elsewhere)
        for client, units in account.items():
            self._set(client, units - self._unreported.get(client, 0))
        for client in list(self._elsewhere):
            self._join_elsewhere(client)
        before = dict.fromkeys(were)
        for client in self._here:
            if client in self._positive and client not in before:
                self._on_positive(client)
        for client in were:
            if client not in self._positive:
                self._on_exhausted(client)

    def _notify_positive(self, client: ClientId) -> None:
        if client in self._here:
            super()._notify_positive(client)

    def _join_elsewhere(self, client: ClientId) -> None:
        if client not in self._positive and client not in self._expected:
            try:
                super().join(client)
            except QueueFull:  # the table is full: the client does not count in a refill here
                del self._elsewhere[client]

    def _set(self, client: ClientId, q: int) -> None:
        if client in self._records:
            if self.value(client) == q:
                return
            self._records.update(client, (q, self._round))
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

"""Deficits of clients that other hosts serve, too: a local copy of one shared ledger.

Charges made here are collected until `report` hands them to the shared ledger; `adopt` replaces the
local deficits by the ledger's, less what was charged here since that report. Between two
synchronisations, refills are applied locally to the last known deficits. A refill adds one quantum to
every waiting client, so it does not change their relative order; the shared ledger applies its own.

An overdraft begins here: d_i is q_i when it is known here to be no longer positive, whether by a charge
made here or by the ledger. Each host has its own d_i; the shared ledger knows of none.
"""

from collections.abc import Callable, Collection, Mapping

from fairhit.core.ledgers.overdraft import OverdraftDeficits, Standing
from fairhit.core.request import ClientId
from fairhit.core.service import Weights
from fairhit.errors import QueueFull


def _ignore(client: ClientId, standing: Standing) -> None:
    """Stand in for a callback that was not given."""


class SharedDeficits(OverdraftDeficits):
    """Deficits of clients that wait in this process, in others or in both; a refill considers them all.

    `on_change` is called with clients that wait here only.
    """

    def __init__(
        self,
        *,
        quantum: int,
        overdraft: int = 0,
        on_change: Callable[[ClientId, Standing], None] = _ignore,
        weights: Weights | None = None,
        max_clients: int = 1_000_000,
    ) -> None:
        super().__init__(
            quantum=quantum,
            overdraft=overdraft,
            on_change=self._changed,
            weights=weights,
            max_clients=max_clients,
        )
        self._on_change_here = on_change
        self._here: dict[ClientId, None] = {}  # clients with a request waiting here
        self._elsewhere: dict[ClientId, None] = {}
        self._unreported: dict[ClientId, int] = {}  # units charged here, less those given back

    def charge(self, client: ClientId, units: int, *, placed: bool = False) -> None:
        """Charge as `OverdraftDeficits.charge`, and keep the charge for the next report."""
        self._unreported[client] = self._unreported.get(client, 0) + units
        super().charge(client, units, placed=placed)

    def give_back(self, client: ClientId, units: int) -> None:
        """Give back as `Deficits.give_back`, and keep that for the next report."""
        if client in self._records:
            self._unreported[client] = self._unreported.get(client, 0) - units
        super().give_back(client, units)

    def join(self, client: ClientId) -> bool:
        """Join as `Deficits.join`; the client may be waiting elsewhere already."""
        assert client not in self._here, client
        positive = client in self._positive
        self._here[client] = None
        if positive or client in self._expected:
            self._expect_hits(client)
            return positive
        try:
            return super().join(client)
        except QueueFull:
            del self._here[client]
            raise

    def leave(self, client: ClientId) -> None:
        """Leave as `Deficits.leave`, unless the client still waits elsewhere."""
        self._here.pop(client, None)
        if client not in self._elsewhere:
            super().leave(client)
        else:
            self._hit_rounds.pop(client, None)

    def check_refill(self) -> list[ClientId]:
        """Refill as `OverdraftDeficits.check_refill`; return those of the clients that wait here."""
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
        for client in self._elsewhere:
            if client not in self._here:
                super().leave(client)
        self._elsewhere = dict.fromkeys(elsewhere)
        for client, units in account.items():
            self._set(client, units - self._unreported.get(client, 0))
        for client in list(self._elsewhere):
            self._join_elsewhere(client)
        for client in self._here:
            self._report(client)

    def _changed(self, client: ClientId, standing: Standing) -> None:
        if client in self._here:
            self._on_change_here(client, standing)

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

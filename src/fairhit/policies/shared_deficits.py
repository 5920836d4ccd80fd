"""Deficits of clients that other gateways serve, too: one account, known here as far as it was told.

What is charged here is written down until it is told (`report`); what the account says then takes the
place of what was believed here (`adopt`), less what was charged here meanwhile. In between, rounds of
refill run here by what is believed: they add the same to all who wait, so that they change nobody's
place before another, and the account has its own.
"""

from collections.abc import Collection, Mapping

from fairhit.core.deficits import Deficits
from fairhit.core.request import ClientId
from fairhit.core.service import Weights
from fairhit.errors import QueueFull


class SharedDeficits(Deficits):
    """As `Deficits`, where clients wait here, elsewhere or both: all of them have their say in a refill."""

    def __init__(
        self, *, quantum: int, weights: Weights | None = None, max_clients: int = 1_000_000
    ) -> None:
        super().__init__(quantum=quantum, weights=weights, max_clients=max_clients)
        self._here: dict[ClientId, None] = {}  # who waits here
        self._elsewhere: dict[ClientId, None] = {}
        self._untold: dict[ClientId, int] = {}  # units charged here, less those given back

    def charge(self, client: ClientId, units: int) -> bool:
        """As `Deficits.charge`, and to be told."""
        self._untold[client] = self._untold.get(client, 0) + units
        return super().charge(client, units)

    def give_back(self, client: ClientId, units: int) -> bool:
        """As `Deficits.give_back`, of who waits here, and to be told."""
        if client in self._records:
            self._untold[client] = self._untold.get(client, 0) - units
        return super().give_back(client, units) and client in self._here

    def wait(self, client: ClientId) -> bool:
        """As `Deficits.wait`; it may be waiting elsewhere already."""
        assert client not in self._here, client
        solvent = client in self._solvent
        if not solvent and client not in self._promised:
            solvent = super().wait(client)
        self._here[client] = None
        return solvent

    def leave(self, client: ClientId) -> None:
        """As `Deficits.leave`; it may go on waiting elsewhere."""
        self._here.pop(client, None)
        if client not in self._elsewhere:
            super().leave(client)

    def check_refill(self) -> list[ClientId]:
        """As `Deficits.check_refill`: those who wait here."""
        return [client for client in super().check_refill() if client in self._here]

    def report(self) -> dict[ClientId, int]:
        """What was charged here since the last report, in units. O(1)."""
        untold, self._untold = self._untold, {}
        return untold

    def take_back(self, report: Mapping[ClientId, int]) -> None:
        """The report did not arrive: it is part of the next. O(clients in it)."""
        for client, units in report.items():
            self._untold[client] = self._untold.get(client, 0) + units

    def adopt(
        self, account: Mapping[ClientId, int], elsewhere: Collection[ClientId]
    ) -> tuple[list[ClientId], list[ClientId]]:
        """q_i as the account has them with our last report, and who waits elsewhere.

        Of those who wait here: who turned positive, and who did not stay so. O((account + waiting) log).
        """
        were = [client for client in self._here if client in self._solvent]
        for client in self._elsewhere:
            if client not in self._here:
                super().leave(client)
        self._elsewhere = dict.fromkeys(elsewhere)
        for client, units in account.items():
            self._believe(client, units - self._untold.get(client, 0))
        for client in list(self._elsewhere):
            self._wait_elsewhere(client)
        before = dict.fromkeys(were)
        opened = [one for one in self._here if one in self._solvent and one not in before]
        return opened, [client for client in were if client not in self._solvent]

    def _wait_elsewhere(self, client: ClientId) -> None:
        if client not in self._solvent and client not in self._promised:
            try:
                super().wait(client)
            except QueueFull:  # nobody has a record to spare: here it does not count
                del self._elsewhere[client]

    def _believe(self, client: ClientId, q: int) -> None:
        if client in self._records:
            if self.value(client) == q:
                return
            self._records.update(client, (q, self._round))
        else:
            try:
                self._records.admit(client, (q, self._round))
            except QueueFull:
                return
        if client in self._solvent or client in self._promised:
            if q > 0:
                self._promised.pop(client, None)
                self._solvent.add(client)
            else:
                self._solvent.discard(client)
                self._owe(client)

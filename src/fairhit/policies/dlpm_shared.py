"""DLPM whose clients other hosts serve, too: arXiv:2501.14312v1, Algorithm 1, with one account of q_i.

    q_i, Q_i   as in dlpm.py; q_i over all hosts, as far as this one was told (policies/shared_deficits.py)

A waiting request elsewhere counts in CheckRefill as one here does. So while somebody waits elsewhere
with q_i > 0, who has none left waits here, though there may be room: it is the other's turn.
"""

from collections.abc import Collection, Mapping

from fairhit.core.cache.cache_view import Cache
from fairhit.core.request import ClientId
from fairhit.core.service import Cost, Weights
from fairhit.policies.dlpm import DLPM
from fairhit.policies.shared_deficits import SharedDeficits


class DLPMShared(DLPM):
    """Keeps `Sharing`: tells what it charged, and adopts what all of them did."""

    def __init__(
        self,
        *,
        cache: Cache,
        quantum: int = 4096,
        cost: Cost | None = None,
        weights: Weights | None = None,
        max_clients: int = 1_000_000,
    ) -> None:
        super().__init__(
            cache=cache, quantum=quantum, cost=cost, weights=weights, max_clients=max_clients
        )
        self._shared = SharedDeficits(quantum=quantum, weights=weights, max_clients=max_clients)
        self._deficits = self._shared

    def report(self) -> Mapping[ClientId, int]:
        """What was charged here since the last report, in units. O(1)."""
        return self._shared.report()

    def take_back(self, report: Mapping[ClientId, int]) -> None:
        """That report did not arrive. O(clients in it)."""
        self._shared.take_back(report)

    def adopt(self, account: Mapping[ClientId, int], elsewhere: Collection[ClientId]) -> None:
        """q_i of the account, and who waits elsewhere. O((account + waiting) log)."""
        opened, closed = self._shared.adopt(account, elsewhere)
        for client in opened:
            self._open(client)
        for client in closed:
            self._close(client)

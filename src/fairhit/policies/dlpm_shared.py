"""DLPM whose clients other hosts serve, too: arXiv:2501.14312v1, Algorithm 1, with one shared ledger of q_i.

    q_i, Q_i   as in dlpm.py; q_i over all hosts, as of the last synchronisation
               (core/ledgers/shared_deficits.py)

A request that waits elsewhere counts in CheckRefill like one that waits here. While a client with
q_i > 0 waits elsewhere, clients without credit wait here, even beside free capacity.
"""

from collections.abc import Collection, Mapping

from fairhit.core.cache.cache_view import Cache
from fairhit.core.ledgers.shared_deficits import SharedDeficits
from fairhit.core.request import ClientId
from fairhit.core.service import Cost, Weights
from fairhit.policies.dlpm import DLPM


class DLPMShared(DLPM):
    """Implements `SharingDeficits`: reports its own charges, and adopts the deficits of all hosts."""

    def __init__(
        self,
        *,
        cache: Cache,
        quantum: int = 4096,
        cost: Cost | None = None,
        weights: Weights | None = None,
        max_clients: int = 1_000_000,
    ) -> None:
        super().__init__(cache=cache, cost=cost)
        self._shared = SharedDeficits(quantum=quantum, weights=weights, max_clients=max_clients)
        self._shared.listen(on_positive=self._queue.open, on_exhausted=self._queue.close)
        self.ledger = self._shared

    def report(self) -> Mapping[ClientId, int]:
        """Return the units charged here since the last report. O(1)."""
        return self._shared.report()

    def take_back(self, report: Mapping[ClientId, int]) -> None:
        """Add a report that was not delivered to the next one. O(clients in it)."""
        self._shared.take_back(report)

    def adopt(self, account: Mapping[ClientId, int], elsewhere: Collection[ClientId]) -> None:
        """Replace q_i by the shared ledger's; `elsewhere` wait at other hosts. O((account + waiting) log)."""
        self._shared.adopt(account, elsewhere)

    def quantum_of(self, client: ClientId) -> int:
        """Return Q_i in units."""
        return self._shared.quantum_of(client)

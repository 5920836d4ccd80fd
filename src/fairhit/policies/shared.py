"""DLPM and `fair` for clients that other hosts serve, too, with one shared ledger of q_i.

    q_i, Q_i, d_i, B_i   as in dlpm.py and fair.py; q_i over all hosts, as of the last synchronisation
                         (core/ledgers/shared_deficits.py)

A request that waits elsewhere counts in CheckRefill like one that waits here. While a client with
q_i > 0 waits elsewhere, clients without credit wait here, even beside free capacity, but for what the
overdraft of `fair` admits.
"""

from fairhit.core.ledgers.overdraft import OverdraftDeficits, Standing
from fairhit.core.ledgers.shared_deficits import SharedDeficits
from fairhit.core.request import ClientId
from fairhit.core.service import Cost, Weights
from fairhit.core.waiting.cache_listener import AnyCache
from fairhit.policies.dlpm import DLPM
from fairhit.policies.fair import Fair


class DLPMShared(DLPM):
    """DLPM over `SharedDeficits`."""

    def __init__(
        self,
        *,
        cache: AnyCache,
        quantum: int = 4096,
        cost: Cost | None = None,
        weights: Weights | None = None,
        max_clients: int = 1_000_000,
    ) -> None:
        super().__init__(cache=cache, cost=cost)
        self.ledger = SharedDeficits(
            quantum=quantum, on_change=self._place, weights=weights, max_clients=max_clients
        )

    def _place(self, client: ClientId, standing: Standing) -> None:
        if standing is Standing.OPEN:
            self._queue.open(client)
        else:
            self._queue.close(client)


class FairShared(Fair):
    """`fair` over `SharedDeficits`; expected outputs are each host's own."""

    def _make_ledger(
        self, *, quantum: int, overdraft: int, weights: Weights | None, max_clients: int
    ) -> OverdraftDeficits:
        return SharedDeficits(
            quantum=quantum,
            overdraft=overdraft,
            on_change=self._place,
            weights=weights,
            max_clients=max_clients,
        )


# By the name of the policy that they share.
SHARED = {"dlpm": DLPMShared, "fair": FairShared}

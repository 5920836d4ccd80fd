"""DLPM and `fair` for clients that other queues and other hosts serve, too, with one shared ledger of q_i.

    q_i, Q_i, d_i, B_i   as in dlpm.py and fair.py; q_i over all queues of this host, and over all hosts as of
                         the last synchronisation (core/ledgers/shared_deficits.py)

A request that waits elsewhere counts in CheckRefill like one that waits here. While a client with
q_i > 0 waits elsewhere, clients without credit wait here, even beside free capacity, but for what the
overdraft of `fair` admits.
"""

from fairhit.core.ledgers.overdraft import OverdraftDeficits, Standing
from fairhit.core.ledgers.shared_deficits import SharedDeficits
from fairhit.core.request import ClientId, Request
from fairhit.core.service import Cost, Weights
from fairhit.core.waiting.cache_listener import AnyCache
from fairhit.policies.dlpm import DLPM
from fairhit.policies.fair import Fair


class DLPMShared(DLPM):
    """DLPM over `SharedDeficits`: those of `ledger`, another queue's, or new ones."""

    def __init__(
        self,
        *,
        cache: AnyCache,
        quantum: int = 4096,
        cost: Cost | None = None,
        weights: Weights | None = None,
        max_clients: int = 1_000_000,
        ledger: SharedDeficits | None = None,
    ) -> None:
        super().__init__(cache=cache, cost=cost)
        if ledger is None:
            ledger = SharedDeficits(
                quantum=quantum, weights=weights, max_clients=max_clients, places=False
            )
        self.shared = ledger
        self.ledger = self.shared

    def add(self, request: Request) -> None:
        """See `DLPM.add`."""
        self.shared.attend(self._place)
        super().add(request)

    def remove(self, request: Request) -> None:
        """See `DLPM.remove`."""
        super().remove(request)
        if not len(self._queue):
            self.shared.quit(self._place)

    def lend(self, client: ClientId) -> Request | None:
        """Return the best match of a waiting client that is not due: who is due waits for other engines."""
        self._queue.open(client)
        request = self._queue.best()
        self._place(client, self.shared.standing(client))
        return request

    def _place(self, client: ClientId, standing: Standing) -> None:
        if standing is Standing.OPEN:
            self._queue.open(client)
        else:
            self._queue.close(client)


class FairShared(Fair):
    """`fair` over `SharedDeficits`, as `DLPMShared`; expected outputs are each queue's own."""

    def __init__(
        self,
        *,
        cache: AnyCache,
        quantum: int = 1024,
        overdraft: int | None = None,
        near: int = 256,
        eviction: str = "lru",
        prepay: str = "expected",
        cost: Cost | None = None,
        weights: Weights | None = None,
        max_clients: int = 1_000_000,
        ledger: SharedDeficits | None = None,
    ) -> None:
        if ledger is None:
            ledger = SharedDeficits(
                quantum=quantum,
                overdraft=min(1024, quantum) if overdraft is None else overdraft,
                weights=weights,
                max_clients=max_clients,
            )
        self.shared = ledger
        super().__init__(
            cache=cache,
            near=near,
            eviction=eviction,
            prepay=prepay,
            cost=cost,
            max_clients=max_clients,
        )

    def add(self, request: Request) -> None:
        """See `Fair.add`."""
        self.shared.attend(self._place)
        super().add(request)

    def remove(self, request: Request) -> None:
        """See `Fair.remove`."""
        super().remove(request)
        if not len(self._queue):
            self.shared.quit(self._place)

    def lend(self, client: ClientId) -> Request | None:
        """See `DLPMShared.lend`."""
        self._queue.open(client)
        request = self._queue.best()
        self._place(client, self.shared.standing(client))
        return request

    def _make_ledger(
        self, *, quantum: int, overdraft: int, weights: Weights | None, max_clients: int
    ) -> OverdraftDeficits:
        return self.shared


# By the name of the policy that they share.
SHARED = {"dlpm": DLPMShared, "fair": FairShared}

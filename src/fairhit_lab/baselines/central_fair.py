"""One queue for all workers, bound late, under the rules of `fair`: docs/explanation/fair.md, Algorithm 3.

As `central_dlpm`, with these differences: the charge is engine time; a client in debt may use its overdraft
for prompts that are nine tenths cached at the worker that asks; nearly equal matches go to the client with
the largest q_i / Q_i; each worker's cache evicts last what any waiting prompt wants. Deficits and overdraft
are the fleet's. No outputs are prepaid. Of the workers' fits that of the worker added last gives the prices:
the workers of a simulation are alike.
"""

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.costs import ENGINE
from fairhit.core.ledgers.overdraft import OverdraftDeficits, Standing
from fairhit.core.request import ClientId
from fairhit.core.service import Cost, Weights, parse_tokens
from fairhit.core.waiting.cache_listener import waiting_index
from fairhit.core.waiting.index import WaitingIndex
from fairhit_lab.baselines.central_dlpm import CentralDLPM


class CentralFair(CentralDLPM):
    """A central queue whose deficits have an overdraft; the other settings are those of `CentralDLPM`.

    `quantum`, `overdraft` and `near` in tokens, as those of `Fair`; `eviction` "wanted-last" or "lru".
    """

    def __init__(
        self,
        *,
        quantum: int = 1024,
        overdraft: int | None = None,
        near: int = 256,
        eviction: str = "wanted-last",
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "extend",
        max_clients: int = 1_000_000,
        round_trip_us: int = 200,
        work_us: int = 100,
    ) -> None:
        self._overdraft = min(1024, quantum) if overdraft is None else overdraft
        self._near = parse_tokens(near, least=1, where="near")
        self._keeps_wanted = eviction == "wanted-last"
        super().__init__(
            quantum=quantum,
            cost=cost or ENGINE,
            weights=weights,
            charge=charge,
            max_clients=max_clients,
            round_trip_us=round_trip_us,
            work_us=work_us,
        )

    def make_index(self, cache: RadixTree | BlockCache) -> WaitingIndex:
        """Return the index of the queue by one worker's cache, near matches by standing."""
        return waiting_index(
            cache, near=self._near, standing=self._ledger.place, keeps_wanted=self._keeps_wanted
        )

    def standing(self, client: ClientId) -> Standing:
        """Return which requests of the client may be admitted."""
        return self._ledger.standing(client)

    def _make_deficits(
        self, quantum: int, weights: Weights | None, max_clients: int
    ) -> OverdraftDeficits:
        self._ledger = OverdraftDeficits(
            quantum=quantum,
            overdraft=self._overdraft,
            on_change=self.place,
            weights=weights,
            max_clients=max_clients,
        )
        return self._ledger

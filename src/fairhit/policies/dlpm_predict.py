"""DLPM that charges outputs in advance: arXiv:2501.14312v1, Algorithm 1, with VTC's Algorithm 3.

    q_i, Q_i, w_e, w_q   as in dlpm.py

With plain DLPM a client whose q_i is just positive may fill the memory before its first output costs
anything, which is the term w_q * M of the bound. Here the expected outputs are charged at admission,
further ones when emitted, and what was not emitted is given back at the end. A client's received
service then lags behind its charges, so no bound is shown.
"""

from fairhit.core.ledgers.expected_outputs import ExpectedOutputs, PrepaidOutputs
from fairhit.core.request import Request
from fairhit.core.service import Cost, Weights
from fairhit.core.waiting.cache_listener import AnyCache
from fairhit.policies.dlpm import DLPM


class DLPMPredict(DLPM):
    """DLPM that expects the mean of the client's last five finished outputs; 0 before the first."""

    def __init__(
        self,
        *,
        cache: AnyCache,
        quantum: int = 4096,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "extend",
        max_overtake: int | None = None,
        max_clients: int = 1_000_000,
    ) -> None:
        super().__init__(
            cache=cache,
            quantum=quantum,
            cost=cost,
            weights=weights,
            charge=charge,
            max_overtake=max_overtake,
            max_clients=max_clients,
        )
        self._expected = ExpectedOutputs(max_clients=max_clients)
        self._prepaid = PrepaidOutputs(self.ledger, self.cost, self._expected.of)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Alg. 1, lines 22-24, then Alg. 3, line 25: the expected outputs."""
        super().on_admit(request, extend_len=extend_len)
        self._prepaid.on_admit(request)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Alg. 3, lines 32-35: only what exceeds the prediction."""
        self._prepaid.on_decode(request, before=before, tokens=tokens)

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """Alg. 3, lines 36-37: give back what was not emitted."""
        self._prepaid.on_end(request, output_len)
        if finished:
            self._expected.finished(request.client, output_len)

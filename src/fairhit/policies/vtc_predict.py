"""VTC with length prediction: Sheng et al., OSDI 2024, Algorithm 3, with the repairs of DESIGN 3.3.

Expected outputs are charged at selection, so that a client's requests are not all admitted before the
first of them has cost anything. What was predicted too high is given back at the end.

    c_i, w_p, w_q   as in vtc.py; with any cost, "w_q for n outputs" is h(input, n) - h(input, 0)
"""

from collections.abc import Callable

from fairhit.core.ledgers.expected_outputs import ExpectedOutputs, PrepaidOutputs
from fairhit.core.request import Request
from fairhit.core.service import Cost, Weights
from fairhit.policies.vtc import VTC


class PrepaidVTC(VTC):
    """VTC that charges `predict(request)` outputs at selection; Alg. 3 but for its predictor."""

    def __init__(
        self,
        *,
        predict: Callable[[Request], int],
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "input",
        max_clients: int = 1_000_000,
    ) -> None:
        super().__init__(cost=cost, weights=weights, charge=charge, max_clients=max_clients)
        self._prepaid = PrepaidOutputs(self.ledger, self.cost, predict)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Alg. 3, lines 24-25: the prompt, and the expected outputs."""
        super().on_admit(request, extend_len=extend_len)
        self._prepaid.on_admit(request)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Alg. 3, lines 32-35: only what exceeds the prediction."""
        self._prepaid.on_decode(request, before=before, tokens=tokens)

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """Alg. 3, lines 36-37: give back what was not emitted."""
        self._prepaid.on_end(request, output_len)


class VTCPredict(PrepaidVTC):
    """VTC that expects the mean of the client's last five finished outputs; 0 before the first."""

    def __init__(
        self,
        *,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "input",
        max_clients: int = 1_000_000,
    ) -> None:
        self._expected = ExpectedOutputs(max_clients=max_clients)
        super().__init__(
            predict=self._expected.of,
            cost=cost,
            weights=weights,
            charge=charge,
            max_clients=max_clients,
        )

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """Give back what was not emitted; a cancelled request tells nothing about lengths."""
        super().on_end(request, output_len=output_len, finished=finished)
        if finished:
            self._expected.finished(request.client, output_len)

"""VTC with a predictor that is off by up to half: "VTC (+-50 %)" of Sheng et al., OSDI 2024, App. B.3."""

from random import Random

from fairhit.core.request import Request
from fairhit.core.service import Cost, Weights
from fairhit.policies.vtc_predict import PrepaidVTC
from fairhit_lab.baselines.vtc_oracle import OutputLen, most

# A value "within 50 % of the actual output length, either above or below".
LEAST, MOST = 0.5, 1.5


class VTCNoisy(PrepaidVTC):
    """VTC that charges at selection a length drawn evenly from 50 to 150 % of the true one.

    `output_len` returns the true length; None is max_tokens. One draw from `seed` each selection.
    """

    def __init__(
        self,
        *,
        output_len: OutputLen | None = None,
        seed: int = 0,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "input",
        max_clients: int = 1_000_000,
    ) -> None:
        self._output_len = output_len or most
        self._rng = Random(seed)
        super().__init__(
            predict=self._draw, cost=cost, weights=weights, charge=charge, max_clients=max_clients
        )

    def _draw(self, request: Request) -> int:
        return round(self._output_len(request) * self._rng.uniform(LEAST, MOST))

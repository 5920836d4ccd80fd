"""DLPM that charges outputs before they come: arXiv:2501.14312v1, Algorithm 1, with VTC's Algorithm 3.

    q_i, Q_i, w_e, w_q   as in dlpm.py

With plain DLPM a client whose q_i is just positive may fill the memory before the first output costs
it anything, which is the term w_q * M of the bound. Here the outputs that are expected are charged at
admission, those beyond as they come, and what did not come is given back at the end. The service that
a client has received then lags behind what it was charged, so no bound is shown.
"""

from fairhit.core.cache.cache_view import Cache
from fairhit.core.request import Request, RequestId
from fairhit.core.service import Cost, Weights
from fairhit.policies.dlpm import DLPM
from fairhit.policies.expected_outputs import ExpectedOutputs


class DLPMPredict(DLPM):
    """DLPM that expects the mean of the client's last five finished outputs; at first nothing."""

    def __init__(
        self,
        *,
        cache: Cache,
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
        self._predicted: dict[RequestId, int] = {}  # of the admitted requests

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Alg. 1, lines 22-24, and Alg. 3, line 25: the outputs it is expected to have."""
        super().on_admit(request, extend_len=extend_len)
        if request.id in self._predicted:  # a longer prompt of a session that runs already
            return
        predicted = min(self._expected.of(request), request.max_tokens)  # as in PrepaidVTC
        self._predicted[request.id] = predicted
        if predicted:
            self._spend(request.client, self._cost.decode(request.input_len, 0, predicted))

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Alg. 3, lines 32-35: only what exceeds the prediction is charged as it comes."""
        start = max(before, self._predicted[request.id])
        beyond = before + tokens - start
        if beyond > 0:
            self._spend(request.client, self._cost.decode(request.input_len, start, beyond))

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """Alg. 3, lines 36-37: what did not come is given back; after an abort, too."""
        predicted = self._predicted.pop(request.id)
        if output_len < predicted:
            missing = self._cost.decode(request.input_len, output_len, predicted - output_len)
            if self._deficits.give_back(request.client, missing):
                self._open(request.client)
        if finished:
            self._expected.finished(request.client, output_len)

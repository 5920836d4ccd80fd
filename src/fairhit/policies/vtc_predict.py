"""VTC with length prediction: Sheng et al., OSDI 2024, Algorithm 3, with the repairs of DESIGN 3.3.

Outputs that will come are charged at selection, so that one client's requests do not all get in
before the first of them has cost anything. What was predicted too much is given back at the end.

    c_i, w_p, w_q   as in vtc.py; with any cost, "w_q for n outputs" is h(input, n) - h(input, 0)
"""

from fairhit.core.request import Request, RequestId
from fairhit.core.service import Cost, Weights
from fairhit.policies.expected_outputs import ExpectedOutputs
from fairhit.policies.vtc import VTC


class PrepaidVTC(VTC):
    """VTC that charges `_predict(request)` outputs at selection; Alg. 3 but for its predictor.

    A prediction above max_tokens counts as max_tokens: more can never come, and a client could be
    kept waiting for outputs that nobody reserved memory for.
    """

    def __init__(
        self,
        *,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "input",
        max_clients: int = 1_000_000,
    ) -> None:
        super().__init__(cost=cost, weights=weights, charge=charge, max_clients=max_clients)
        self._predicted: dict[RequestId, int] = {}  # of the admitted requests

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Alg. 3, lines 24-25: the prompt, and the outputs it is expected to have."""
        super().on_admit(request, extend_len=extend_len)
        if request.id in self._predicted:  # a longer prompt of a session that runs already
            return
        predicted = min(self._predict(request), request.max_tokens)
        self._predicted[request.id] = predicted
        self._spend(request.client, self._cost.decode(request.input_len, 0, predicted))

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Alg. 3, lines 32-35: only what exceeds the prediction is charged as it comes."""
        start = max(before, self._predicted[request.id])
        beyond = before + tokens - start
        if beyond > 0:
            self._spend_outputs(request, start, start + beyond)

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """Alg. 3, lines 36-37: what did not come is given back; after an abort, too."""
        predicted = self._predicted.pop(request.id)
        if output_len < predicted:
            self._refund(request, predicted, output_len)

    def _predict(self, request: Request) -> int:
        """How many outputs to charge at selection."""
        raise NotImplementedError

    def _refund(self, request: Request, predicted: int, output_len: int) -> None:
        """Leave of the charge for `predicted` outputs only that for `output_len`."""
        client = request.client
        charged, due = (
            self._share(client, self._cost.decode(request.input_len, 0, outputs))
            for outputs in (predicted, output_len)
        )
        self._lower(client, charged - due)


class VTCPredict(PrepaidVTC):
    """VTC that expects the mean of the client's last five finished outputs; at first nothing."""

    def __init__(
        self,
        *,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "input",
        max_clients: int = 1_000_000,
    ) -> None:
        super().__init__(cost=cost, weights=weights, charge=charge, max_clients=max_clients)
        self._expected = ExpectedOutputs(max_clients=max_clients)

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """As every prepaid VTC; a request that was cut off says nothing of the length of others."""
        super().on_end(request, output_len=output_len, finished=finished)
        if finished:
            self._expected.finished(request.client, output_len)

    def _predict(self, request: Request) -> int:
        """See `ExpectedOutputs`."""
        return self._expected.of(request)

"""Outputs charged before they are emitted: VTC (OSDI 2024), section 5.1 and Algorithm 3."""

from collections import deque
from collections.abc import Callable

from fairhit.core.client_table import ClientTable
from fairhit.core.policy import Ledger
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.service import ServiceCost, divide_half_up

# "The average output length of the last five requests from each client."
REMEMBERED = 5


class ExpectedOutputs:
    """The mean of each client's last five finished outputs; 0 before the first.

    Kept for at most `max_clients` clients; a forgotten client starts again.
    """

    def __init__(self, *, max_clients: int) -> None:
        self._recent: ClientTable[deque[int]] = ClientTable(
            limit=max_clients, may_forget=lambda _: True
        )

    def of(self, request: Request) -> int:
        """Return the expected output length in whole tokens, rounded half up; may exceed max_tokens. O(1)."""
        recent = self._recent.get(request.client)
        return divide_half_up(sum(recent), len(recent)) if recent else 0

    def finished(self, client: ClientId, output_len: int) -> None:
        """Record the output length of a finished request, not of a cancelled one. O(1)."""
        recent = self._recent.get(client)
        if recent is None:
            recent = deque(maxlen=REMEMBERED)
            self._recent.admit(client, recent)
        recent.append(output_len)


class PrepaidOutputs:
    """Charges `predict(request)` outputs at admission; Alg. 3 of VTC but for its predictor.

    A prediction above max_tokens counts as max_tokens: more can never be emitted, and a client could
    be kept waiting for outputs that no memory was reserved for.
    """

    def __init__(
        self, ledger: Ledger, cost: ServiceCost, predict: Callable[[Request], int]
    ) -> None:
        self._ledger = ledger
        self._cost = cost
        self._predict = predict
        self._predicted: dict[RequestId, int] = {}  # of the admitted requests

    def on_admit(self, request: Request) -> None:
        """Alg. 3, line 25: charge the outputs that the request is expected to have."""
        if request.id in self._predicted:  # a longer prompt of a session that runs already
            return
        predicted = self._predicted[request.id] = min(self._predict(request), request.max_tokens)
        self._replace(request, 0, predicted)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Alg. 3, lines 32-35: charge only what exceeds the prediction."""
        start, end = max(before, self._predicted[request.id]), before + tokens
        if end > start:
            self._replace(request, start, end)

    def on_end(self, request: Request, output_len: int) -> None:
        """Alg. 3, lines 36-37: give back what was not emitted; after an abort, too."""
        predicted = self._predicted.pop(request.id)
        if output_len < predicted:
            self._replace(request, predicted, output_len)

    def _replace(self, request: Request, charged: int, true: int) -> None:
        """Replace the charge for `charged` outputs by that for `true` outputs."""
        if charged == true:
            return
        outputs, input_len = self._cost.outputs, request.input_len
        self._ledger.replace(
            request.client, charged=outputs(input_len, 0, charged), true=outputs(input_len, 0, true)
        )

"""Outputs charged before they are emitted: VTC (OSDI 2024), section 5.1 and Algorithm 3."""

from collections import deque
from collections.abc import Callable

from fairhit.core.ledgers.client_table import ClientTable
from fairhit.core.policy import Ledger
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.service import Cost, ServiceCost, divide_half_up

# "The average output length of the last five requests from each client."
REMEMBERED = 5


class ExpectedOutputs:
    """The mean of each client's last five finished outputs; `first` tokens before the first.

    Kept for at most `max_clients` clients; a forgotten client starts again.
    """

    def __init__(self, *, max_clients: int, first: int = 0) -> None:
        self._first = first
        # The last outputs and their mean, which each admission reads and each end changes.
        self._recent: ClientTable[tuple[deque[int], int]] = ClientTable(
            limit=max_clients, may_forget=lambda _: True
        )

    def of(self, request: Request) -> int:
        """Return the expected output length in whole tokens, rounded half up; may exceed max_tokens. O(1)."""
        recent = self._recent.get(request.client)
        return recent[1] if recent else self._first

    def finished(self, client: ClientId, output_len: int) -> None:
        """Record the output length of a finished request, not of a cancelled one. O(1)."""
        known = self._recent.get(client)
        recent = known[0] if known else deque(maxlen=REMEMBERED)
        recent.append(output_len)
        record = recent, divide_half_up(sum(recent), len(recent))
        if known:
            self._recent.update(client, record)
        else:
            self._recent.admit(client, record)


class UnpaidOutputs:
    """Expected outputs of running requests that are charged when they are emitted, up to a limit per client.

    `limit` is in units of cost. Within it a burst of requests is admitted as by plain DLPM; beyond it the
    outputs are to be charged at admission.
    """

    def __init__(
        self, expected: Callable[[Request], int], cost: ServiceCost, *, limit: int
    ) -> None:
        self._expected = expected
        self._cost = cost
        self._limit = limit
        self._of_client: dict[ClientId, int] = {}
        self._of_request: dict[RequestId, int] = {}

    def to_prepay(self, request: Request) -> int:
        """Return how many outputs of a request that is admitted now are to be charged in advance. O(1)."""
        outputs = self._expected(request)
        outputs = min(outputs, request.max_tokens)
        if request.id in self._of_request or not outputs:  # a session that runs already
            return 0
        client = request.client
        units = self._cost.outputs(request.input_len, 0, outputs)
        unpaid = self._of_client.get(client, 0) + units
        if unpaid > self._limit:
            return outputs
        self._of_client[client] = unpaid
        self._of_request[request.id] = units
        return 0

    def on_end(self, request: Request) -> None:
        """Forget an admitted request. O(1)."""
        units = self._of_request.pop(request.id, 0)
        if not units:
            return
        left = self._of_client[request.client] - units
        if left:
            self._of_client[request.client] = left
        else:
            del self._of_client[request.client]


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
        # Of the admitted requests: the expected outputs, and the cost at admission.
        self._predicted: dict[RequestId, tuple[int, Cost]] = {}

    def on_admit(self, request: Request) -> None:
        """Alg. 3, line 25: charge the outputs that the request is expected to have."""
        self._ledger.replace(request.client, charged=0, true=self.expect(request))

    def expect(self, request: Request) -> int:
        """Note the expected outputs of an admitted request; return their cost, for the caller to charge."""
        if request.id in self._predicted:  # a longer prompt of a session that runs already
            return 0
        predicted, cost = self._predict(request), self._cost.current
        predicted = min(predicted, request.max_tokens)
        self._predicted[request.id] = predicted, cost
        return cost.decode(request.input_len, 0, predicted) if predicted else 0

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Alg. 3, lines 32-35: charge only what exceeds the prediction."""
        predicted, cost = self._predicted[request.id]
        start, end = max(before, predicted), before + tokens
        if end > start:
            self._replace(request, cost, start, end)

    def on_end(self, request: Request, output_len: int) -> None:
        """Alg. 3, lines 36-37: give back what was not emitted; after an abort, too."""
        predicted, cost = self._predicted.pop(request.id)
        if output_len < predicted:
            self._replace(request, cost, predicted, output_len)

    def _replace(self, request: Request, cost: Cost, charged: int, true: int) -> None:
        """Replace the charge for `charged` outputs by that for `true` outputs."""
        self._ledger.replace(
            request.client,
            charged=cost.decode(request.input_len, 0, charged),
            true=cost.decode(request.input_len, 0, true),
        )

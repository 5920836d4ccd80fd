"""Weighted service counter (WSC) of FairServe: arXiv:2411.15997, its scheduler without its throttling.

    c_i   counter of client i: its requests' service, each divided by its application's expected service
    E     expected service of a request of the application

VTC makes an application of long requests wait for one of short ones; by WSC a typical request of each counts
as one. Only the abstract was read. Chosen here: a client is one application, as a request names no other;
E is the mean over the client's finished requests, taken at admission, and before the first of them the
request's own service with max_tokens outputs. Clients are lifted as in VTC. Requests are not throttled
at the borders of interactions.
"""

from fairhit.core.request import ClientId, Request
from fairhit.core.service import Cost, Weights
from fairhit.policies.vtc import VTC

# What a request of the expected service adds to its client's counter.
ONE_REQUEST = 10**12


class WSC(VTC):
    """VTC with each request's service divided by what is expected of its client's requests."""

    def __init__(
        self,
        *,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "input",
        max_clients: int = 1_000_000,
    ) -> None:
        super().__init__(cost=cost, weights=weights, charge=charge, max_clients=max_clients)
        self._finished: dict[
            ClientId, tuple[int, int]
        ] = {}  # service of finished requests; their number
        self._running: dict[Request, tuple[int, int]] = {}  # E, and the prompt's service

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Charge the prompt's share of E. O(log clients)."""
        self.remove(request)
        prompt = self.cost.prompt(request.input_len, extend_len)
        total, number = self._finished.get(request.client, (0, 0))
        most = prompt + self.cost.outputs(request.input_len, 0, request.max_tokens)
        expected = max(1, total // number if number else most)
        self._running[request] = expected, prompt
        self.ledger.charge(request.client, prompt * ONE_REQUEST // expected)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Charge the outputs' share of E, as a difference of totals: one charge or many are the same."""
        expected = self._running[request][0]
        charged, true = (
            self.cost.outputs(request.input_len, 0, outputs) * ONE_REQUEST // expected
            for outputs in (before, before + tokens)
        )
        if self.ledger.is_unweighted(request.client):
            self.ledger.charge(request.client, true - charged)
        else:
            self.ledger.replace(request.client, charged=charged, true=true)

    def on_end(self, request: Request, *, output_len: int, finished: bool) -> None:
        """Count a finished request into E. O(1)."""
        prompt = self._running.pop(request)[1]
        if finished:
            total, number = self._finished.get(request.client, (0, 0))
            total += prompt + self.cost.outputs(request.input_len, 0, output_len)
            self._finished[request.client] = total, number + 1

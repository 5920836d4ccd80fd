"""VTC that knows how long each output will be: "VTC (oracle)" of Sheng et al., OSDI 2024, App. B.3."""

from collections.abc import Callable

from fairhit.core.request import Request
from fairhit.core.service import Cost, Weights
from fairhit.policies.vtc_predict import PrepaidVTC

OutputLen = Callable[[Request], int]


def most(request: Request) -> int:
    """Return max_tokens: the output length to assume where the true one is not known."""
    return request.max_tokens


class VTCOracle(PrepaidVTC):
    """VTC that charges the true output at selection. `output_len` returns it; None is max_tokens."""

    def __init__(
        self,
        *,
        output_len: OutputLen | None = None,
        cost: Cost | None = None,
        weights: Weights | None = None,
        charge: str = "input",
        max_clients: int = 1_000_000,
    ) -> None:
        super().__init__(
            predict=output_len or most,
            cost=cost,
            weights=weights,
            charge=charge,
            max_clients=max_clients,
        )

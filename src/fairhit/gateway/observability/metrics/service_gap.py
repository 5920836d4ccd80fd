"""Service gap: how far apart the service of two clients grew while both waited at one engine, and its bound.

Pure: a sample is added once a second. Between samples nothing is observed: a client that waited at every
sample counts as waiting all the time.
"""

from collections.abc import Callable, Collection
from itertools import chain, combinations, islice
from typing import NamedTuple

from fairhit.core.request import ClientId
from fairhit.dispatch.engine import EnginePeaks

# Waiting clients considered at each sample, longest without service first: some have no name of their own.
MOST_WAITING = 250
# Clients compared at one engine, longest waiting first: all pairs of them.
_MOST = 16


class ClientGap(NamedTuple):
    """Two clients and their gap, in tokens of service divided by weight."""

    first: ClientId
    second: ClientId
    tokens: float


class EngineGaps:
    """Gaps at one engine. The gap of a pair is the widest over any part of the time that both have waited."""

    def __init__(self) -> None:
        self._waiting: dict[ClientId, None] = {}  # longest waiting first
        # Least and greatest difference of service of each pair.
        self._ranges: dict[tuple[ClientId, ClientId], tuple[float, float]] = {}

    def add(
        self, waiting: Collection[ClientId], received: Callable[[ClientId], float | None]
    ) -> list[ClientGap]:
        """Add a sample and return the gaps, widest first. O(1): 250 clients and 120 pairs at most.

        `received` gives a client's service so far; None if the client has no name of its own.
        """
        compared: dict[ClientId, float] = {}
        stayed = (client for client in self._waiting if client in waiting)
        for client in chain(stayed, islice(waiting, MOST_WAITING)):
            if len(compared) == _MOST:
                break
            if client not in compared and (had := received(client)) is not None:
                compared[client] = had
        self._waiting = dict.fromkeys(compared)
        ranges = {}
        for pair in combinations(compared, 2):
            difference = compared[pair[0]] - compared[pair[1]]
            least, most = self._ranges.get(pair, (difference, difference))
            ranges[pair] = min(least, difference), max(most, difference)
        self._ranges = ranges
        gaps = [ClientGap(*pair, most - least) for pair, (least, most) in ranges.items()]
        return sorted(gaps, key=lambda gap: -gap.tokens)


def debt(peaks: EnginePeaks) -> int:
    """U of the bound: service that a client may receive beyond its share, in tokens.

    It is the prompt that used up the client's credit, and the outputs of its requests in flight at the
    engine. DESIGN 3.5 limits these by the engine's memory, a gateway by its concurrency limit. Where
    prompts are charged by an estimate, each may be that much longer.
    """
    return peaks.extend + peaks.in_flight * (2 * peaks.output + peaks.error)


def bound(scheduler: str, *, debt: int, quantum: int, first: float, second: float) -> float | None:
    """Bound of the gap of two clients with weights `first` and `second`; None if the policy has none.

    DLPM: 2Q + U(1/w_f + 1/w_g), for equal weights 2(U + Q); VTC: the same with Q = 0 (Theorem 4.4).
    """
    if scheduler not in {"dlpm", "vtc"}:
        return None
    return 2 * (quantum if scheduler == "dlpm" else 0) + debt * (1 / first + 1 / second)

"""How far apart the service of clients got while all of them waited at one engine, and what bounds it.

Pure: looks come in, once a second, and the widest gap comes out. What happens between two looks is
not seen: a client counts as waiting throughout if it did at every look.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import NamedTuple

from fairlead.core.request import ClientId
from fairlead.gateway.seeing.recorder import Largest

# Clients compared at one engine, those that have waited longest: all pairs of them.
_MOST = 16


class Gap(NamedTuple):
    """Two clients and how far apart they got; in tokens of service divided by weight."""

    first: ClientId
    second: ClientId
    tokens: float


class Gaps:
    """One engine's. A pair's gap is the widest over any part of the time that both have waited."""

    def __init__(self) -> None:
        # Longest waiting first. What each pair's difference was at least and at most.
        self._waiting: dict[ClientId, None] = {}
        self._ranges: dict[tuple[ClientId, ClientId], tuple[float, float]] = {}

    def look(self, received: Mapping[ClientId, float]) -> list[Gap]:
        """`received` is what each client that waits now has had so far. Widest first.

        O(clients), and O(1) for each of the pairs, of which there are 120 at most.
        """
        stays = [client for client in self._waiting if client in received]
        joins = (client for client in received if client not in self._waiting)
        self._waiting = dict.fromkeys([*stays, *joins][:_MOST])
        ranges = {}
        for pair in combinations(self._waiting, 2):
            apart = received[pair[0]] - received[pair[1]]
            least, most = self._ranges.get(pair, (apart, apart))
            ranges[pair] = min(least, apart), max(most, apart)
        self._ranges = ranges
        gaps = [Gap(*pair, most - least) for pair, (least, most) in ranges.items()]
        return sorted(gaps, key=lambda gap: -gap.tokens)


def debt(largest: Largest) -> int:
    """U: what a client may receive beyond its turn at an engine with a queue here, in tokens.

    The prompt that used up its credit, and the outputs of all it then has there; DESIGN 3.5 has the
    engine's memory for these, a gateway has what it sends at once. Where prompts are charged by an
    estimate, each may turn out that much longer.
    """
    return largest.extend + largest.in_flight * (2 * largest.output + largest.error)


def bound(scheduler: str, *, debt: int, quantum: int, first: float, second: float) -> float | None:
    """The most by which two clients of these weights may differ under that policy; None: no such bound.

    DLPM: 2Q + U(1/w_f + 1/w_g), for equal weights 2(U + Q); VTC: the same with Q = 0 (Theorem 4.4).
    """
    if scheduler not in {"dlpm", "vtc"}:
        return None
    return 2 * (quantum if scheduler == "dlpm" else 0) + debt * (1 / first + 1 / second)

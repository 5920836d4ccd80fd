"""How far apart the service of clients got while all of them waited at one engine, and what bounds it.

Pure: looks come in, once a second, and the widest gap comes out. What happens between two looks is
not seen: a client counts as waiting throughout if it did at every look.
"""

from collections.abc import Callable, Collection
from itertools import chain, combinations, islice
from typing import NamedTuple

from fairhit.core.request import ClientId
from fairhit.gateway.observability.metrics.recorder import Largest

# Waiting clients looked at each time, those that go longest without: not all are known by name.
MOST_WAITING = 250
# Clients compared at one engine, those that have waited longest: all pairs of them.
_MOST = 16


class ClientGap(NamedTuple):
    """Two clients and how far apart they got; in tokens of service divided by weight."""

    first: ClientId
    second: ClientId
    tokens: float


class EngineGaps:
    """One engine's. A pair's gap is the widest over any part of the time that both have waited."""

    def __init__(self) -> None:
        # Longest waiting first. What each pair's difference was at least and at most.
        self._waiting: dict[ClientId, None] = {}
        self._ranges: dict[tuple[ClientId, ClientId], tuple[float, float]] = {}

    def look(
        self, waiting: Collection[ClientId], received: Callable[[ClientId], float | None]
    ) -> list[ClientGap]:
        """`waiting` are those that wait now, `received` says what one has had so far, None if it is
        not known by name. Widest first. O(1): 250 clients and 120 pairs at most.
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
            apart = compared[pair[0]] - compared[pair[1]]
            least, most = self._ranges.get(pair, (apart, apart))
            ranges[pair] = min(least, apart), max(most, apart)
        self._ranges = ranges
        gaps = [ClientGap(*pair, most - least) for pair, (least, most) in ranges.items()]
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

"""Service gaps of pairs of clients while both wait at one worker, and the theorem's bound on them.

|W_f(t1, t2) - W_g(t1, t2)| over all t1 < t2 of an interval is the range of W_f - W_g in it: how far
it ever was above, and how far below. All pairs of one worker are looked at together, as a matrix.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fairhit.core.request import ClientId
from fairhit.core.service import WEIGHT_SCALE

# Which service: extend + 2 * output, or input + 2 * output.
View = Literal["system", "client"]
OUTPUT_WEIGHT = 2  # w_q of DESIGN 2; w_e and w_p are 1

# All pairs of so many clients, the first to come (DESIGN 6.2).
MAX_TRACKED = 64
# Gaps are shown with as many decimals: between states of whole tokens, W/w is a rounded quotient.
DECIMALS = 6
SMALLEST = 4  # clients for which there is room at first

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """Bound of a theorem on any two clients backlogged throughout: 2Q + U (1/w_f + 1/w_g).

    `unit` gives U for the longest input of the run. Where nothing is promised it is None, and
    `reason` says why.
    """

    view: View = "system"
    quantum: int = 0
    unit: Callable[[int], int] | None = None
    reason: str = ""

    def between(self, longest_input: int, first: int, second: int) -> float | None:
        """The bound in tokens, for two weights in millionths."""
        if self.unit is None:
            return None
        shares = WEIGHT_SCALE / first + WEIGHT_SCALE / second
        return 2 * self.quantum + self.unit(longest_input) * shares


def dlpm_bound(*, quantum: int, capacity: int, view: View = "system") -> Bound:
    """Theorem 4.1: 2 (U + Q), U = w_e L_input + w_q M; `view` is what the scheduler charges."""
    return Bound(
        view=view, quantum=quantum, unit=lambda longest: longest + OUTPUT_WEIGHT * capacity
    )


def vtc_bound(*, capacity: int, view: View = "client") -> Bound:
    """VTC Theorem 4.4: 2 max(w_p L_input, w_q M)."""
    return Bound(view=view, unit=lambda longest: max(longest, OUTPUT_WEIGHT * capacity))


def no_bound(reason: str, *, view: View = "system") -> Bound:
    """A bound that does not exist, with the `reason`."""
    return Bound(view=view, reason=reason)


class PairGap(NamedTuple):
    """The largest of one pair, in tokens divided by weight, and the worker it was seen at.

    None: over all workers, which share one queue.
    """

    tokens: float
    worker: int | None


class PairGaps:
    """The largest gap of each pair of the tracked clients, over all workers, each by itself."""

    def __init__(self, weight_of: Callable[[ClientId], int] | None = None) -> None:
        self._weight_of = weight_of
        self.weighted = False  # a client's weight is not 1
        self.scales: dict[ClientId, float] = {}  # 1/w of each tracked client
        self.largest: dict[tuple[ClientId, ClientId], PairGap] = {}

    def track(self, client: ClientId) -> None:
        """Watch it, if there is room. O(1)."""
        if len(self.scales) < MAX_TRACKED:
            weight = self._weight_of(client) if self._weight_of else WEIGHT_SCALE
            self.weighted |= weight != WEIGHT_SCALE
            self.scales[client] = WEIGHT_SCALE / weight

    def saw(self, first: ClientId, second: ClientId, tokens: float, worker: int | None) -> None:
        """The two differed by so much at the worker. O(1)."""
        pair = (first, second) if first < second else (second, first)
        before = self.largest.get(pair)
        gap = PairGap(tokens, worker)
        if before is None or (tokens, -_place(gap)) > (before.tokens, -_place(before)):
            self.largest[pair] = gap


class WorkerGaps:
    """Backlogged clients of one worker, or of the queue that all workers share, and their service gaps.

    A client has an index in the arrays once another client is backlogged; when it leaves, the last
    client takes its index.
    """

    __slots__ = (
        "_above", "_clients", "_pairs", "_places", "_scales", "_served", "_waiting", "_worker",
        "compares",
    )  # fmt: skip

    def __init__(self, pairs: PairGaps, worker: int | None) -> None:
        self._pairs = pairs
        self._worker = worker
        # Whether what is served now makes a difference: several are backlogged.
        self.compares = False
        self._waiting: dict[ClientId, int] = {}  # how many requests of who is backlogged
        self._places: dict[ClientId, int] = {}
        self._clients: list[ClientId] = []  # by place, as what follows
        # Tokens each was served since it has a place, 1/w, and by how much W/w was above each other's.
        self._served: Array = np.zeros(SMALLEST)
        self._scales: Array = np.zeros(SMALLEST)
        self._above: Array = np.zeros((SMALLEST, SMALLEST))

    def begins(self, client: ClientId) -> bool:
        """True if `wait` would add the client to others: pending passes must be booked first. O(1)."""
        waiting = self._waiting
        return bool(waiting) and client not in waiting

    def wait(self, client: ClientId) -> None:
        """Count a waiting request of `client`. O(1), O(backlogged) if it is the first."""
        waiting = self._waiting
        if client in waiting:
            waiting[client] += 1
        elif client in self._pairs.scales:
            waiting[client] = 1
            if len(waiting) > 1:
                if not self.compares:  # the other has been alone
                    self.compares = True
                    self._begin(next(iter(waiting)))
                self._begin(client)

    def _begin(self, client: ClientId) -> None:
        if client in self._places:
            return
        count = len(self._clients)
        if count == len(self._served):
            self._served = np.pad(self._served, (0, count))
            self._scales = np.pad(self._scales, (0, count))
            self._above = np.pad(self._above, (0, count))
        self._places[client] = count
        self._clients.append(client)
        self._scales[count] = self._pairs.scales[client]
        self._served[count] = 0
        if count:
            others = self._served[:count] * self._scales[:count]
            self._above[:count, count] = others
            self._above[count, :count] = -others

    def leave(self, client: ClientId) -> None:
        """Remove a waiting request of `client`. O(1), O(backlogged) if it is the last."""
        waiting = self._waiting
        left = waiting.get(client)
        if left is None:
            return
        if left > 1:
            waiting[client] = left - 1
            return
        del waiting[client]
        self.compares = len(waiting) > 1
        place = self._places.get(client)
        if place is not None:
            if len(self._clients) > 1:
                self._tell(place, range(len(self._clients)))
            self._end(place)

    def _end(self, place: int) -> None:
        """The last takes its place."""
        last = len(self._clients) - 1
        del self._places[self._clients[place]]
        if place != last:
            self._places[self._clients[last]] = place
            self._served[place] = self._served[last]
            self._scales[place] = self._scales[last]
            self._above[place] = self._above[last]
            self._above[:, place] = self._above[:, last]
        self._clients[place] = self._clients[last]
        self._clients.pop()

    def serve(self, client: ClientId, tokens: int) -> None:
        """Add `tokens` of service to `client`. O(backlogged) if it is backlogged."""
        place = self._places.get(client)
        if place is None:
            return
        self._served[place] += tokens
        count = len(self._clients)
        if count > 1:
            w = self._served[:count] * self._scales[:count]
            above = self._above[place, :count]
            np.maximum(above, w[place] - w, out=above)

    def serve_all(self, outputs: Mapping[ClientId, int], passes: int) -> None:
        """Add `outputs` to all clients, `passes` times; W_f - W_g is linear meanwhile. O(backlogged^2)."""
        count = len(self._clients)
        if count < 2:
            return  # no other backlogged client; one that joins is compared by later service
        factor, given = OUTPUT_WEIGHT * passes, outputs.get
        served = self._served[:count]
        served += [factor * given(client, 0) for client in self._clients]
        w = served * self._scales[:count]
        above = self._above[:count, :count]
        np.maximum(above, np.subtract.outer(w, w), out=above)

    def close(self) -> None:
        """Tell what is known of those that are backlogged still; they go on. O(backlogged^2)."""
        for place in range(len(self._clients)):
            self._tell(place, range(place))

    def _tell(self, place: int, others: Iterable[int]) -> None:
        above = self._above
        for other in others:
            if other != place:
                gap = round(float(above[place, other] + above[other, place]), DECIMALS)
                pair = (self._clients[place], self._clients[other])
                self._pairs.saw(*pair, gap, self._worker)


def _place(gap: PairGap) -> int:
    return -1 if gap.worker is None else gap.worker


def worst(gaps: Mapping[tuple[ClientId, ClientId], PairGap]) -> Iterator[tuple[ClientId, ClientId]]:
    """The pairs, largest gap first, then by name."""
    return iter(sorted(gaps, key=lambda pair: (-gaps[pair].tokens, pair)))

"""How far the service of two clients comes apart while both wait at one worker, and what was promised.

|W_f(t1, t2) - W_g(t1, t2)| over all t1 < t2 of an interval is the range of D = W_f - W_g in it. Only
records of D matter, and D rises only by what f is served: so each backlogged client knows up to
where it can be served without a record, and is compared with the others only beyond that.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fairlead.core.request import ClientId
from fairlead.core.service import WEIGHT_SCALE, divide_half_up

# Which service: extend + 2 * output, or input + 2 * output.
View = Literal["system", "client"]
OUTPUT_WEIGHT = 2  # w_q of DESIGN 2; w_e and w_p are 1

# All pairs of so many clients, the first to come (DESIGN 6.2).
MAX_TRACKED = 64
# Normalised service W/w is counted in such parts of a token, each W rounded once a weight.
PARTS = 10**12
FAR = 1 << 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """What a theorem promises any two clients backlogged throughout: 2Q + U (1/w_f + 1/w_g).

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
    """Nothing is promised; `reason` is shown instead."""
    return Bound(view=view, reason=reason)


class Gap(NamedTuple):
    """The largest of one pair, in `parts` of a token, and the worker it was seen at."""

    parts: int
    worker: int


class PairGaps:
    """The largest gap of each pair of the tracked clients, over all workers, each by itself."""

    def __init__(self, weight_of: Callable[[ClientId], int] | None = None) -> None:
        self._weight_of = weight_of
        self.parts = 1 if weight_of is None else PARTS  # of a token, in every amount
        self.weighted = False  # somebody's weight is not 1
        self.scales: dict[ClientId, int] = {}  # parts per token, of each tracked client
        self.largest: dict[tuple[ClientId, ClientId], Gap] = {}

    def track(self, client: ClientId) -> None:
        """Watch it, if there is room. O(1)."""
        if len(self.scales) < MAX_TRACKED:
            weight = self._weight_of(client) if self._weight_of else WEIGHT_SCALE
            self.weighted |= weight != WEIGHT_SCALE
            self.scales[client] = divide_half_up(self.parts * WEIGHT_SCALE, weight)

    def saw(self, first: "Backlogged", second: "Backlogged", parts: int, worker: int) -> None:
        """The two differed by so much at the worker. O(1)."""
        a, b = first.client, second.client
        pair = (a, b) if a < b else (b, a)
        before = self.largest.get(pair)
        if before is None or (parts, -worker) > (before.parts, -before.worker):
            self.largest[pair] = Gap(parts, worker)


class Backlogged:
    """A tracked client with something waiting at one worker, and its gaps to the others there."""

    __slots__ = ("above", "client", "limit", "scale", "served", "waiting")

    def __init__(self, client: ClientId, scale: int) -> None:
        self.client = client
        self.scale = scale
        self.waiting = 0
        self.served = 0  # since it is backlogged, in parts
        self.above: dict[Backlogged, int] = {}  # the highest `served` was above that of each other
        self.limit = FAR  # no record up to there


class WorkerGaps:
    """Who is backlogged at one worker, and how far they came apart."""

    __slots__ = ("_pairs", "_worker", "backlogged")

    def __init__(self, pairs: PairGaps, worker: int) -> None:
        self._pairs = pairs
        self._worker = worker
        self.backlogged: dict[ClientId, Backlogged] = {}

    def wait(self, client: ClientId) -> None:
        """One more of its requests waits. O(1), O(backlogged) if it is the first."""
        one = self.backlogged.get(client)
        if one is None:
            scale = self._pairs.scales.get(client)
            if scale is None:
                return
            one = Backlogged(client, scale)
            for other in self.backlogged.values():
                one.limit = 0
                one.above[other] = -other.served
                other.above[one] = other.limit = other.served
            self.backlogged[client] = one
        one.waiting += 1

    def leave(self, client: ClientId) -> None:
        """One less. O(1), O(backlogged) if it is the last."""
        one = self.backlogged.get(client)
        if one is None:
            return
        one.waiting -= 1
        if not one.waiting:
            del self.backlogged[client]
            for other, above in one.above.items():
                self._pairs.saw(one, other, above + other.above.pop(one), self._worker)

    def serve(self, client: ClientId, tokens: int) -> None:
        """It was served. O(1), O(backlogged) if that may be a record."""
        one = self.backlogged.get(client)
        if one is not None:
            one.served += tokens * one.scale
            if one.served > one.limit:
                _compare(one)

    def serve_all(self, outputs: Mapping[ClientId, int], passes: int) -> None:
        """All were served at once, `passes` times; D is linear in between. O(backlogged)."""
        if len(self.backlogged) < 2:
            return  # nobody to compare with; a later one begins with what is served from then on
        for client, one in self.backlogged.items():
            if client in outputs:
                one.served += OUTPUT_WEIGHT * outputs[client] * passes * one.scale
        for one in self.backlogged.values():
            if one.served > one.limit:
                _compare(one)

    def close(self) -> None:
        """Tell what is known of those that are backlogged still; they go on. O(backlogged^2)."""
        for one in self.backlogged.values():
            for other, above in one.above.items():
                if one.client < other.client:
                    self._pairs.saw(one, other, above + other.above[one], self._worker)


def _compare(one: Backlogged) -> None:
    """Its records, and how far it can go without another. O(backlogged)."""
    served, limit = one.served, FAR
    for other, above in one.above.items():
        record = max(above, served - other.served)
        one.above[other] = record
        # The other is only ever served more, which takes the next record further away.
        limit = min(limit, record + other.served)
    one.limit = limit


def worst(gaps: Mapping[tuple[ClientId, ClientId], Gap]) -> Iterator[tuple[ClientId, ClientId]]:
    """The pairs, largest gap first, then by name."""
    return iter(sorted(gaps, key=lambda pair: (-gaps[pair].parts, pair)))

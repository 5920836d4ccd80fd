"""Prices of requests in engine time, learnt from the passes of the engine itself.

The time of a forward pass is fitted to its work, without negative coefficients:

    seconds = fixed + extend * e + attention * a + decode * d + context * c

    e   prompt tokens computed          a   pairs of such a token and an earlier one
    d   sequences that decode a token   c   tokens in memory before those, all together

The fixed part (reading the weights, launches) is shared by the tokens that a pass computes, so that the
price of a token does not depend on who else is in the batch: on average over the passes seen, with the
same share for all prompt tokens, and for all outputs. One extend token is the unit of cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairhit.core.costs import ContextCost
from fairhit.core.request import ClientId
from fairhit.core.service import UNITS_PER_TOKEN, Cost

# Passes before the first fit, and from one to the next; the weight of a pass halves after HALF_LIFE more.
LEAST_PASSES = 64
FIT_EVERY = 64
HALF_LIFE = 2048
KEEP = 0.5 ** (1 / HALF_LIFE)
SWEEPS = 200
# Prices outside are taken for a bad fit; in extend tokens: of an output, and of an output for each token
# before it, of a prompt token for each token before it.
BOUNDS = {"output": (0.25, 4096.0), "context": (0.0, 4.0), "attention": (0.0, 0.25)}
# One change moves a price by this factor at most.
STEP = 2.0
FEATURES = 5
# Prices in extend tokens, in the order of BOUNDS: of an output; of it, and of a prompt token, for each
# token before it.
Prices = tuple[float, float, float]
# A price that moved by this factor is logged, at most once in so many seconds. A move below LEAST, in extend
# tokens, changes nothing noticeable: of the context, a tenth of a token for an output behind 10,000.
NOTABLE, LOG_EVERY_S = 1.5, 60.0
LEAST: Prices = (0.1, 1e-5, 1e-5)


@dataclass(slots=True)
class PassWork:
    """The work in one pass, or the part of it that one client causes."""

    extend: int = 0
    attention: int = 0
    decodes: int = 0
    context: int = 0

    def add_chunk(self, tokens: int, context: int) -> None:
        """Add a prefill chunk of `tokens` prompt tokens behind `context` others."""
        self.extend += tokens
        self.attention += tokens * context + tokens * (tokens - 1) // 2

    def add_decode(self, context: int) -> None:
        """Add a sequence that emits a token behind `context` others."""
        self.decodes += 1
        self.context += context


class PassTimeFit:
    """Coefficients of the passes seen, in seconds, and the cost that follows from them.

    The same passes in the same order give the same coefficients.
    """

    def __init__(self) -> None:
        self.seconds = [0.0] * FEATURES  # fixed, extend, attention, decode, context
        self._seen = 0
        self._next_fit = LEAST_PASSES
        # Sums over the passes, weighted by age: of the products of features (the lower triangle), of
        # features and time, of tokens computed, and of their shares of one fixed part a pass.
        self._squares = [0.0] * (FEATURES * (FEATURES + 1) // 2)
        self._products = [0.0] * FEATURES
        self._extend = self._decodes = self._extend_share = self._decode_share = 0.0

    @property
    def ready(self) -> bool:
        """Return whether enough passes were seen for a cost."""
        return self._seen >= LEAST_PASSES and self._extend > 0 and self._decodes > 0

    @property
    def is_due(self) -> bool:
        """Return whether `cost` fits anew now: by how many passes were seen, not by their times."""
        return self.ready and self._seen >= self._next_fit

    def observe(self, work: PassWork, seconds: float) -> None:
        """Add a pass of such work and duration. O(1)."""
        tokens = work.extend + work.decodes
        if not tokens or seconds <= 0:
            return
        self._seen += 1
        squares, products = self._squares, self._products
        row = (
            1.0,
            float(work.extend),
            float(work.attention),
            float(work.decodes),
            float(work.context),
        )
        # Relative errors count, so that short passes are fitted as well as long ones.
        weight = 1.0 / (seconds * seconds)
        at = 0
        for i in range(FEATURES):
            part = weight * row[i]
            products[i] = products[i] * KEEP + part * seconds
            for j in range(i + 1):
                squares[at] = squares[at] * KEEP + part * row[j]
                at += 1
        self._extend = self._extend * KEEP + work.extend
        self._decodes = self._decodes * KEEP + work.decodes
        self._extend_share = self._extend_share * KEEP + work.extend / tokens
        self._decode_share = self._decode_share * KEEP + work.decodes / tokens

    def cost(self, before: Cost) -> Cost:
        """Return the cost by the passes seen, each price at most a factor of STEP away from `before`.

        Returns `before` while no token has a price, and until FIT_EVERY more passes were seen. O(1).
        """
        assert isinstance(before, ContextCost), before
        if not self.is_due:
            return before
        self._next_fit = self._seen + FIT_EVERY
        _descend(self._squares, self._products, self.seconds)
        fixed, extend, attention, decode, context = self.seconds
        unit = extend + fixed * self._extend_share / self._extend
        if unit <= 0:
            return before
        output = decode + fixed * self._decode_share / self._decodes
        return ContextCost(
            output=step_price("output", before.output, output / unit),
            context=step_price("context", before.context, context / unit),
            attention=step_price("attention", before.attention, attention / unit),
            fitted=True,
        )

    def shares(self, works: Mapping[ClientId, PassWork], seconds: float) -> dict[ClientId, float]:
        """Divide the duration of a pass among the clients, by the fit. O(clients in the pass)."""
        fixed, extend, attention, decode, context = self.seconds
        tokens = sum(work.extend + work.decodes for work in works.values())
        raw = {
            client: (extend + fixed / tokens) * work.extend
            + (decode + fixed / tokens) * work.decodes
            + attention * work.attention
            + context * work.context
            for client, work in works.items()
        }
        total = sum(raw.values())
        if total <= 0:  # nothing is known yet: by tokens
            raw = {client: float(work.extend + work.decodes) for client, work in works.items()}
            total = float(tokens)
        return {client: seconds * part / total for client, part in raw.items()}


class PriceChanges:
    """When to log the prices in force: the first that are fitted, then noticeable changes.

    `start` are the prices before any pass was measured.
    """

    def __init__(self, start: Prices | None = None) -> None:
        self._logged = start
        self._is_first = True
        self._next_s = 0.0

    def is_notable(self, prices: Prices, now_s: float) -> bool:
        """Return whether to log `prices` now; they then count as logged. `now_s`: of any one clock. O(1)."""
        if prices == self._logged:
            return False
        if not self._is_first:
            if now_s < self._next_s or (
                self._logged is not None and _are_near(self._logged, prices)
            ):
                return False
        self._logged, self._is_first, self._next_s = prices, False, now_s + LOG_EVERY_S
        return True


def _are_near(logged: Prices, prices: Prices) -> bool:
    """Return whether no price differs by a factor of NOTABLE, and by more than its LEAST."""
    for before, now, least in zip(logged, prices, LEAST, strict=True):
        low, high = min(before, now), max(before, now)
        if high >= NOTABLE * low and high - low > least:
            return False
    return True


def prices_of(cost: ContextCost) -> Prices:
    """Return the prices of a cost, in extend tokens."""
    unit = cost.extend
    return cost.output / unit, cost.context / unit, cost.attention / unit


def price_words(prices: Prices) -> str:
    """Return prices for a line of the log."""
    shown = [f"{part} {price:.3g}" for part, price in zip(BOUNDS, prices, strict=True)]
    return f"{', '.join(shown)} tokens"


def step_price(name: str, before: int, price: float) -> int:
    """Return a price in units, within its bounds and at most a factor of STEP from `before`."""
    low, high = BOUNDS[name]
    price = min(max(price, low), high)
    units = round(price * UNITS_PER_TOKEN)
    if before > 0:
        units = min(max(units, int(before / STEP)), int(before * STEP))
    return units


def _descend(squares: Sequence[float], products: Sequence[float], x: list[float]) -> None:
    """Minimise x A x / 2 - b x over x >= 0, from the x given, by coordinate descent.

    `squares` is the lower triangle of A, row by row, and `products` is b.
    """
    size = len(products)
    rows = [
        [squares[max(i, j) * (max(i, j) + 1) // 2 + min(i, j)] for j in range(size)]
        for i in range(size)
    ]
    for _ in range(SWEEPS):
        moved = False
        for i in range(size):
            row, old = rows[i], x[i]
            if row[i] <= 0:
                continue
            slope = products[i] + row[i] * old
            for j in range(size):
                slope -= row[j] * x[j]
            new = max(0.0, slope / row[i])
            x[i] = new
            moved = moved or abs(new - old) > 1e-6 * new
        if not moved:
            return

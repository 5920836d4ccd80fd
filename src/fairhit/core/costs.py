"""Cost functions beyond the linear price: h(input, output) of VTC, section 4.2, in integer units.

Each cost here is a function of the whole request, rounded half up once where it is not whole; a
charge is the difference of two of its values. So the charges of a request add up to h(input, output),
to the unit, however they were cut. What one token costs under each is one token at the start of a
prompt, so that a quantum means about the same; only `profiled` has a scale of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from itertools import pairwise

from fairhit.core.service import UNITS_PER_TOKEN, Cost, TokenCost, divide_half_up
from fairhit.errors import ConfigError


@dataclass(frozen=True, kw_only=True, slots=True)
class QuadraticCost:
    """h(x, y) = input x + output y + product x y + square y^2 + constant; all in units."""

    input: int
    output: int
    product: int
    square: int
    constant: int

    def prefill(self, tokens: int, context: int = 0) -> int:
        """h(tokens, 0)."""
        return self.input * tokens + self.constant

    def decode(self, input_len: int, before: int, tokens: int) -> int:
        """h(input_len, before + tokens) - h(input_len, before)."""
        per_output = self.output + self.product * input_len + self.square * (2 * before + tokens)
        return per_output * tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class ContextCost:
    """Time that a request adds to the forward passes it is in, in units of one extend token.

    A prompt token costs `extend`, and `attention` for each token before it; an output token costs
    `output`, and `context` for each token before it, cached or not, as all of them are read from
    memory. Integer units of 10^-8 token. Sums of charges are exact, however they were cut. A `fitted`
    cost is where an engine starts; it follows the measured passes (core/engine_time.py).
    """

    extend: int = UNITS_PER_TOKEN
    output: int = 2 * UNITS_PER_TOKEN
    attention: int = 0
    context: int = 0
    fitted: bool = False

    def prefill(self, tokens: int, context: int = 0) -> int:
        """Units for computing `tokens` prompt tokens behind `context` others."""
        units = self.extend * tokens
        return units + self.attention * _pairs(context, tokens) if self.attention else units

    def decode(self, input_len: int, before: int, tokens: int) -> int:
        """Units for `tokens` outputs behind a prompt of `input_len` tokens and `before` outputs."""
        # As `_pairs`, in line: called for every output.
        pairs = tokens * (input_len + before) + tokens * (tokens - 1) // 2
        return self.output * tokens + self.context * pairs


# Until the engine has measured its own passes: a 3B model on an A10G.
ENGINE = ContextCost(context=270_000, fitted=True)


def _pairs(context: int, tokens: int) -> int:
    """Return how many (token, earlier token) pairs `tokens` tokens behind `context` others make."""
    return tokens * context + tokens * (tokens - 1) // 2


# Fitted to an A10G with Llama-2-7b, whole batches: the code of VTC. Its appendix B.2 prints ten times
# this, rounded to two digits.
PROFILED = QuadraticCost(
    input=21_001_891, output=10_075_395, product=398_680, square=324_733, constant=114_601_454
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FlopsCost:
    """A model's arithmetic: 2 P for each token and 4 L d for each pair of tokens that meet.

    P parameters, L layers, d = heads * head size. In tokens, that is divided by 2 P:
    h(x, y) = F(x + y), F(n) = n + (L d / P) n (n + 1). What `charge = extend` leaves out of x are
    cached tokens; that computed ones attend to them is then left out, too.
    """

    parameters: int
    layers: int
    width: int

    def prefill(self, tokens: int, context: int = 0) -> int:
        """F(tokens)."""
        return self._total(tokens)

    def decode(self, input_len: int, before: int, tokens: int) -> int:
        """F(input_len + before + tokens) - F(input_len + before)."""
        start = input_len + before
        return self._total(start + tokens) - self._total(start)

    def _total(self, tokens: int) -> int:
        met = UNITS_PER_TOKEN * self.layers * self.width * tokens * (tokens + 1)
        return UNITS_PER_TOKEN * tokens + divide_half_up(met, self.parameters)


# From the models' published configurations.
MODELS = {
    "llama-2-7b": FlopsCost(parameters=6_738_415_616, layers=32, width=4096),
    "llama-2-13b": FlopsCost(parameters=13_015_864_320, layers=40, width=5120),
    "llama-3.1-8b": FlopsCost(parameters=8_030_261_248, layers=32, width=4096),
    "llama-3.2-3b": FlopsCost(parameters=3_212_749_824, layers=28, width=3072),
}

# (first token, units for it and each one after it until the next piece); the first piece starts at 0.
Pieces = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class PiecewiseCost:
    """h(x, y) = f(x) + g(y), both piecewise linear: the price of a token depends on its position."""

    input: Pieces
    output: Pieces

    def prefill(self, tokens: int, context: int = 0) -> int:
        """f(tokens)."""
        return _sum(self.input, tokens)

    def decode(self, input_len: int, before: int, tokens: int) -> int:
        """g(before + tokens) - g(before)."""
        return _sum(self.output, before + tokens) - _sum(self.output, before)


def _sum(pieces: Pieces, tokens: int) -> int:
    """Units for the first `tokens` tokens. O(pieces)."""
    total = 0
    for (start, price), (end, _) in pairwise((*pieces, (tokens, 0))):
        total += price * max(0, min(end, tokens) - start)
    return total


# Of a token, in extend tokens. An engine's own prices are below 4,096 (core/engine_time.py).
MOST_PRICE = 1_000_000

FORMS = (
    "linear:INPUT,OUTPUT | profiled | flops:MODEL | piecewise:PRICE,PRICE@FROM,.../PRICE,PRICE@FROM,..."
    " | context:OUTPUT,CONTEXT[,ATTENTION] | engine"
)


def parse_cost(text: str, *, where: str = "cost") -> Cost:
    """Return the cost that `text` names. Raises ConfigError.

    `linear:1,2`; `profiled`; `flops:llama-3.2-3b`; `piecewise:1,0.5@1000/2,4@500`: input tokens cost
    1, from position 1000 on 0.5; outputs 2, from position 500 on 4. Prices have at most eight decimals.
    """
    kind, _, rest = text.partition(":")
    read = _READERS.get(kind)
    if read is None:
        raise ConfigError(f"{where}: expected {FORMS}, got {text!r}")
    return read(rest, f"{where} {text!r}")


def cost_words(cost: Cost) -> str:
    """Return a cost as `parse_cost` reads it, and whether it follows the engine's passes."""
    if isinstance(cost, TokenCost):
        return f"linear:{_decimal(cost.extend)},{_decimal(cost.output)}"
    if isinstance(cost, ContextCost):
        if cost.fitted:
            return "engine (fitted)"
        prices = (cost.output, cost.context, *((cost.attention,) if cost.attention else ()))
        return f"context:{','.join(map(_decimal, prices))}"
    if isinstance(cost, PiecewiseCost):
        halves = (
            ",".join(_decimal(price) + (f"@{start}" if start else "") for start, price in pieces)
            for pieces in (cost.input, cost.output)
        )
        return f"piecewise:{'/'.join(halves)}"
    names: dict[Cost, str] = {PROFILED: "profiled"}
    for model, flops in MODELS.items():
        names[flops] = f"flops:{model}"
    return names.get(cost, str(cost))


def _decimal(units: int) -> str:
    """Return a price in tokens, without rounding."""
    return f"{Decimal(units) / UNITS_PER_TOKEN:f}"


def _profiled(rest: str, where: str) -> Cost:
    if rest:
        raise ConfigError(f"{where}: expected profiled without anything after it")
    return PROFILED


def _linear(rest: str, where: str) -> Cost:
    prices = rest.split(",")
    if len(prices) != 2:
        raise ConfigError(f"{where}: expected linear:INPUT,OUTPUT")
    extend, output = (_price(price, where) for price in prices)
    _check_some(extend + output, where)
    return TokenCost(extend=extend, output=output)


def _context(rest: str, where: str) -> Cost:
    prices = rest.split(",")
    if len(prices) not in {2, 3}:
        raise ConfigError(
            f"{where}: expected context:OUTPUT,CONTEXT or context:OUTPUT,CONTEXT,ATTENTION"
        )
    output, context, attention = (_price(price, where) for price in (*prices, "0")[:3])
    return ContextCost(output=output, context=context, attention=attention)


def _engine(rest: str, where: str) -> Cost:
    if rest:
        raise ConfigError(f"{where}: expected engine without anything after it")
    return ENGINE


def _flops(rest: str, where: str) -> Cost:
    if rest not in MODELS:
        raise ConfigError(f"{where}: expected flops: and one of {', '.join(MODELS)}")
    return MODELS[rest]


def _piecewise(rest: str, where: str) -> Cost:
    halves = rest.split("/")
    if len(halves) != 2:
        raise ConfigError(f"{where}: expected piecewise:INPUT PRICES/OUTPUT PRICES")
    of_input, of_output = (_pieces(half, where) for half in halves)
    _check_some(sum(price for _, price in (*of_input, *of_output)), where)
    return PiecewiseCost(input=of_input, output=of_output)


def _pieces(text: str, where: str) -> Pieces:
    pieces = []
    for part in text.split(","):
        price, at, start = part.partition("@")
        if at and not start.isdecimal():
            raise ConfigError(
                f"{where}: expected PRICE@FROM with FROM a whole number, got {part!r}"
            )
        pieces.append((int(start or 0), _price(price, where)))
    starts = [start for start, _ in pieces]
    if starts[0] != 0 or any(left >= right for left, right in pairwise(starts)):
        raise ConfigError(
            f"{where}: expected a first price and then rising positions, got {text!r}"
        )
    return tuple(pieces)


def _price(text: str, where: str) -> int:
    """A price of a token, in units."""
    try:
        price = Decimal(text)
        if not 0 <= price <= MOST_PRICE:
            raise InvalidOperation
        units = price * UNITS_PER_TOKEN
        if units % 1 or bool(price) != bool(units):  # 10^-3000000 is rounded to 0
            raise InvalidOperation
    except InvalidOperation:
        raise ConfigError(
            f"{where}: expected a price from 0 to {MOST_PRICE:,} with at most eight decimals,"
            f" got {text!r:.99}"
        ) from None
    return int(units)


def _check_some(units: int, where: str) -> None:
    if not units:
        raise ConfigError(f"{where}: expected a price above 0")


_READERS: dict[str, Callable[[str, str], Cost]] = {
    "linear": _linear,
    "context": _context,
    "engine": _engine,
    "profiled": _profiled,
    "flops": _flops,
    "piecewise": _piecewise,
}

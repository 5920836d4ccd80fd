"""Service in integers: the price of tokens, weights, and the service of a client.

Service is counted in units of 10^-8 token (DESIGN 3.1), so that every replay agrees to the bit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Protocol

from fairhit.core.request import ClientId
from fairhit.errors import ConfigError

UNITS_PER_TOKEN = 10**8
# A weight has at most six decimals (DESIGN 3.1); it is held as an integer of millionths.
WEIGHT_SCALE = 10**6
# Weights are below this, and a setting in tokens is at most that: more is a slip, and slows every sum.
WEIGHT_LIMIT = 10**9
MOST_TOKENS = 10**12


class Cost(Protocol):
    """h(input, output) of VTC section 4.2, charged in the two parts a scheduler can see."""

    def prefill(self, tokens: int, context: int = 0) -> int:
        """Units for computing `tokens` prompt tokens behind `context` cached ones: h(tokens, 0).

        Only a cost that counts the context uses `context`.
        """
        ...

    def decode(self, input_len: int, before: int, tokens: int) -> int:
        """Units for `tokens` more outputs after `before`: h(in, before + tokens) - h(in, before)."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenCost:
    """The linear cost w_e * extend + w_q * output; both weights in units per token."""

    extend: int = 1 * UNITS_PER_TOKEN
    output: int = 2 * UNITS_PER_TOKEN

    def prefill(self, tokens: int, context: int = 0) -> int:
        """Units for computing `tokens` prompt tokens; the same behind any context."""
        return self.extend * tokens

    def decode(self, input_len: int, before: int, tokens: int) -> int:
        """Units for emitting `tokens` outputs; the same at every position."""
        return self.output * tokens


def divide_half_up(numerator: int, denominator: int) -> int:
    """Return the quotient rounded half up: the one rounding a charge may have (DESIGN 3.1)."""
    assert numerator >= 0 and denominator > 0, (numerator, denominator)
    return (2 * numerator + denominator) // (2 * denominator)


def parse_weight(text: object, *, where: str = "weight") -> int:
    """Return a weight in millionths.

    Raises ConfigError unless it is above 0, below WEIGHT_LIMIT, and has at most six decimals.
    """
    try:
        weight = Decimal(str(text))
        if isinstance(text, bool) or not 0 < weight < WEIGHT_LIMIT:
            raise InvalidOperation
        scaled = weight * WEIGHT_SCALE
        if not scaled or scaled % 1:  # 10^-3000000 is rounded to 0
            raise InvalidOperation
    except InvalidOperation:
        raise ConfigError(
            f"{where}: expected a positive number under 10^9 with at most six decimals, got {text!r:.99}"
        ) from None
    return int(scaled)


def parse_tokens(value: object, *, least: int, where: str) -> int:
    """Return a setting in tokens. Raises ConfigError unless it is whole, from `least` to MOST_TOKENS."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{where}: expected a whole number of tokens >= {least}, got {value!r}")
    if value > MOST_TOKENS:
        raise ConfigError(f"{where}: expected at most {MOST_TOKENS:,} tokens, got {value!r:.99}")
    return value


CHARGES = ("extend", "input")


def parse_charge(value: object) -> str:
    """Return which prompt tokens are charged. Raises ConfigError unless `value` is one of CHARGES."""
    if value not in CHARGES:
        raise ConfigError(f"charge: expected one of {', '.join(CHARGES)}, got {value!r}")
    return str(value)


class ServiceCost:
    """The price of a request: a cost function, and which prompt tokens it is applied to.

    `charge` is "extend" (cached tokens are free) or "input" (the whole prompt, as in the papers
    without a cache). Raises ConfigError for another value. All results are in units.
    """

    def __init__(self, cost: Cost | None = None, *, charge: str) -> None:
        self._set(cost or TokenCost())
        # Where the cost follows the engine's measured passes: from the current cost to the next.
        self.source: Callable[[Cost], Cost] | None = None
        self._charges_extend = parse_charge(charge) == "extend"

    def prompt(self, input_len: int, extend_len: int, cost: Cost | None = None) -> int:
        """Return the cost of a prompt of `input_len` tokens of which `extend_len` are computed.

        `cost` is an earlier one, at which the prompt was charged; None: the cost in force.
        """
        tokens = extend_len if self._charges_extend else input_len
        return (cost or self.current).prefill(tokens, input_len - tokens) if tokens else 0

    def refresh(self) -> None:
        """Take the cost that the source gives now; a policy calls it after a refill and at no other time."""
        if self.source is not None:
            self._set(self.source(self.current))

    def _set(self, cost: Cost) -> None:
        self.current = cost
        # outputs(input_len, before, tokens): the cost of `tokens` outputs after the first `before`, behind a
        # prompt of that length. Called for every output, so it is the cost's own method.
        self.outputs = cost.decode


class Weights:
    """Shares of clients relative to one another, in millionths; 1 unless given."""

    def __init__(self, weights: Mapping[ClientId, object] | None = None) -> None:
        self._millionths = {
            client: parse_weight(weight, where=f"weight of client {client!r}")
            for client, weight in (weights or {}).items()
        }

    def learn(self, client: ClientId, millionths: int) -> None:
        """Set the weight of a client that arrives with its first request. O(1)."""
        assert millionths > 0, (client, millionths)
        self._millionths[client] = millionths

    def of(self, client: ClientId) -> int:
        """Return the client's weight in millionths. O(1)."""
        return self._millionths.get(client, WEIGHT_SCALE)


def system_view(extend_len: int, output_len: int) -> int:
    """Return extend + 2 * output, in tokens: the service that DLPM equalises (DESIGN 2)."""
    return extend_len + 2 * output_len


@dataclass(kw_only=True, slots=True)
class Service:
    """Service of a client in tokens; `input_len` also counts what the cache served."""

    extend_len: int = 0
    cached_len: int = 0
    output_len: int = 0

    @property
    def input_len(self) -> int:
        """Return the prompt tokens, computed or cached."""
        return self.extend_len + self.cached_len

    def absorb(self, other: "Service") -> None:
        """Add the service of `other`."""
        self.extend_len += other.extend_len
        self.cached_len += other.cached_len
        self.output_len += other.output_len

    def system_view(self) -> int:
        """Return the service that DLPM equalises, in tokens."""
        return system_view(self.extend_len, self.output_len)

    def client_view(self) -> int:
        """Return input + 2 * output, in tokens: the service that the papers' plots show (DESIGN 2)."""
        return self.input_len + 2 * self.output_len

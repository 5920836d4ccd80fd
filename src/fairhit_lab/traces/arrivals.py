"""When requests or programs come: seconds from the start, rising, drawn from a generator passed in."""

from collections.abc import Iterable, Iterator
from itertools import takewhile
from random import Random


def evenly(rng: Random, *, per_s: float, count: int, start_s: float = 0) -> Iterator[float]:
    """`count` times 1/rate apart, the first at U(0, 1/rate) + 1/rate: "uniform" of the VTC artifact."""
    at_s = start_s + rng.random() / per_s
    for _ in range(count):
        at_s += 1 / per_s
        yield at_s


def on_off(times: Iterable[float], *, period_s: float) -> Iterator[float]:
    """The times of a client that sends in every other period, the first one included (VTC, Fig. 5)."""
    return (at_s for at_s in times if int(at_s // period_s) % 2 == 0)


def rising(*, from_per_s: float, to_per_s: float, duration_s: float) -> Iterator[float]:
    """A rate that rises with time; as many as the mean rate brings (VTC, Fig. 9). Nothing is drawn."""
    at_s = 0.0
    for _ in range(int((from_per_s + to_per_s) / 2 * duration_s)):
        at_s += 1 / (from_per_s + (to_per_s - from_per_s) * at_s / duration_s)
        yield at_s


def gamma(rng: Random, *, per_s: float, cv: float = 1) -> Iterator[float]:
    """Without end; gaps have mean 1/rate and coefficient of variation `cv`: 1 is a Poisson process."""
    at_s = 0.0
    shape, scale = 1 / cv**2, cv**2 / per_s
    while True:
        at_s += rng.gammavariate(shape, scale)
        yield at_s


def until(times: Iterable[float], end_s: float) -> Iterator[float]:
    """The times before the end."""
    return takewhile(lambda at_s: at_s < end_s, times)

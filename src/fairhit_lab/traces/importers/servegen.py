"""ServeGen's models of production clients, sampled into requests: `arrivals` and `lengths`, two CSV files.

Arrivals are Gamma or Weibull renewals whose rate and shape change every ten minutes; all rates are
scaled alike to the wanted total, so shares and burstiness stay. Lengths are drawn from the quantiles
of their six hours, linear in between. No prefix structure is known.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from fairhit.errors import ConfigError
from fairhit_lab.traces.importers.format import Cells, Format, cells, lengths_only
from fairhit_lab.traces.parameters import Amount, Count, Natural, Positive, Word
from fairhit_lab.traces.rows import merged
from fairhit_lab.traces.trace import TraceRow

ARRIVALS = ("model", "client", "t_s", "rate_per_s", "pattern", "shape")
QUANTILES = {
    "q01": 0.01, "q05": 0.05, "q10": 0.1, "q25": 0.25, "q50": 0.5, "q75": 0.75, "q90": 0.9,
    "q95": 0.95, "q99": 0.99,
}  # fmt: skip
LENGTHS = ("model", "client", "t_s", "field", *QUANTILES)
FIELDS = ("input_tokens", "output_tokens")
WINDOW_S = 600
GAMMA, WEIBULL = "Gamma", "Weibull"


@dataclass(frozen=True, slots=True)
class _Window:
    """Ten minutes of one client."""

    start_s: float
    rate: float
    pattern: str
    shape: float

    def overlap(self, start_s: float, end_s: float) -> float:
        """Return how many seconds of the window lie between `start_s` and `end_s`."""
        return min(self.start_s + WINDOW_S, end_s) - max(self.start_s, start_s)

    def gap(self, rng: Random) -> float:
        """A gap with mean 1."""
        if self.pattern == GAMMA:
            return rng.gammavariate(self.shape, 1 / self.shape)
        return rng.weibullvariate(1 / math.gamma(1 + 1 / self.shape), self.shape)


# Of one field: when each window starts, and its quantiles.
Lengths = list[tuple[float, list[float]]]


def _windows(path: str, model: str, start_s: float, end_s: float) -> dict[str, list[_Window]]:
    found: dict[str, list[_Window]] = {}
    for place in cells(path, ARRIVALS):
        if place.values["model"] != model:
            continue
        at_s = place.real("t_s")
        if start_s - WINDOW_S < at_s < end_s:
            own = found.setdefault(place.name("client"), [])
            if own and own[-1].start_s >= at_s:
                place.wrong("t_s", "a client's windows sorted by time")
            own.append(_window(place, at_s))
    return found


def _window(place: Cells, at_s: float) -> _Window:
    if (pattern := place.name("pattern")) not in {GAMMA, WEIBULL}:
        place.wrong("pattern", f"{GAMMA} or {WEIBULL}")
    rate, shape = place.real("rate_per_s"), place.real("shape")
    if not rate:
        place.wrong("rate_per_s", "a number above 0")
    if shape < 0.01:
        place.wrong("shape", "a number from 0.01")
    return _Window(at_s, rate, pattern, shape)


def _lengths(path: str, model: str) -> dict[tuple[str, str], Lengths]:
    found: dict[tuple[str, str], Lengths] = {}
    for place in cells(path, LENGTHS):
        if place.values["model"] != model:
            continue
        if (field := place.values["field"]) not in FIELDS:
            place.wrong("field", " or ".join(FIELDS))
        quantiles = [place.real(name, least=0) for name in QUANTILES]
        own = found.setdefault((place.name("client"), field), [])
        own.append((place.real("t_s"), quantiles))
    for own in found.values():
        own.sort()
    return found


def _drawn(rng: Random, lengths: Lengths, at_s: float) -> int:
    """A length by the quantiles that hold at the time, the first ones before they begin."""
    place = bisect_right(lengths, at_s, key=lambda pair: pair[0])
    _, values = lengths[max(place - 1, 0)]
    levels = list(QUANTILES.values())
    level = min(max(rng.random(), levels[0]), levels[-1])
    at = min(max(bisect_right(levels, level), 1), len(levels) - 1)
    share = (level - levels[at - 1]) / (levels[at] - levels[at - 1])
    return max(1, round(values[at - 1] + share * (values[at] - values[at - 1])))


def _times(rng: Random, windows: list[_Window], factor: float, end_s: float) -> Iterator[float]:
    """A renewal process on a clock that runs with the rate: a gap may reach over several windows."""
    left = rng.random() * windows[0].gap(rng)
    for window in windows:
        at_s, until_s = window.start_s, min(window.start_s + WINDOW_S, end_s)
        rate = window.rate * factor
        while (next_s := at_s + left / rate) < until_s:
            at_s = next_s
            yield at_s
            left = window.gap(rng)
        left -= (until_s - at_s) * rate


def servegen(
    paths: Sequence[str],
    rng: Random,
    *,
    model: Word = "m-small",
    start: Amount = 86_400,
    duration: Positive = 3_600,
    rate: Positive = 10,
    clients: Natural = 0,
    scale: Count = 1,
) -> Iterator[TraceRow]:
    """Two files: arrivals, lengths. `rate` requests a second in all, of the `clients` busiest (0: all).

    `start` and `duration` are seconds on the data's clock; the trace begins at 0. `scale` divides lengths.
    """
    if len(paths) != 2:
        raise ConfigError(f"expected two files, arrivals and lengths, got {len(paths)}")
    windows = _windows(paths[0], model, start, start + duration)
    lengths = _lengths(paths[1], model)
    known = [name for name in windows if all((name, field) in lengths for field in FIELDS)]
    if not known:
        raise ConfigError(
            f"{paths[0]}: no client of model {model} from {start:g} s for {duration:g} s"
        )
    # Requests that each would send in this time.
    weights = {
        name: sum(window.rate * window.overlap(start, start + duration) for window in windows[name])
        for name in known
    }
    chosen = sorted(known, key=lambda name: -weights[name])[: clients or None]
    factor = rate * duration / sum(weights[name] for name in chosen)

    def client(name: str, own: Random) -> Iterator[TraceRow]:
        due = _times(own, windows[name], factor, start + duration)
        for n, at_s in enumerate(at_s for at_s in due if at_s >= start):
            lens = [_drawn(own, lengths[name, field], at_s) for field in FIELDS]
            yield lengths_only(
                f"c{name}:{n}",
                client=f"c{name}",
                at_us=round((at_s - start) * 1_000_000),
                input_len=max(1, lens[0] // scale),
                output_len=max(1, lens[1] // scale),
            )

    return merged([client(name, Random(rng.getrandbits(64))) for name in chosen])


SERVEGEN = Format(
    summary="clients of production services, sampled from their models",
    source="alibaba/ServeGen",
    read=servegen,
)

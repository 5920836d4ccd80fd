"""The rows of a study, and numbers over its seeds: medians with their range."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from statistics import median
from typing import Any, NamedTuple

Label = str | int | float
Cell = Label | None
ResultRow = Mapping[str, Cell]


def three_digits(value: float) -> str:
    """A number with three significant digits: 0.0123, 12.3, 12,300."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 1000 else f"{rounded:.3g}"


class Interval(NamedTuple):
    """A median with the least and greatest value over `seeds` seeds; NaN without any."""

    median: float
    low: float
    high: float
    seeds: int

    def __str__(self) -> str:
        if not self.seeds:
            return "no value"
        middle, low, high = map(three_digits, (self.median, self.low, self.high))
        return middle if low == high else f"{middle} ({low} to {high})"


def interval_of(values: Iterable[float]) -> Interval:
    """The interval of these values; without any, as where a client starves in every seed, "no value"."""
    ordered = sorted(values)
    if not ordered:
        return Interval(nan, nan, nan, 0)
    return Interval(median(ordered), ordered[0], ordered[-1], len(ordered))


@dataclass(frozen=True, slots=True)
class Results:
    """`rows` has one row per case and seed, with its labels, `seed` and the study's measures.

    `series` has one row per point of a curve, with labels, `seed`, `time_s`, `client`, `metric` and
    `value`; only of cases that keep curves. `configs` has the settings each row was run with, by the
    hash in the row's `config`.
    """

    rows: Sequence[ResultRow]
    series: Sequence[ResultRow] = ()
    configs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def settings(self, row: ResultRow) -> Mapping[str, Any] | None:
        """The description of the case that gave this row; None where it was not recorded."""
        return self.configs.get(str(row.get("config", "")))

    def values(self, metric: str, **labels: Label) -> dict[int, float]:
        """The values of a metric by seed, of the rows with these labels. One row per seed."""
        found: dict[int, float] = {}
        for row in self.rows:
            value = row[metric]
            if value is not None and all(row[name] == label for name, label in labels.items()):
                seed = row["seed"]
                assert isinstance(seed, int), row
                assert seed not in found, f"{metric}: {labels} fits several rows of seed {seed}"
                found[seed] = float(value)
        return found

    def interval(self, metric: str, **labels: Label) -> Interval:
        """The interval of those values."""
        return interval_of(self.values(metric, **labels).values())

    def ratio(self, metric: str, over: Mapping[str, Label], under: Mapping[str, Label]) -> Interval:
        """The interval of `over` divided by `under`, seed by seed: what a seed has in common cancels."""
        tops, bottoms = self.values(metric, **over), self.values(metric, **under)
        return interval_of(tops[seed] / bottoms[seed] for seed in tops if bottoms.get(seed))

    def labels(self, name: str) -> list[Label]:
        """The values of a label, in the order of the rows."""
        seen = dict.fromkeys(row[name] for row in self.rows)
        return [label for label in seen if label is not None]

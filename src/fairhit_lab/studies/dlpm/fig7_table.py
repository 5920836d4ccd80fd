"""The rows of DLPM Figure 7 by point, seed and system, and ratios of systems over the points."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fairhit_lab.studies.dlpm.shared import STATED
from fairhit_lab.studies.shared.results import Interval, Label, ResultRow, interval_of

STATED_THERE = "stated, D = 4 alone"  # where all else is varied
FEWEST = 20  # programs of each client: with fewer, a point says more about its arrivals
COLUMNS = ("variant", "workload", "misbehaviour", "replicas")


class Fig7Point(NamedTuple):
    """A workload, a kind of misbehaviour and D, in one setting."""

    variant: Label
    workload: Label
    kind: Label
    replicas: Label


class Fig7Table:
    """The rows by point, seed and system. Where a setting has only D2LPM's, others are taken as stated.

    Points and seeds with fewer than FEWEST programs of a client are left out, and counted.
    """

    def __init__(self, rows: Sequence[ResultRow]) -> None:
        self._rows: dict[tuple[Fig7Point, Label], dict[Label, ResultRow]] = {}
        self.points: dict[Fig7Point, None] = {}
        ran: dict[Label, dict[tuple[Fig7Point, Label], None]] = {}
        for row in rows:
            point = Fig7Point(*(_label(row, name) for name in COLUMNS))
            at = point, _label(row, "seed")
            ran.setdefault(point.variant, {})[at] = None
            if not isinstance(programs := row["programs"], int | float) or programs < FEWEST:
                continue
            self._rows.setdefault(at, {})[_label(row, "system")] = row
            self.points[point] = None
        stated = ran.get(STATED, {})
        self.scope = f"{sum(at in self._rows for at in stated)} of {len(stated)} points and seeds"
        self.seeds = list(dict.fromkeys(seed for _, seed in self._rows))

    def has(self, point: Fig7Point, seed: Label, system: str) -> bool:
        """True if the system was run in this very setting."""
        return system in self._rows.get((point, seed), {})

    def row(self, point: Fig7Point, seed: Label, system: str) -> ResultRow | None:
        """The row of a system, in this setting or else as stated; None if neither was run."""
        for at in (point, point._replace(variant=STATED)):
            found = self._rows.get((at, seed), {}).get(system)
            if found is not None:
                return found
        return None

    def ratios(
        self, variant: str, metric: Callable[[Fig7Point], str], over: str, under: str
    ) -> dict[Label, dict[Fig7Point, float]]:
        """Ratios of two systems' metric by seed and point, where at least one was run in this setting."""
        return {
            seed: {point: a / b for point, (a, b) in of.items()}
            for seed, of in self.pairs(variant, metric, over, under).items()
        }

    def pairs(
        self, variant: str, metric: Callable[[Fig7Point], str], over: str, under: str
    ) -> dict[Label, dict[Fig7Point, tuple[float, float]]]:
        """By seed and point both systems' metrics, as `ratios` selects them."""
        found: dict[Label, dict[Fig7Point, tuple[float, float]]] = {}
        points = [each for each in self.points if each.variant == variant]
        if variant == STATED_THERE:
            points = [each for each in self.points if each[::3] == (STATED, 4)]
        for seed in self.seeds:
            for point in points:
                if not any(self.has(point, seed, system) for system in (over, under)):
                    continue
                top, bottom = self.row(point, seed, over), self.row(point, seed, under)
                if top is None or bottom is None:
                    continue
                a, b = top[metric(point)], bottom[metric(point)]
                # Unfinished programs have a time, too: a missing value here is our bug.
                assert isinstance(a, int | float) and isinstance(b, int | float) and b > 0, (
                    point,
                    seed,
                )
                found.setdefault(seed, {})[point] = a, b
        return found


def _label(row: ResultRow, name: str) -> Label:
    value = row[name]
    assert value is not None, row
    return value


def named(metric: str) -> Callable[[Fig7Point], str]:
    """The metric of this name at every point."""
    return lambda _: metric


def latency(percentile: str) -> Callable[[Fig7Point], str]:
    """The latency metric of a point: completion of programs, of long QA (section 6.1) time to first token."""
    return lambda point: f"{percentile}_{'wait' if point.workload == 'long-qa' else 'program'}_s"


def over_points(
    ratios: Mapping[Label, Mapping[Fig7Point, float]], take: Callable[[Sequence[float]], float]
) -> Interval:
    """The interval of one number per seed, such as the mean of its ratios."""
    return interval_of(take(list(of.values())) for of in ratios.values())


def by_workload(
    ratios: Mapping[Label, Mapping[Fig7Point, float]], take: Callable[[Sequence[float]], float]
) -> str:
    """The interval for each workload, for the reason of a verdict: "tot 1.1x, judge 1.3x"."""
    points = dict.fromkeys(point for of in ratios.values() for point in of)
    return ", ".join(
        f"{workload} {interval_of(take(values) for values in found)}x"
        for workload in dict.fromkeys(point.workload for point in points)
        for found in [_of_workload(ratios, workload)]
    )


def _of_workload(
    ratios: Mapping[Label, Mapping[Fig7Point, float]], workload: Label
) -> list[list[float]]:
    """The ratios of a workload by seed, without seeds that have none."""
    found = [
        [value for point, value in of.items() if point.workload == workload]
        for of in ratios.values()
    ]
    return [values for values in found if values]

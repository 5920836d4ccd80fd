"""The points of DLPM Figure 7: rows by point, seed and system, and the ratios of two systems over them."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from fairhit_lab.studies.dlpm.shared import STATED
from fairhit_lab.studies.shared.limits import most_throughput
from fairhit_lab.studies.shared.results import Interval, Label, ResultRow, Results, interval_of

STATED_THERE = "stated, D = 4 alone"  # where all else is varied
FEWEST = 20  # programs of each client: with fewer, a point says more about its arrivals
COLUMNS = ("variant", "workload", "misbehaviour", "replicas")
SCARCE = "100,000 KV tokens"


class Fig7Point(NamedTuple):
    """A workload, a kind of misbehaviour and D, in one setting."""

    variant: Label
    workload: Label
    kind: Label
    replicas: Label


class Fig7Table:
    """The rows by point, seed and system. What a setting does not vary is taken as stated.

    Points at which a client began fewer than FEWEST programs in some seed are left out of all seeds, so
    that each seed's maximum is over the same points, and counted.
    """

    def __init__(self, results: Results) -> None:
        self._results = results
        self._rows: dict[tuple[Fig7Point, Label], dict[Label, ResultRow]] = {}
        self.points: dict[Fig7Point, None] = {}
        self._few: set[Fig7Point] = set()
        for row in results.rows:
            point = Fig7Point(*(_label(row, name) for name in COLUMNS))
            if not isinstance(programs := row["programs"], int | float) or programs < FEWEST:
                self._few.add(point)
            self._rows.setdefault((point, _label(row, "seed")), {})[_label(row, "system")] = row
            self.points[point] = None
        stated = [point for point in self.points if point.variant == STATED]
        self.scope = f"{sum(point not in self._few for point in stated)} of {len(stated)} points"
        self.points = {point: None for point in self.points if point not in self._few}
        self.seeds = list(dict.fromkeys(seed for _, seed in self._rows))

    def has(self, point: Fig7Point, seed: Label, system: str) -> bool:
        """True if the system was run in this very setting."""
        return system in self._rows.get((point, seed), {})

    def longest_s(self, row: ResultRow, percentile: str) -> float | None:
        """The longest latency that this row could show; None where its settings were not recorded.

        What began is counted to the stop if it has not ended by then, and arrivals are spread evenly: half
        of them come in the first half of the time, one in a hundred in the first hundredth.
        """
        case = self._results.settings(row)
        if case is None or (stop_s := case.get("stop_s")) is None:
            return None
        arrivals_s = min(float(stop_s), float(case["source"]["settings"]["duration"]))
        return float(stop_s) - arrivals_s * {"p50": 0.5, "p99": 0.01}[percentile]

    def most_throughput(self, point: Fig7Point, seed: Label) -> float | None:
        """D2LPM's throughput at a point if all that is asked for were served; None if settings are unknown.

        Drawn for one GPU, times D: rates are in proportion to D, and a tree has hundreds of requests.
        """
        row = self.row(point._replace(replicas=1), seed, "d2lpm")
        most = most_throughput(self._results, row) if row else None
        return most * float(point.replicas) if most else None

    def row(self, point: Fig7Point, seed: Label, system: str) -> ResultRow | None:
        """The row of a system, in this setting or else as stated; None if neither was run."""
        for at in (point, point._replace(variant=STATED)):
            found = self._rows.get((at, seed), {}).get(system)
            if found is not None:
                return found
        return None

    def ratios(
        self, variant: str, metric: str, over: str, under: str
    ) -> dict[Label, dict[Fig7Point, float]]:
        """Ratios of two systems' metric by seed and point, as `pairs` selects them."""
        return {
            seed: {point: a / b for point, (a, b) in of.items()}
            for seed, of in self.pairs(variant, metric, over, under).items()
        }

    def pairs(
        self, variant: str, metric: str, over: str, under: str
    ) -> dict[Label, dict[Fig7Point, tuple[float, float]]]:
        """By seed and point both systems' metrics; empty if neither was run in this setting.

        A setting is compared over all points at the D at which it was run: what it does not vary is taken
        as stated.
        """
        found: dict[Label, dict[Fig7Point, tuple[float, float]]] = {}
        points = self._compared(variant)
        if variant not in {STATED, STATED_THERE} and not any(
            self.has(point, seed, system)
            for point in points
            for seed in self.seeds
            for system in (over, under)
        ):
            return found
        for seed in self.seeds:
            for point in points:
                top, bottom = self.row(point, seed, over), self.row(point, seed, under)
                if top is None or bottom is None or point in self._few:
                    continue
                column = column_of(metric, point.workload)
                a, b = top[column], bottom[column]
                # Unfinished programs have a time, too: a missing value here is our bug.
                assert isinstance(a, int | float) and isinstance(b, int | float) and b > 0, point
                found.setdefault(seed, {})[point] = a, b
        return found

    def _compared(self, variant: str) -> list[Fig7Point]:
        """The points of a setting: the stated ones that have enough programs, at the D that it was run at."""
        stated = [point for point in self.points if point.variant == STATED]
        if variant == STATED:
            return stated
        if variant == STATED_THERE:
            return [point for point in stated if point.replicas == 4]
        at = {point.replicas for point, _ in self._rows if point.variant == variant}
        return [point._replace(variant=variant) for point in stated if point.replicas in at]


def _label(row: ResultRow, name: str) -> Label:
    value = row[name]
    assert value is not None, row
    return value


def column_of(metric: str, workload: Label) -> str:
    """The column of a metric; p50 and p99 are of programs, of long QA (section 6.1) of first tokens."""
    if metric not in {"p50", "p99"}:
        return metric
    return f"{metric}_{'wait' if workload == 'long-qa' else 'program'}_s"


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

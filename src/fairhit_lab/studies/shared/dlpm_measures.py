"""Numbers that the DLPM paper reads off its curves over time; only of cases that keep their series."""

from collections import defaultdict
from statistics import fmean

from fairhit_lab.studies.shared.study import Measure, Outcome

SLOW = 0.4  # of the best minute's service


def requests_per_s(outcome: Outcome) -> float | None:
    """Requests that finished a second: where more is asked for than can be served, the capacity."""
    value: float | None = outcome.summary["throughput"]["requests_per_s"]
    return value


def slow_share(outcome: Outcome) -> float | None:
    """Share of the minutes in which the cluster gave less than 40 % of what it gave in its best one.

    Without the half minute at 0. The end of a run is slow under every policy: compare shares.
    """
    of: dict[float, float] = defaultdict(float)
    for point in outcome.series:
        if point.metric == "service_client":
            of[point.time_s] += point.value or 0
    totals = list(of.values())[1:]
    return fmean(value < SLOW * max(totals) for value in totals) if totals else None


def lead_of(client: str, metric: str) -> Measure:
    """A client's service in the first half of the run, over the mean of the other clients'."""

    def measure(outcome: Outcome) -> float | None:
        points = [point for point in outcome.series if point.metric == metric]
        half_s = max((point.time_s for point in points), default=0) / 2
        of: dict[str, float] = defaultdict(float)
        for point in points:
            if point.time_s <= half_s:
                of[point.client] += point.value or 0
        rest = [value for name, value in of.items() if name != client]
        return of[client] / fmean(rest) if rest and sum(rest) else None

    return measure


def response_peak(*, without: tuple[str, ...] = ()) -> Measure:
    """The highest mean response time of a minute, in seconds, of any client but those."""

    def measure(outcome: Outcome) -> float | None:
        values = [
            point.value
            for point in outcome.series
            if point.metric == "response_time"
            and point.client not in without
            and point.value is not None
        ]
        return max(values, default=None)

    return measure


def longest_ttft(*clients: str) -> Measure:
    """The longest wait for a first token that any of those clients had, in seconds."""

    def measure(outcome: Outcome) -> float | None:
        waits = [outcome.summary["clients"][name]["ttft"]["max_s"] for name in clients]
        return max((wait for wait in waits if wait is not None), default=None)

    return measure

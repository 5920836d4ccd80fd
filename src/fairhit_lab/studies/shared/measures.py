"""Numbers that studies read from an outcome: one function each, named for the column it fills."""

from collections import defaultdict
from statistics import fmean
from typing import Any

from fairhit_lab.studies.shared.study import Measure, Outcome


def throughput(outcome: Outcome) -> float | None:
    """Client-view service a second of what finished, over the makespan (DLPM's "throughput")."""
    value: float | None = outcome.summary["throughput"]["service_per_s"]
    return value


def tokens_per_s(outcome: Outcome) -> float | None:
    """Input and output tokens of what finished, over the makespan (VTC's "throughput")."""
    value: float | None = outcome.summary["throughput"]["tokens_per_s"]
    return value


def jain_client(outcome: Outcome) -> float | None:
    """Jain's index of client-view service, while all clients are active (DLPM, section 5)."""
    value: float | None = outcome.summary["jain"]["client"]
    return value


def jain_system(outcome: Outcome) -> float | None:
    """Jain's index of what was computed for each client, while all are active."""
    value: float | None = outcome.summary["jain"]["system"]
    return value


def hit_rate(outcome: Outcome) -> float | None:
    """Share of the prompts' tokens that the prefix cache had."""
    value: float | None = outcome.summary["locality"]["hit_rate"]
    return value


def makespan_s(outcome: Outcome) -> float | None:
    """From the first start to the last finish."""
    value: float | None = outcome.summary["makespan_s"]
    return value


def ttft(percentile: str, *, without: tuple[str, ...] = ()) -> Measure:
    """Seconds to the first token, such as "p99_s": the mean over clients but those (DLPM, section 5)."""

    def measure(outcome: Outcome) -> float | None:
        return _mean_of(
            {name: of["ttft"] for name, of in outcome.summary["clients"].items()},
            percentile,
            without,
        )

    return measure


def wait(percentile: str, *, without: tuple[str, ...] = ()) -> Measure:
    """As `ttft`, but who has none when the run is stopped counts with the time so far."""

    def measure(outcome: Outcome) -> float | None:
        return _mean_of(outcome.summary["waits"], percentile, without)

    return measure


def program_completion(percentile: str, *, without: tuple[str, ...] = ()) -> Measure:
    """Seconds from a program's start to its end: the mean over clients but those (DLPM, section 5).

    Who finished none is in no mean: for runs that are stopped there is `program_wait`.
    """

    def measure(outcome: Outcome) -> float | None:
        return _mean_of(outcome.summary["programs"]["clients"], percentile, without)

    return measure


def program_wait(percentile: str, *, without: tuple[str, ...] = ()) -> Measure:
    """As `program_completion`, but who is not done when the run is stopped counts with the time so far."""

    def measure(outcome: Outcome) -> float | None:
        return _mean_of(outcome.summary["program_waits"], percentile, without)

    return measure


def fewest_programs(*clients: str) -> Measure:
    """How many programs the one of `clients` that began fewest began: what a percentile is made of."""

    def measure(outcome: Outcome) -> float:
        programs = outcome.summary["program_waits"]
        return min(programs[client]["count"] if client in programs else 0 for client in clients)

    return measure


def _mean_of(
    by_client: dict[str, dict[str, Any]], percentile: str, without: tuple[str, ...]
) -> float | None:
    values = [
        of[percentile]
        for client, of in by_client.items()
        if client not in without and of[percentile] is not None
    ]
    return fmean(values) if values else None


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

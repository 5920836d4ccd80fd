"""Numbers that studies read from an outcome: one function each, named for the column it fills."""

from collections import defaultdict
from statistics import fmean
from typing import Any

from fairhit_lab.studies.shared.study import Measure, Outcome


def throughput(outcome: Outcome) -> float | None:
    """Client-view service per second of finished requests, over the makespan (DLPM's "throughput")."""
    value: float | None = outcome.summary["throughput"]["service_per_s"]
    return value


def tokens_per_s(outcome: Outcome) -> float | None:
    """Input and output tokens per second of finished requests, over the makespan (VTC's "throughput")."""
    value: float | None = outcome.summary["throughput"]["tokens_per_s"]
    return value


def jain_client(outcome: Outcome) -> float | None:
    """Jain's index of client-view service, while all clients are active (DLPM, section 5)."""
    value: float | None = outcome.summary["jain"]["client"]
    return value


def jain_system(outcome: Outcome) -> float | None:
    """Jain's index of the tokens computed for each client, while all are active."""
    value: float | None = outcome.summary["jain"]["system"]
    return value


def hit_rate(outcome: Outcome) -> float | None:
    """The share of prompt tokens that were in the prefix cache."""
    value: float | None = outcome.summary["locality"]["hit_rate"]
    return value


def makespan_s(outcome: Outcome) -> float | None:
    """The time from the first start to the last finish."""
    value: float | None = outcome.summary["makespan_s"]
    return value


def ttft(percentile: str, *, without: tuple[str, ...] = ()) -> Measure:
    """A percentile ("p99_s") of seconds to the first token: the mean over clients not in `without`.

    As in section 5 of DLPM.
    """

    def measure(outcome: Outcome) -> float | None:
        return _mean_of(
            {name: of["ttft"] for name, of in outcome.summary["clients"].items()},
            percentile,
            without,
        )

    return measure


def wait(percentile: str, *, without: tuple[str, ...] = ()) -> Measure:
    """As `ttft`, but a request without a first token at the stop counts with the time so far."""

    def measure(outcome: Outcome) -> float | None:
        return _mean_of(outcome.summary["waits"], percentile, without)

    return measure


def program_completion(percentile: str, *, without: tuple[str, ...] = ()) -> Measure:
    """A percentile of seconds from a program's start to its end: the mean over clients.

    As in section 5 of DLPM. A client that finished no program is left out: for runs that are
    stopped there is `program_wait`.
    """

    def measure(outcome: Outcome) -> float | None:
        return _mean_of(outcome.summary["programs"]["clients"], percentile, without)

    return measure


def program_wait(percentile: str, *, without: tuple[str, ...] = ()) -> Measure:
    """As `program_completion`, but a program unfinished at the stop counts with the time so far."""

    def measure(outcome: Outcome) -> float | None:
        return _mean_of(outcome.summary["program_waits"], percentile, without)

    return measure


def fewest_programs(*clients: str) -> Measure:
    """The fewest programs that any client of `clients` began: the sample size of a percentile."""

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
    """Finished requests per second: the capacity, where more are sent than can be served."""
    value: float | None = outcome.summary["throughput"]["requests_per_s"]
    return value


def slow_share(outcome: Outcome) -> float | None:
    """The share of minutes in which the cluster served less than 40 % of its best minute.

    The half minute at 0 is left out. The end of a run is slow under every policy: compare shares.
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
    """The highest mean response time of a minute, in seconds, of any client not in `without`."""

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
    """The longest time to a first token among these clients' requests, in seconds."""

    def measure(outcome: Outcome) -> float | None:
        waits = [outcome.summary["clients"][name]["ttft"]["max_s"] for name in clients]
        return max((wait for wait in waits if wait is not None), default=None)

    return measure

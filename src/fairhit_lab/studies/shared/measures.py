"""Numbers that studies read from an outcome: one function each, named for the column it fills."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import ceil
from statistics import fmean
from typing import Any

from fairhit_lab.studies.shared.study import Measure, Outcome

# Columns read from the summary, and their place in it (docs/reference/summary.md).
IN_SUMMARY: Mapping[str, Sequence[str]] = {
    # Client-view service per second of finished requests, over the makespan: DLPM's "throughput".
    "throughput": ("throughput", "service_per_s"),
    # Input and output tokens per second of finished requests, over the makespan: VTC's "throughput".
    "tokens_per_s": ("throughput", "tokens_per_s"),
    # The capacity, where more requests are sent than can be served.
    "requests_per_s": ("throughput", "requests_per_s"),
    # Jain's index while all clients are active: of client-view service (DLPM, section 5), of computed tokens.
    "jain_client": ("jain", "client"),
    # Jain's index of service over entitlement (max-min by demand), and the least share of a client.
    "jain_entitlement": ("entitlement", "jain"),
    "worst_share": ("entitlement", "worst_share"),
    "jain_system": ("jain", "system"),
    "hit_rate": ("locality", "hit_rate"),
    "makespan_s": ("makespan_s",),
}


def in_summary(*columns: str) -> dict[str, Measure]:
    """The measures of these columns of IN_SUMMARY."""

    def measure_at(place: Sequence[str]) -> Measure:
        def measure(outcome: Outcome) -> float | None:
            value: Any = outcome.summary
            for key in place:
                value = value[key]
            number: float | None = value
            return number

        return measure

    return {column: measure_at(IN_SUMMARY[column]) for column in columns}


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


def late_ttft(client: str, share: float) -> Measure:
    """The P99 of seconds to the first token over the last `share` of a client's requests, by arrival.

    None for a run without a row per request.
    """

    def measure(outcome: Outcome) -> float | None:
        own = [row for row in outcome.requests if row.client == client and not row.aborted]
        own.sort(key=lambda row: row.arrival_s)
        waits = sorted(row.first_token_s - row.arrival_s for row in own[-ceil(share * len(own)) :])
        return waits[99 * len(waits) // 100] if waits else None

    return measure


def while_arriving(share: float, *, served: bool = True) -> Measure:
    """Client-view service a second up to the time at which that share of the requests has arrived.

    Of the requests that have finished by then; with `served` False of those that have arrived, the most
    that could have been served. None for a run without a row per request.
    """

    def measure(outcome: Outcome) -> float | None:
        rows = [row for row in outcome.requests if not row.aborted]
        if not rows:
            return None
        arrivals = sorted(row.arrival_s for row in rows)
        end_s = arrivals[ceil(share * len(arrivals)) - 1]
        counted = (row for row in rows if (row.finish_s if served else row.arrival_s) <= end_s)
        tokens = sum(row.input_len + 2 * row.output_len for row in counted)
        return tokens / end_s if end_s else None

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

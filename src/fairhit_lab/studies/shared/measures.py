"""Numbers that studies read from an outcome: one function each, named for the column it fills."""

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

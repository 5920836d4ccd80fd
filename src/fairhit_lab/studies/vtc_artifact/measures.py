"""Numbers of the VTC paper's studies, read from request rows as its artifact reads them.

A measure is None where there are no rows: a printed line has only the table's numbers.
"""

from collections.abc import Mapping
from math import sqrt
from statistics import fmean

from fairhit_lab.metrics.vtc_table import WINDOW_S, linear, served, service
from fairhit_lab.studies.shared.study import Measure, Outcome


def _of_table(name: str) -> Measure:
    def measure(outcome: Outcome) -> float | None:
        value: float = outcome.summary["table"][name]
        return value

    return measure


# A line of Tables 2 to 6: tokens/s, their variance, tokens/s.
TABLE: Mapping[str, Measure] = {
    "max_diff": _of_table("max_diff"),
    "avg_diff": _of_table("avg_diff"),
    "diff_var": _of_table("diff_var"),
    "tokens_per_s": _of_table("throughput"),
}


def rate(client: str, begin_s: float = 0.0, end_s: float | None = None) -> Measure:
    """Tokens/s of service that a client got from `begin_s` to `end_s` (the last arrival)."""

    def measure(outcome: Outcome) -> float | None:
        if not outcome.requests:
            return None
        end = last_arrival_s(outcome) if end_s is None else end_s
        got = service(served(outcome.requests), begin_s, end)
        return got.get(client, 0.0) / (end - begin_s)

    return measure


def rate_of_all(outcome: Outcome) -> float | None:
    """Tokens/s of service that all clients got until the last arrival."""
    if not outcome.requests:
        return None
    end_s = last_arrival_s(outcome)
    return sum(service(served(outcome.requests), 0.0, end_s).values()) / end_s


def response(*clients: str, begin_s: float = 0.0) -> Measure:
    """Mean seconds to the first token of these clients' requests that arrived from `begin_s` on."""

    def measure(outcome: Outcome) -> float | None:
        waits = [
            row.first_token_s - row.arrival_s
            for row in served(outcome.requests)
            if row.client in clients and row.arrival_s >= begin_s
        ]
        return fmean(waits) if waits else None

    return measure


def longest_response(*clients: str) -> Measure:
    """The longest of these clients' first-token latencies, in seconds."""

    def measure(outcome: Outcome) -> float | None:
        rows = (row for row in served(outcome.requests) if row.client in clients)
        return max((row.first_token_s - row.arrival_s for row in rows), default=None)

    return measure


def longest_mean_response(*without: str) -> Measure:
    """The longest mean of a client's seconds to the first token, of all clients not in `without`."""

    def measure(outcome: Outcome) -> float | None:
        waits: dict[str, list[float]] = {}
        for row in served(outcome.requests):
            if row.client not in without:
                waits.setdefault(row.client, []).append(row.first_token_s - row.arrival_s)
        return max((fmean(of) for of in waits.values()), default=None)

    return measure


def lasts_s(outcome: Outcome) -> float | None:
    """Seconds to the last end of a request: no response takes longer."""
    return max((row.finish_s for row in served(outcome.requests)), default=None)


def most_asked(outcome: Outcome) -> float | None:
    """The service that the greediest client asked for, in tokens: no difference of service is larger."""
    of: dict[str, float] = {}
    for row in served(outcome.requests):
        of[row.client] = of.get(row.client, 0.0) + linear(row.input_len, row.output_len)
    return max(of.values(), default=None)


def asked_per_s(outcome: Outcome) -> float | None:
    """Tokens/s if all requests that were served had been served by the last arrival: no run has more."""
    rows = served(outcome.requests)
    end_s = last_arrival_s(outcome)
    return sum(row.input_len + row.output_len for row in rows) / end_s if end_s else None


def share_served(outcome: Outcome) -> float | None:
    """The share of requests that were not rejected."""
    if not outcome.requests:
        return None
    return len(served(outcome.requests)) / len(outcome.requests)


def most_difference(outcome: Outcome) -> float | None:
    """The largest difference of accumulated service at a point of the curve, in tokens."""
    return max(_differences(outcome), default=None)


def mean_difference(outcome: Outcome) -> float | None:
    """The mean of the curve of the difference of accumulated service, in tokens."""
    values = _differences(outcome)
    return fmean(values) if values else None


def spread_of_difference(outcome: Outcome) -> float | None:
    """The standard deviation of that curve without its first tenth, in tokens."""
    values = _differences(outcome)
    values = values[len(values) // 10 :]
    if not values:
        return None
    middle = fmean(values)
    return sqrt(fmean((value - middle) ** 2 for value in values))


def later_swing(outcome: Outcome) -> float | None:
    """Greatest less least value of the curve in its second half, in tokens.

    Theorem 4.4 is about any interval.
    """
    values = _differences(outcome)
    values = values[len(values) // 2 :]
    return max(values) - min(values) if values else None


def difference_at(share: float) -> Measure:
    """The value of the curve at a share of its length, in tokens; 1 is its last point."""

    def measure(outcome: Outcome) -> float | None:
        values = _differences(outcome)
        return values[round(share * (len(values) - 1))] if values else None

    return measure


def _differences(outcome: Outcome) -> list[float]:
    return [
        point.value
        for point in outcome.series
        if point.metric == "difference" and point.value is not None
    ]


def evenness(weights: Mapping[str, float]) -> Measure:
    """Service by weight until the last arrival: the least served client's over the most served client's."""

    def measure(outcome: Outcome) -> float | None:
        rates = [rate(client)(outcome) for client in weights]
        shares = [
            each / weight for each, weight in zip(rates, weights.values(), strict=True) if each
        ]
        return min(shares) / max(shares) if len(shares) == len(weights) else None

    return measure


def least_share(*clients: str, begin_s: float = 0.0, end_s: float | None = None) -> Measure:
    """Least over most served of these clients, in the worst of the windows inside the interval."""

    def measure(outcome: Outcome) -> float | None:
        end = last_arrival_s(outcome) if end_s is None else end_s
        found: dict[float, list[float]] = {}
        for at_s, client, metric, value in outcome.series:
            inside = begin_s + WINDOW_S / 2 <= at_s <= end - WINDOW_S / 2
            if metric == "service_rate" and client in clients and inside and value is not None:
                found.setdefault(at_s, []).append(value)
        return min((min(of) / max(of) for of in found.values() if max(of)), default=None)

    return measure


def total_least(outcome: Outcome) -> float | None:
    """The service of all clients in the curve's least served window, over that in its most served one."""
    end_s = last_arrival_s(outcome)
    totals: dict[float, float] = {}
    for at_s, _, metric, value in outcome.series:
        inside = WINDOW_S / 2 <= at_s <= end_s - WINDOW_S / 2
        if metric == "service_rate" and inside and value is not None:
            totals[at_s] = totals.get(at_s, 0.0) + value
    return min(totals.values()) / max(totals.values()) if any(totals.values()) else None


def last_arrival_s(outcome: Outcome) -> float:
    """The last arrival, T of the figures."""
    return max((row.arrival_s for row in outcome.requests), default=0.0)

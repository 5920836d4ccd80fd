"""The metrics of the VTC paper (arXiv:2401.00588v2) as its artifact computes them, over finished requests.

Service here is the client's view, spread evenly from a request's first token to its last, so input
counts after the first token and not at admission. Times are seconds, amounts tokens, rates tokens/s.
Nothing here is meant for long runs: each function is O(requests) a window.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, pvariance
from typing import NamedTuple

from fairhit.core.request import ClientId

WINDOW_S = 60.0
# The table's ticks: 19 of them, 20 to a run that lasts `duration`, the last half window left out.
TICKS = 20
EDGE_S = 30.0


class Row(NamedTuple):
    """A request, measured or simulated; `aborted` if it was rejected: its times then mean nothing."""

    client: ClientId
    arrival_s: float
    first_token_s: float
    finish_s: float
    input_len: int
    output_len: int
    aborted: bool = False


# h(input, output): what a request is worth.
Worth = Callable[[int, int], float]


def linear(input_len: int, output_len: int) -> float:
    """The client view with the papers' weights, 1 and 2."""
    return input_len + 2 * output_len


def profiled(input_len: int, output_len: int) -> float:
    """h of appendix B.2: Llama-2-7b on an A10G, as the artifact has it; Tables 3 and 4."""
    p, q = input_len, output_len
    return 0.21001891 * p + 0.10075395 * q + 0.0039868 * p * q + 0.00324733 * q * q + 1.14601454


def served(rows: Iterable[Row]) -> list[Row]:
    """The rows that were not rejected: the artifact reads no others."""
    return [row for row in rows if not row.aborted]


def clients(rows: Iterable[Row]) -> list[ClientId]:
    """Clients of the rows, in order of name."""
    return sorted({row.client for row in rows})


def service(
    rows: Iterable[Row], begin_s: float, end_s: float, h: Worth = linear
) -> dict[ClientId, float]:
    """Service of each client in [begin, end]."""
    rows = list(rows)
    total = dict.fromkeys(clients(rows), 0.0)
    for row in rows:
        total[row.client] += h(row.input_len, row.output_len) * _share(row, begin_s, end_s)
    return total


def _share(row: Row, begin_s: float, end_s: float) -> float:
    """Share of a request's service in [begin, end]; 0 or 1 if it has a single token."""
    lasts = row.finish_s - row.first_token_s
    if lasts <= 0:
        return float(begin_s <= row.first_token_s < end_s)
    overlap = min(row.finish_s, end_s) - max(row.first_token_s, begin_s)
    return max(0.0, overlap) / lasts


def demand(rows: Iterable[Row], begin_s: float, end_s: float) -> dict[ClientId, float]:
    """Linear service that each client requested by arrivals in [begin, end)."""
    rows = list(rows)
    total = dict.fromkeys(clients(rows), 0.0)
    for row in rows:
        if begin_s <= row.arrival_s < end_s:
            total[row.client] += linear(row.input_len, row.output_len)
    return total


def difference(rows: Sequence[Row], begin_s: float, h: Worth = linear) -> float:
    """d(x): what clients lack to the best served, at most what they lack to (or exceed) their demand."""
    s = service(rows, begin_s, begin_s + WINDOW_S, h)
    r = demand(rows, begin_s, begin_s + WINDOW_S)
    most = max(s.values(), default=0.0)
    return sum(min(most - s[client], abs(r[client] - s[client])) for client in s) / WINDOW_S


class VtcTable(NamedTuple):
    """A line of the paper's Tables 2-6: tokens/s, their variance, and throughput in tokens/s."""

    max_diff: float
    avg_diff: float
    diff_var: float
    throughput: float


def table(rows: Iterable[Row], *, duration_s: float = 600.0, h: Worth = linear) -> VtcTable:
    """Max Diff, Avg Diff, Diff Var and throughput of a run; zero without a served request."""
    kept = served(rows)
    ticks = [k * (duration_s - EDGE_S) / TICKS for k in range(1, TICKS)]
    d = [difference(kept, x, h) for x in ticks]
    return VtcTable(max(d), fmean(d), pvariance(d), throughput(kept))


def throughput(rows: Iterable[Row]) -> float:
    """(input + output) of the served a second, from 0 to the last finish, unweighted."""
    kept = served(rows)
    makespan_s = max((row.finish_s for row in kept), default=0.0)
    tokens = sum(row.input_len + row.output_len for row in kept)
    return tokens / makespan_s if makespan_s else 0.0


def accumulated_difference(rows: Iterable[Row], t_s: float, h: Worth = linear) -> float:
    """max_i W_i(0, t) - min_i W_i(0, t): Figures 3a, 7b and 8b, in tokens."""
    w = service(served(rows), 0.0, t_s, h).values()
    return max(w, default=0.0) - min(w, default=0.0)


def service_rates(rows: Iterable[Row], t_s: float, h: Worth = linear) -> dict[ClientId, float]:
    """Tokens/s in the window around `t_s`, divided by its full length at the edges, too."""
    around = service(served(rows), t_s - WINDOW_S / 2, t_s + WINDOW_S / 2, h)
    return {client: amount / WINDOW_S for client, amount in around.items()}


def request_rates(rows: Iterable[Row], t_s: float) -> dict[ClientId, float]:
    """Tokens/s asked for in the window around `t_s`."""
    around = demand(served(rows), t_s - WINDOW_S / 2, t_s + WINDOW_S / 2)
    return {client: amount / WINDOW_S for client, amount in around.items()}


def response_times(rows: Iterable[Row], t_s: float) -> dict[ClientId, float | None]:
    """Mean first-token latency of the requests whose first token lies in the window around `t_s`.

    None where there is none: a gap in the figure stays a gap.
    """
    kept = served(rows)
    latencies: dict[ClientId, list[float]] = {client: [] for client in clients(kept)}
    for row in kept:
        if -WINDOW_S / 2 <= row.first_token_s - t_s < WINDOW_S / 2:
            latencies[row.client].append(row.first_token_s - row.arrival_s)
    return {client: fmean(of) if of else None for client, of in latencies.items()}


def figure_ticks(rows: Iterable[Row], pieces: int = 30) -> list[float]:
    """Times of the points in the paper's figures: T/30 * i (T/20 in Figure 4), T the last arrival."""
    last_s = max((row.arrival_s for row in rows), default=0.0)
    return [last_s / pieces * i for i in range(pieces)]

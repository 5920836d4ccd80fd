"""What the VTC paper's studies share: its engines, its schedulers, its panels.

Workloads are those of `fairhit trace generate`, so clients count from c0: the paper's Client 1.
"""

from collections.abc import Mapping
from typing import Any

from fairhit.core.costs import PROFILED
from fairhit_lab.metrics.vtc_table import VtcTable
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of, three_digits
from fairhit_lab.studies.shared.study import Case, Generated, Imported
from fairhit_lab.studies.vtc_artifact.case import AsMeasured, AsPrinted, Replayed
from fairhit_lab.studies.vtc_artifact.engine import ON_A10G

PAPER = "VTC (arXiv:2401.00588v2)"
# Theorem 4.4 there: 2 max(w_p L_input, w_q M) = 2 max(at most 512, 2 * 10,000).
BOUND = 40_000
REAL = Imported(format="vtc", files=("vtc_arena_trace/requests.csv.gz",))
# By requests sent: the 13th and 14th of the real trace's 27 clients, the 26th and the 27th.
MIDDLING, HEAVIEST = ("c16", "c11"), ("c10", "c2")
SHOWN = (*MIDDLING, *HEAVIEST)
THIRD = "c0"  # the 25th: 199 requests, as many at any time

# The schedulers by the names in the figures, and what the artifact calls their measured runs.
SCHEDULERS: Mapping[str, Mapping[str, Any]] = {
    **{
        name: {"scheduler": name}
        for name in ("fcfs", "lcf", "vtc", "vtc-predict", "vtc-oracle", "vtc-noisy")
    },
    **{f"rpm-{n}": {"scheduler": "rpm", "rpm_limit": n} for n in (5, 15, 20, 30)},
}
RUNS = {
    "fcfs": "FCFS",
    "lcf": "LCF",
    "vtc": "VTC",
    "vtc-oracle": "VTC_oracle",
    "vtc-noisy": "VTC_pred50",
    "rpm-5": "RPM5",
    "rpm-20": "RPM20",
}
SIMULATED, MEASURED, PRINTED = "simulated", "measured", "printed"

CHOICES = (
    "The engine is the paper's artifact (host artifact): Llama-2-7b on an A10G of 2024, 10,000 tokens of"
    " KV, no prefix cache, its callers' offsets included. Seeds draw the arrivals where the workload"
    " has any to draw; those above 0 also let each pass take up to 5 % more or less, as neither the"
    " engine nor the real trace has randomness of its own. 'measured' are the authors' own runs, from"
    " the rows that their artifact ships; they have no seeds. Clients count from c0, the paper's Client 1."
)


def simulated(
    name: str,
    source: Generated | Imported,
    *,
    labels: Mapping[str, Label] | None = None,
    settings: Mapping[str, Any] | None = None,
    worth: str = "linear",
    pieces: int = 30,
    shown: tuple[str, ...] | None = None,
) -> Replayed:
    """A scheduler on the paper's A10G. Where requests have the profiled worth it charges by it, too."""
    costs = {"cost": PROFILED} if worth == "profiled" and name.startswith("vtc") else {}
    return Replayed(
        labels={"scheduler": name, **(labels or {}), "origin": SIMULATED},
        source=source,
        settings={**ON_A10G, **SCHEDULERS[name], **costs, **(settings or {})},
        worth=worth,
        pieces=pieces,
        shown=shown,
    )


def measured(
    name: str,
    workload: str,
    *,
    run: str = "",
    labels: Mapping[str, Label] | None = None,
    worth: str = "linear",
    pieces: int = 30,
    shown: tuple[str, ...] | None = None,
) -> AsMeasured:
    """The authors' run of it; `run` where it has a name of its own."""
    return AsMeasured(
        labels={"scheduler": name, **(labels or {}), "origin": MEASURED},
        run=f"{workload}/{run or RUNS[name]}",
        worth=worth,
        pieces=pieces,
        shown=shown,
    )


def both(source: Generated | Imported, rows: str = "", *names: str, pieces: int = 30) -> list[Case]:
    """These schedulers (FCFS and VTC) simulated, and the authors' runs of them where `rows` names those."""
    names = names or ("fcfs", "vtc")
    runs = names if rows else ()
    return [
        *(simulated(name, source, pieces=pieces) for name in names),
        *(measured(name, rows, pieces=pieces) for name in runs),
    ]


def printed(lines: Mapping[str, VtcTable]) -> list[AsPrinted]:
    """A table of the paper."""
    return [
        AsPrinted(labels={"scheduler": name, "origin": PRINTED}, table=line)
        for name, line in lines.items()
    ]


# A curve's name on the axis, with its unit.
LABELS = {
    "service_rate": "received service, tokens/s",
    "request_rate": "requested service, tokens/s",
    "total_request_rate": "requested by all, tokens/s",
    "response_time": "response time, s",
    "difference": "difference of service, tokens",
}


def curve(
    title: str, y: str, hue: str = "client", *, origin: str = SIMULATED, **where: Label
) -> Panel:
    """One of LABELS over time, as the paper draws it."""
    return Panel(
        title=title,
        form="lines",
        of="series",
        x="time_s",
        y=y,
        hue=hue,
        where={"origin": origin, **where},
        x_label="time, s",
        y_label=LABELS[y],
    )


def rates_and_responses(scheduler: str = "vtc") -> list[Panel]:
    """The two panels of most figures."""
    return [
        curve(
            f"(a) Received service rate ({scheduler.upper()})", "service_rate", scheduler=scheduler
        ),
        curve(f"(b) Response time ({scheduler.upper()})", "response_time", scheduler=scheduler),
    ]


def ours(results: Results, metric: str, scheduler: str, **labels: Label) -> Interval:
    """A simulated scheduler's, over the seeds."""
    return results.interval(metric, scheduler=scheduler, origin=SIMULATED, **labels)


def theirs(results: Results, metric: str, scheduler: str, unit: str = "", **labels: Label) -> str:
    """What the authors' own rows give, as a text to stand beside what they print."""
    found = results.values(metric, scheduler=scheduler, origin=MEASURED, **labels)
    return (
        f"{three_digits(next(iter(found.values())))}{unit} in its rows"
        if found
        else "no rows shipped"
    )


def under(results: Results, metric: str, unit: str, *schedulers: str, **labels: Label) -> str:
    """One number under several simulated schedulers, for a reason: "3 s under vtc, 64 s under fcfs"."""
    return ", ".join(
        f"{ours(results, metric, name, **labels)}{unit} under {name}" for name in schedulers
    )


def told(
    results: Results, scheduler: str, names: Mapping[str, str], unit: str, **labels: Label
) -> str:
    """Several numbers of one simulated scheduler, for a reason: "client 1 190, client 2 380 tokens/s"."""
    return (
        ", ".join(
            f"{name} {ours(results, metric, scheduler, **labels)}" for metric, name in names.items()
        )
        + unit
    )


def quotient(results: Results, over: str, under: str, scheduler: str, **labels: Label) -> Interval:
    """Two numbers of one simulated run, the first by the second, seed by seed."""
    place = {"scheduler": scheduler, "origin": SIMULATED, **labels}
    tops, bottoms = results.values(over, **place), results.values(under, **place)
    return interval_of(tops[seed] / bottoms[seed] for seed in tops if bottoms.get(seed))

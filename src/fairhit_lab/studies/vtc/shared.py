"""The VTC paper's engines, schedulers and panels, and the numbers that its claims compare.

Workloads are those of `fairhit trace generate`, so clients count from c0: the paper's Client 1.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from fairhit.core.costs import PROFILED
from fairhit_lab.metrics.vtc_table import VtcTable
from fairhit_lab.studies.shared.claims import Claim, Rule, could_show, each_judged, words
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of, three_digits
from fairhit_lab.studies.shared.study import Case, Generated, Imported, Measure, Study
from fairhit_lab.studies.vtc_artifact.case import AsMeasured, AsPrinted, Replayed
from fairhit_lab.studies.vtc_artifact.measures import TABLE, asked_per_s, lasts_s, most_asked
from fairhit_lab.studies.vtc_artifact.replay import ON_A10G
from fairhit_lab.traces.trace import TraceRow

PAPER = "VTC (arXiv:2401.00588v2)"
# Theorem 4.4 there: 2 max(w_p L_input, w_q M) = 2 max(at most 512, 2 * 10,000).
BOUND = 40_000
REAL = Imported(format="vtc", files=("vtc_arena_trace/requests.csv.gz",))
# Clients by requests sent: the 13th and 14th of the real trace's 27 clients, the 26th and the 27th.
MIDDLING, HEAVIEST = ("c16", "c11"), ("c10", "c2")
SHOWN = (*MIDDLING, *HEAVIEST)
THIRD = "c0"  # the 25th: 199 requests, as many at any time

# The schedulers by the names in the figures, and what the artifact calls their measured runs.
SCHEDULERS: Mapping[str, Mapping[str, Any]] = {
    **{
        name: {"scheduler": name}
        for name in ("fcfs", "lcf", "vtc", "vtc-predict", "vtc-oracle", "vtc-noisy")
    },
    **{f"rpm-{n}": {"scheduler": "rpm", "rpm_limit": n} for n in (5, 15, 20, 30, 45, 60, 120)},
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
    " What the runs can show: workloads, rates and durations are the artifact's; runs go on until all is"
    " served, so that no response is cut and none takes longer than the run; a difference of service may grow"
    " to all that one client asks for, and throughput to all that is asked for. These are the limits stated."
)
# What the runs could have shown: lengths of responses, differences and throughputs at most.
LIMITS: Mapping[str, Measure] = {
    "lasts_s": lasts_s,
    "most_asked": most_asked,
    "asked_per_s": asked_per_s,
}


def figure(
    source: str,
    title: str,
    *,
    shows: str,
    takes: str,
    cases: Callable[[bool], Sequence[Case]],
    panels: Sequence[Panel],
    claims: Sequence[Claim],
    measures: Mapping[str, Measure] | None = None,
    choices: str = "",
) -> Study:
    """A figure of the paper; `measures` and `choices` are added to those of all its figures."""
    return Study(
        title=title,
        source=f"{PAPER}, {source}",
        shows=shows,
        takes=takes,
        cases=cases,
        measures={**TABLE, **LIMITS, **(measures or {})},
        panels=panels,
        judge=each_judged(claims),
        choices=f"{CHOICES} {choices}".strip(),
    )


# ---- cases


@dataclass(frozen=True, kw_only=True, slots=True)
class LateStart(Generated):
    """A generated workload before an engine that serves nothing at first: requests wait until then.

    In the authors' run of 600 s under VTC the first token comes after 3.4 s and the next after 5.5 s, where
    their run of 360 s takes 1.2 s. Then requests of both clients are admitted together, end together, and the
    next are of both again; without it each batch is of one client, in turns.
    """

    begin_s: float = 6.0

    def rows(self, seed: int, data: Path | None) -> Iterator[TraceRow]:
        """The requests, none before the engine begins to serve."""
        begin_us = round(self.begin_s * 1e6)
        for row in Generated.rows(self, seed, data):
            yield replace(row, arrival_us=max(row.arrival_us, begin_us))


LATE = "vtc (late start)"
LATE_START = f"the engine begins to serve after {LateStart(workload='').begin_s:g} s"


def late(workload: str, seconds: int, *, shown: tuple[str, ...] | None = None) -> Replayed:
    """VTC before an engine that begins late."""
    source = LateStart(workload=workload, settings={"duration": seconds})
    return simulated("vtc", source, labels={"scheduler": LATE}, shown=shown)


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
    """A scheduler on the paper's A10G; with the profiled cost, VTC charges by that cost as well."""
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
    """The authors' run of a workload under a scheduler; `run` where it has a name of its own."""
    return AsMeasured(
        labels={"scheduler": name, **(labels or {}), "origin": MEASURED},
        run=f"{workload}/{run or RUNS[name]}",
        worth=worth,
        pieces=pieces,
        shown=shown,
    )


def printed(lines: Mapping[str, VtcTable]) -> list[AsPrinted]:
    """The lines of a table of the paper."""
    return [
        AsPrinted(labels={"scheduler": name, "origin": PRINTED}, table=line)
        for name, line in lines.items()
    ]


def lasting(workload: str, full_s: int, quick_s: int, quick: bool, **settings: Any) -> Generated:
    """A generated workload whose requests arrive for so many seconds."""
    duration_s = quick_s if quick else full_s
    return Generated(workload=workload, settings={"duration": duration_s, **settings})


def under_each(
    workload: str,
    *,
    lasts: tuple[int, int] | None = None,
    rows: str = "",
    schedulers: Sequence[str] = ("fcfs", "vtc"),
    pieces: int = 30,
) -> Callable[[bool], Sequence[Case]]:
    """A workload under each scheduler, simulated, and as the authors measured it where `rows` names that.

    `lasts`: the seconds of arrivals, of a full and of a quick run; None: the workload's own.
    """

    def cases(quick: bool) -> Sequence[Case]:
        source = lasting(workload, *lasts, quick) if lasts else Generated(workload=workload)
        return [
            *(simulated(name, source, pieces=pieces) for name in schedulers),
            *(measured(name, rows, pieces=pieces) for name in schedulers if rows),
        ]

    return cases


# ---- panels

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
    """A panel of LABELS over time, as the paper draws it."""
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


RATES_AND_RESPONSES = (
    curve("(a) Received service rate (VTC)", "service_rate", scheduler="vtc"),
    curve("(b) Response time (VTC)", "response_time", scheduler="vtc"),
)


# ---- numbers of claims, read when a claim is judged

Number = Callable[[Results], Interval]
Text = Callable[[Results], str]


def ours(metric: str, scheduler: str, **labels: Label) -> Number:
    """A simulated scheduler's number, over the seeds."""
    return lambda results: results.interval(metric, scheduler=scheduler, origin=SIMULATED, **labels)


def ratio(metric: str, over: str, under: str, **labels: Label) -> Number:
    """The ratio of two simulated schedulers' metric, seed by seed."""
    place = {"origin": SIMULATED, **labels}
    return lambda results: results.ratio(
        metric, {"scheduler": over, **place}, {"scheduler": under, **place}
    )


def quotient(over: str, under: str, scheduler: str, **labels: Label) -> Number:
    """The ratio of two metrics of one simulated run, seed by seed."""
    place = {"scheduler": scheduler, "origin": SIMULATED, **labels}

    def number(results: Results) -> Interval:
        tops, bottoms = results.values(over, **place), results.values(under, **place)
        return interval_of(tops[seed] / bottoms[seed] for seed in tops if bottoms.get(seed))

    return number


# What a claim's number could have been.
Limit = Callable[[Results], Rule | None]
# A ratio of the service of two clients has no end: one of them may get nothing.
ANY = could_show(0, inf)


def up_to_most(most: str, scheduler: str, **labels: Label) -> Limit:
    """The limits of a number of one run: from none to another of LIMITS."""

    def limit(results: Results) -> Rule | None:
        found = ours(most, scheduler, **labels)(results)
        return could_show(0, found.high) if found.seeds else None

    return limit


def ratio_up_to(
    most: str,
    over: str,
    metric: str,
    under: str,
    *,
    of: Mapping[str, Label] | None = None,
    under_of: Mapping[str, Label] | None = None,
) -> Limit:
    """The limits of a ratio to a metric of the run `under`: from none to one of LIMITS of the run `over`.

    `of` are further labels of both runs; `under_of` those of the second where they differ.
    """

    def limit(results: Results) -> Rule | None:
        top = ours(most, over, **(of or {}))(results)
        base = ours(metric, under, **(under_of or of or {}))(results)
        if not top.seeds or not base.seeds or base.low <= 0:
            return None
        return could_show(0, top.high / base.low)

    return limit


def theirs(metric: str, scheduler: str, unit: str = "", /, **labels: Label) -> Text:
    """Format the number in the authors' own rows, to be shown beside what they print."""

    def text(results: Results) -> str:
        found = results.values(metric, scheduler=scheduler, origin=MEASURED, **labels)
        if not found:
            return "no rows shipped"
        return f"{three_digits(next(iter(found.values())))}{unit} in its rows"

    return text


def under(metric: str, unit: str, *schedulers: str) -> Text:
    """A metric under several simulated schedulers: "3 s under vtc, 64 s under fcfs"."""
    return lambda results: ", ".join(
        f"{ours(metric, name)(results)}{unit} under {name}" for name in schedulers
    )


def several(scheduler: str, names: Mapping[str, str], unit: str, **labels: Label) -> Text:
    """Several numbers of one simulated scheduler: "client 1 190, client 2 380 tokens/s"."""
    return lambda results: (
        ", ".join(
            f"{name} {ours(metric, scheduler, **labels)(results)}" for metric, name in names.items()
        )
        + unit
    )


def grown(scheduler: str, **labels: Label) -> Text:
    """The difference of service in the middle and at the end of a run."""
    half, last = (ours(f"{at}_difference", scheduler, **labels) for at in ("half", "last"))
    return words("it is ", half, " at half-time, ", last, " at the end")

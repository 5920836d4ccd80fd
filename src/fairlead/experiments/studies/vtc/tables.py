"""The form of the VTC paper's Tables 2 to 6: a line a scheduler, printed, simulated and as measured."""

from collections.abc import Callable, Mapping, Sequence

from fairlead.experiments.artifact.case import Replayed
from fairlead.experiments.artifact.measures import TABLE
from fairlead.experiments.studies.vtc.shared import (
    CHOICES,
    MEASURED,
    PAPER,
    PRINTED,
    SIMULATED,
    measured,
    ours,
    printed,
    simulated,
)
from fairlead.experiments.study.panel import Panel
from fairlead.experiments.study.results import Interval, Results, three_digits
from fairlead.experiments.study.study import Case, Generated, Imported, Study, Verdict
from fairlead.metrics.vtc_table import WINDOW_S, Table

# How near a median comes to what is printed, to count as that: the differences are made of rates
# over 19 windows and move by so much when passes jitter by 5 % (docs/reference/step-time.md).
NEAR = {"max_diff": 0.15, "avg_diff": 0.10, "tokens_per_s": 0.02}
NAMES = {"max_diff": "Max Diff", "avg_diff": "Avg Diff", "tokens_per_s": "tokens/s"}
PRINTED_AS = {"max_diff": "max_diff", "avg_diff": "avg_diff", "tokens_per_s": "throughput"}
# What is known of lines that differ.
TURNS = (
    "batches of one client and of the others take turns, and for how long decides: the authors' two"
    " runs of two clients, of 360 s and of 600 s, give an Avg Diff of 104 and of 17"
)
FEW = "this is a request or two a minute: it hangs on the predictor's draws and on single passes"
# Two printed Avg Diffs that are nearer than this are in no order.
APART = 0.05


def table_study(
    title: str,
    source: str,
    lines: Mapping[str, Table],
    *,
    workload: Generated | Imported,
    rows: str,
    with_rows: Sequence[str],
    shows: str,
    takes: str,
    worth: str = "linear",
    request: float = 0.0,
    notes: Mapping[str, str] | None = None,
    others: Sequence[Replayed] = (),
) -> Study:
    """A table of the paper. `rows`: the authors' runs of `with_rows`.

    `request`: what one request is worth, if all are alike: differences are made of whole ones.
    `notes`: by scheduler, what is known of why its line may differ. `others`: cases of the full run
    that explain it, each with a scheduler called "vtc (how)".
    """

    def cases(quick: bool) -> Sequence[Case]:
        return [
            *printed(lines),
            *(simulated(name, workload, worth=worth, shown=()) for name in lines),
            *(measured(name, rows, worth=worth, shown=()) for name in with_rows),
            *(() if quick else others),
        ]

    return Study(
        title=title,
        source=f"{PAPER}, {source}",
        shows=shows,
        takes=takes,
        cases=cases,
        measures=TABLE,
        panels=_panels(measured_too=bool(with_rows)),
        judge=_judge(lines, request / WINDOW_S, notes or {}),
        choices=CHOICES,
    )


def _panels(*, measured_too: bool) -> list[Panel]:
    bars = [
        Panel(
            title=title,
            form="bars",
            x="scheduler",
            y=metric,
            hue="origin",
            x_label="scheduler",
            y_label=f"{title}, tokens/s",
        )
        for metric, title in (("max_diff", "Max Diff"), ("avg_diff", "Avg Diff"))
    ]
    tables = [
        Panel(
            title=title,
            form="table",
            hue="scheduler",
            where={"origin": origin},
            columns=list(TABLE),
        )
        for origin, title in (
            (PRINTED, "As printed"),
            (SIMULATED, "Simulated"),
            (MEASURED, "From the rows that the authors measured"),
        )
    ]
    return [*bars, *(tables if measured_too else tables[:2])]


def _judge(
    lines: Mapping[str, Table], grain: float, notes: Mapping[str, str]
) -> Callable[[Results], Sequence[Verdict]]:
    def judge(results: Results) -> Sequence[Verdict]:
        names = [
            name for name in lines if results.values("avg_diff", scheduler=name, origin=SIMULATED)
        ]
        return [
            *(_line(results, name, lines[name], grain, notes.get(name, "")) for name in names),
            _order(results, {name: lines[name] for name in names}),
        ]

    return judge


def _line(results: Results, name: str, line: Table, grain: float, note: str) -> Verdict:
    """One scheduler: each number is near the printed one, or the seeds lie around that."""
    shares = ", ".join(f"{share:.0%}" for share in NEAR.values())
    found = {metric: ours(results, metric, name) for metric in NEAR}
    off = []
    for metric, each in found.items():
        theirs = getattr(line, PRINTED_AS[metric])
        if not _near(each, theirs, max(NEAR[metric] * theirs, grain)):
            off.append(f"{NAMES[metric]} by {100 * (each.median / theirs - 1):+.0f} %")
    why = "; ".join([f"off: {', '.join(off)}", *filter(None, [note]), *_instead(results, name)])
    paper = ", ".join(
        f"{NAMES[metric]} {three_digits(getattr(line, PRINTED_AS[metric]))}" for metric in NEAR
    )
    return Verdict(
        claim=f"{name}: Max Diff, Avg Diff and throughput are as printed (within {shares}"
        f"{f' or one request, {grain:.1f}' if grain else ''}; or among the seeds')",
        paper=paper,
        ours=", ".join(f"{NAMES[metric]} {each}" for metric, each in found.items()),
        holds="does not hold" if off else "holds",
        why=why if off else "",
    )


def _instead(results: Results, name: str) -> list[str]:
    """What the other cases of a scheduler come to."""
    others = [
        str(each) for each in results.labels("scheduler") if str(each).startswith(f"{name} (")
    ]
    return [
        f"{other}: {', '.join(f'{NAMES[metric]} {ours(results, metric, other)}' for metric in NEAR)}"
        for other in others
    ]


def _near(found: Interval, printed_value: float, off: float) -> bool:
    if found.low <= printed_value <= found.high:
        return True
    return abs(found.median - printed_value) <= off


def _order(results: Results, lines: Mapping[str, Table]) -> Verdict:
    """Whom Avg Diff calls fairer than whom, where the printed ones are not all but equal."""
    found = {name: ours(results, "avg_diff", name) for name in lines}
    pairs = [
        (fair, unfair)
        for fair in lines
        for unfair in lines
        if lines[fair].avg_diff * (1 + APART) < lines[unfair].avg_diff
    ]
    unclear = [pair for pair in pairs if found[pair[0]].high >= found[pair[1]].low]
    # One seed cannot tell that it is the other way round.
    wrong = [
        (fair, unfair)
        for fair, unfair in unclear
        if found[fair].low > found[unfair].high and found[fair].seeds > 1
    ]
    named = "; ".join(f"{fair} and {unfair}" for fair, unfair in wrong or unclear)
    reason = (
        "the other way round" if wrong else "the pairs are left out that seeds do not tell apart"
    )
    return Verdict(
        claim=f"Avg Diff tells who is fairer than whom ({len(pairs)} pairs of schedulers)",
        paper=" < ".join(sorted(lines, key=lambda name: lines[name].avg_diff)),
        ours=" < ".join(sorted(found, key=lambda name: found[name].median)),
        holds="does not hold" if wrong else "holds only if" if unclear else "holds",
        why=f"{reason}: {named}" if unclear else "",
    )

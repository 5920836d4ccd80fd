"""The form of the VTC paper's Tables 2 to 6: a line a scheduler, printed, simulated and as measured."""

from collections.abc import Callable, Mapping, Sequence

from fairhit_lab.metrics.vtc_table import WINDOW_S, VtcTable
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Results, three_digits
from fairhit_lab.studies.shared.study import Case, Generated, Imported, Study, Verdict
from fairhit_lab.studies.vtc.shared import (
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
from fairhit_lab.studies.vtc_artifact.measures import TABLE

# How near a median comes to what is printed, to count as that: the differences are made of rates
# over 19 windows and move by so much when passes jitter by 5 % (docs/reference/step-time.md). A
# variance, which is a square, moves by twice the share that differences do.
NEAR = {"max_diff": 0.15, "avg_diff": 0.10, "diff_var": 0.30, "tokens_per_s": 0.02}
NAMES = {
    "max_diff": "Max Diff",
    "avg_diff": "Avg Diff",
    "diff_var": "Diff Var",
    "tokens_per_s": "tokens/s",
}
PRINTED_AS = {
    "max_diff": "max_diff",
    "avg_diff": "avg_diff",
    "diff_var": "diff_var",
    "tokens_per_s": "throughput",
}
# Two printed Avg Diffs that are nearer than this are in no order.
APART = 0.05


def table_study(
    title: str,
    source: str,
    lines: Mapping[str, VtcTable],
    *,
    workload: Generated | Imported,
    rows: str,
    with_rows: Sequence[str],
    shows: str,
    takes: str,
    worth: str = "linear",
    request: float = 0.0,
    others: Sequence[Case] = (),
) -> Study:
    """A table of the paper. `rows`: the authors' runs of `with_rows`.

    `request`: what one request is worth, if all are alike: differences are made of whole ones.
    `others`: runs of a line's scheduler under other settings, simulated or measured, each with a
    scheduler called "vtc (how)"; where the line is not as printed they are told beside it.
    """

    def cases(_: bool) -> Sequence[Case]:
        return [
            *printed(lines),
            *(simulated(name, workload, worth=worth, shown=()) for name in lines),
            *(measured(name, rows, worth=worth, shown=()) for name in with_rows),
            *others,
        ]

    return Study(
        title=title,
        source=f"{PAPER}, {source}",
        shows=shows,
        takes=takes,
        cases=cases,
        measures=TABLE,
        panels=_panels(measured_too=bool(with_rows)),
        judge=_judge(lines, request / WINDOW_S),
        choices=CHOICES,
    )


def _panels(*, measured_too: bool) -> list[Panel]:
    bars = [
        Panel(
            title=NAMES[metric],
            form="bars",
            x="scheduler",
            y=metric,
            hue="origin",
            y_label=f"{NAMES[metric]}, {unit}",
        )
        for metric, unit in (
            ("max_diff", "tokens/s"),
            ("avg_diff", "tokens/s"),
            ("diff_var", "(tokens/s)²"),
        )
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


def _judge(lines: Mapping[str, VtcTable], grain: float) -> Callable[[Results], Sequence[Verdict]]:
    def judge(results: Results) -> Sequence[Verdict]:
        names = [
            name for name in lines if results.values("avg_diff", scheduler=name, origin=SIMULATED)
        ]
        return [
            *(_line(results, name, lines[name], grain) for name in names),
            _order(results, {name: lines[name] for name in names}),
        ]

    return judge


def _line(results: Results, name: str, line: VtcTable, grain: float) -> Verdict:
    """One scheduler: each number is near the printed one, or the seeds lie around that."""
    shares = ", ".join(f"{share:.0%}" for share in NEAR.values())
    *first, last = NAMES.values()
    found = _numbers(results, name, SIMULATED)
    off = _off(found, line, grain)
    others = _others(results, name)
    fits = [
        other
        for (other, origin), each in others.items()
        if origin == SIMULATED and not _off(each, line, grain)
    ]
    why = [f"off: {'; '.join(off)}"] + [
        f"{other}, {origin}: {_told(each)}" for (other, origin), each in others.items()
    ]
    if fits:
        why = [" or ".join(fits), "not as stated", *why]
    return Verdict(
        claim=f"{name}: {', '.join(first)} and {last} are as printed (within {shares}"
        f"{f' or one request, {grain:.1f}' if grain else ''}; or among the seeds')",
        paper=", ".join(
            f"{NAMES[metric]} {three_digits(_printed(line, metric))}" for metric in NEAR
        ),
        ours=_told(found),
        holds="holds" if not off else "holds only if" if fits else "does not hold",
        why="; ".join(why) if off else "",
    )


def _numbers(results: Results, name: str, origin: str) -> dict[str, Interval]:
    return {metric: results.interval(metric, scheduler=name, origin=origin) for metric in NEAR}


def _told(found: Mapping[str, Interval]) -> str:
    return ", ".join(f"{NAMES[metric]} {each}" for metric, each in found.items())


def _printed(line: VtcTable, metric: str) -> float:
    value: float = getattr(line, PRINTED_AS[metric])
    return value


def _others(results: Results, name: str) -> dict[tuple[str, str], dict[str, Interval]]:
    """What a scheduler's runs under other settings come to, by their name and origin."""
    names = [str(each) for each in results.labels("scheduler") if str(each).startswith(f"{name} (")]
    return {
        (other, origin): _numbers(results, other, origin)
        for other in names
        for origin in (SIMULATED, MEASURED)
        if results.values("avg_diff", scheduler=other, origin=origin)
    }


def _off(found: Mapping[str, Interval], line: VtcTable, grain: float) -> list[str]:
    """The numbers that are not as printed, and by how much; `grain` is one request's, in tokens/s."""
    texts = []
    for metric, each in found.items():
        theirs = _printed(line, metric)
        whole = grain**2 if metric == "diff_var" else grain
        if each.low <= theirs <= each.high:
            continue
        if abs(each.median - theirs) <= max(NEAR[metric] * theirs, whole):
            continue
        text = f"{NAMES[metric]} by {_change(each.median, theirs)}"
        if each.seeds > 1:
            text += f" ({_change(each.low, theirs)} to {_change(each.high, theirs)} by seed)"
        if grain and metric in {"max_diff", "avg_diff"}:
            text += f", {abs(each.median - theirs) / grain:.1f} requests a minute"
        texts.append(text)
    return texts


def _change(value: float, theirs: float) -> str:
    return (
        f"{value / theirs:,.0f}x" if value > 10 * theirs else f"{100 * (value / theirs - 1):+.0f} %"
    )


def _order(results: Results, lines: Mapping[str, VtcTable]) -> Verdict:
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

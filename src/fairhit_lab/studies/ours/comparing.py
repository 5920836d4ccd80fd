"""Goals, ratios over workloads and their verdicts: what the studies over many workloads share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Literal

from fairhit_lab.studies.ours.contention import gap_over_bound, heavy_p99_s, light_p99_s, worst_gap
from fairhit_lab.studies.shared.claims import ANY, Rule, could_show, limited
from fairhit_lab.studies.shared.dominance import Goal, Labels, better, worse
from fairhit_lab.studies.shared.limits import ratio_limits
from fairhit_lab.studies.shared.measures import in_summary
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of
from fairhit_lab.studies.shared.study import Holds, Verdict

BEYOND = "beyond the papers"
GOALS = (
    Goal(metric="throughput"),
    Goal(metric="jain_system"),
    Goal(metric="light_p99_s", more=False, noise=0.1),
)
MEASURES = {
    **in_summary("throughput", "hit_rate", "jain_system", "jain_client"),
    "light_p99_s": light_p99_s,
    "heavy_p99_s": heavy_p99_s,
    "gap": worst_gap,
    "gap_over_bound": gap_over_bound,
}


def only(results: Results, **labels: Label) -> Results:
    """The rows with these labels."""
    rows = [row for row in results.rows if all(row[name] == of for name, of in labels.items())]
    return replace(results, rows=rows)


def ran_all(results: Results, loads: Sequence[str]) -> bool:
    """True if each of the workloads was run: a quick run answers no claim about all of them."""
    return set(loads) <= set(results.labels("workload"))


def so_many(results: Results) -> str:
    """The number of workloads as text: 1 workload, 13 workloads."""
    count = len(results.labels("workload"))
    return f"{count} workload{'s' * (count != 1)}"


def seeds_of(results: Results) -> int:
    """The number of seeds that were run."""
    return len({row["seed"] for row in results.rows})


def ratios(results: Results, metric: str, over: Labels, under: Labels) -> dict[str, Interval]:
    """Ratios of two cases' metric by workload; without a value where either has none in any seed."""
    return {
        str(load): results.ratio(metric, {"workload": load, **over}, {"workload": load, **under})
        for load in results.labels("workload")
    }


def could_be(results: Results, metric: str, over: Labels, under: Labels) -> dict[str, Rule]:
    """The least and greatest ratio of two cases' metric that the runs could have shown, by workload."""
    found = {}
    for load, shown in ratios(results, metric, over, under).items():
        cases = ({"workload": load, **labels} for labels in (over, under))
        limits = ratio_limits(results, metric, *cases)
        if limits and shown.seeds:  # what a run showed, it could show
            limits = could_show(min(limits.low, shown.low), max(limits.high, shown.high))
        found[load] = limits or ANY
    return found


def in_words(found: Mapping[str, Interval], seeds: int) -> str:
    """A text with the median, the least and the greatest ratio with their workloads.

    Seeds without a value are named.
    """
    valued = {load: ratio for load, ratio in found.items() if ratio.seeds}
    if not valued:
        return "no value"
    gaps = lacking(found, seeds)
    after = f"; {gaps}" if gaps else ""
    if len(valued) == 1:
        return "".join(f"{ratio}x on {load}" for load, ratio in valued.items()) + after
    low = min(valued, key=lambda name: valued[name].median)
    high = max(valued, key=lambda name: valued[name].median)
    middle = interval_of(ratio.median for ratio in valued.values()).median
    return (
        f"{middle:.2f}x in the median; {valued[low].median:.2f}x on {low} "
        f"to {valued[high].median:.2f}x on {high}{after}"
    )


def lacking(found: Mapping[str, Interval], seeds: int) -> str:
    """A text for workloads without a value in some seeds: "values in 2 of 5 seeds on chat"; else empty."""
    return ", ".join(
        f"values in {of.seeds} of {seeds} seeds on {load}"
        for load, of in found.items()
        if of.seeds < seeds
    )


def kept_on(
    found: Mapping[str, Interval], rule: Callable[[float], bool]
) -> tuple[list[str], list[str], list[str]]:
    """The workloads on which the median keeps the rule, those on which not, those without a value."""
    good = [load for load, of in found.items() if of.seeds and rule(of.median)]
    none = [load for load, of in found.items() if not of.seeds]
    return good, [load for load in found if load not in good + none], none


def failed_on(how: str, bad: Sequence[str], none: Sequence[str]) -> str:
    """The reason of a verdict: "not on chat; no value on azure", where `how` is "not"."""
    parts = ((how, bad), ("no value", none))
    return "; ".join(f"{what} on {', '.join(loads)}" for what, loads in parts if loads)


def on_all(
    results: Results,
    metric: str,
    over: Labels,
    under: Labels,
    rule: Rule,
    *,
    claim: str,
    paper: str = BEYOND,
) -> Verdict:
    """The verdict on a ratio of two cases that must keep the rule on every workload.

    `claim` ends before "on all 13 workloads". A workload without a value makes the claim not
    comparable, unless another fails.
    """
    found = ratios(results, metric, over, under)
    good, bad, none = kept_on(found, rule)
    holds: Holds = "not comparable" if none else "holds"
    if bad:
        holds = "holds under conditions only" if good else "does not hold"
    verdict = Verdict(
        claim=f"{claim} on all {len(found)} workloads",
        paper=paper,
        ours=in_words(found, seeds_of(results)),
        holds=holds,
        why=failed_on("not", bad, none),
    )
    could = could_be(results, metric, over, under)
    return limited(verdict, {load: (reach, rule) for load, reach in could.items()})


def target(
    claim: str,
    found: Mapping[str, float],
    rules: Rule | Mapping[str, Rule],
    could: Mapping[str, Rule],
) -> Verdict:
    """The verdict on medians that must keep the rule, or their own one of `rules`, on every workload.

    `could`: by workload the least and greatest value that the runs could have shown; without, any.
    """
    if not found:
        return Verdict(
            claim=claim,
            paper=BEYOND,
            ours="no value",
            holds="not comparable",
            why="there is no such workload",
        )
    by_load = {load: rules if isinstance(rules, Rule) else rules[load] for load in found}
    bad = [load for load, value in found.items() if not by_load[load](value)]
    low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    verdict = Verdict(
        claim=claim,
        paper=BEYOND,
        ours=f"{median(found.values()):.2f} in the median; {found[low]:.2f} on {low} to "
        f"{found[high]:.2f} on {high}",
        holds="does not hold"
        if len(bad) == len(found)
        else "holds under conditions only"
        if bad
        else "holds",
        why=f"not on {', '.join(f'{load} ({found[load]:.2f})' for load in bad)}" if bad else "",
    )
    return limited(verdict, {load: (could.get(load, ANY), rule) for load, rule in by_load.items()})


def no_worse(goal: Goal) -> Rule:
    """The rule that a ratio is not beyond noise on the wrong side of 1."""
    return Rule(low=1 - goal.noise) if goal.more else Rule(high=1 + goal.noise)


def changes(
    results: Results, goals: Sequence[Goal], one: Labels, other: Labels
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The workloads on which one case is better than the other, and worse, by metric."""
    good: dict[str, list[str]] = {}
    bad: dict[str, list[str]] = {}
    for load in map(str, results.labels("workload")):
        for goal in goals:
            ours = results.values(goal.metric, workload=load, **one)
            theirs = results.values(goal.metric, workload=load, **other)
            if theirs.keys() - ours.keys() or worse(ours, theirs, goal):
                bad.setdefault(goal.metric, []).append(load)
            elif better(ours, theirs, goal):
                good.setdefault(goal.metric, []).append(load)
    return good, bad


def merged_path(title: str, y: str, y_label: str, **more: Any) -> Panel:
    """A panel of each policy's path between throughput and `y`, the workloads merged."""
    best: dict[str, Literal["most", "least"]] = {"throughput": "most", "jain_system": "most"}
    shown = {"best": best, "x_label": "throughput, share of the best value's", "zero": False}
    return Panel(
        title=title,
        form="path",
        x="throughput",
        y=y,
        hue="policy",
        over="workload",
        y_label=y_label,
        **{**shown, **more},
    )

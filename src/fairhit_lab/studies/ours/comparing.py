"""Goals, ratios, dominance and panels of the studies over many workloads."""

from collections.abc import Callable, Mapping, Sequence

from fairhit_lab.studies.ours.contention import gap_over_bound, heavy_p99_s, light_p99_s, worst_gap
from fairhit_lab.studies.shared.dominance import Goal, dominations
from fairhit_lab.studies.shared.measures import in_summary
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of
from fairhit_lab.studies.shared.study import Holds, Verdict

BEYOND = "beyond the papers"
X_LABEL = "throughput, share of the best policy's"
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
    return Results(
        [row for row in results.rows if all(row[name] == of for name, of in labels.items())]
    )


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


def ratios(
    results: Results, metric: str, over: Mapping[str, Label], under: Mapping[str, Label]
) -> dict[str, Interval]:
    """Ratios of two cases' metric by workload; without a value where either has none in any seed."""
    return {
        str(load): results.ratio(metric, {"workload": load, **over}, {"workload": load, **under})
        for load in results.labels("workload")
    }


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
    *, claim: str, paper: str, found: Mapping[str, Interval], goal: Goal, seeds: int
) -> Verdict:
    """The verdict on a ratio that must be at least 1 within noise (at most, where less is better) everywhere.

    `claim` ends before "on all 13 workloads". A workload without a value makes the claim not
    comparable, unless another fails.
    """
    good, bad, none = kept_on(found, lambda ratio: not is_worse(ratio, goal))
    holds: Holds = "holds"
    if bad:
        holds = "holds only if" if good else "does not hold"
    elif none:
        holds = "not comparable"
    return Verdict(
        claim=f"{claim} on all {len(found)} workloads",
        paper=paper,
        ours=in_words(found, seeds),
        holds=holds,
        why=failed_on("not", bad, none),
    )


def is_worse(ratio: float, goal: Goal) -> bool:
    """True if a ratio is beyond noise on the wrong side of 1."""
    return ratio < 1 - goal.noise if goal.more else ratio > 1 + goal.noise


def policies(results: Results) -> list[dict[str, Label]]:
    """The labels of each policy, in the order of the rows."""
    pairs = dict.fromkeys((row["policy"], row["quantum"]) for row in results.rows)
    return [
        {"policy": policy, "quantum": quantum}
        for policy, quantum in pairs
        if policy is not None and quantum is not None
    ]


def name_of(labels: Mapping[str, Label]) -> str:
    """The name of a policy with its quantum: dlpm 4096, vtc."""
    return " ".join(str(label) for label in labels.values() if label)


def undominated(results: Results, goals: Sequence[Goal]) -> list[Verdict]:
    """A verdict per policy, with the policies that dominate it and the number of workloads."""
    among = policies(results)
    found = dominations(results, goals, "workload", among)
    loads = [str(load) for load in results.labels("workload")]
    verdicts = []
    for place, one in enumerate(among):
        by = {other: on for (other, of), on in found.items() if of == place}
        most = sorted(by, key=lambda other: -len(by[other]))
        where = [load for load in loads if any(load in on for on in by.values())]
        shown = "; ".join(f"{name_of(among[other])} on {len(by[other])}" for other in most)
        verdicts.append(
            Verdict(
                claim=f"no other policy dominates {name_of(one)} on any of {so_many(results)}",
                paper=BEYOND,
                ours=f"by {shown}" if by else "by none",
                holds="does not hold" if by else "holds",
                why=f"dominated on {len(where)} of {len(loads)}: {', '.join(where)}" if by else "",
            )
        )
    return verdicts


def frontiers() -> list[Panel]:
    """Panels of throughput against fairness, against light clients' waits, and of dominance."""
    return [
        Panel(
            title="Fairness (medians over the workloads)",
            form="path",
            x="throughput",
            y="jain_system",
            hue="policy",
            over="workload",
            best={"throughput": "most", "jain_system": "most"},
            x_label=X_LABEL,
            y_label="Jain's index of service, share of the best",
            zero=False,
        ),
        Panel(
            title="Light clients' waits (medians over the workloads)",
            form="path",
            x="throughput",
            y="light_p99_s",
            hue="policy",
            over="workload",
            best={"throughput": "most", "light_p99_s": "least"},
            x_label=X_LABEL,
            y_label="p99 wait of light clients, times the shortest",
            log_y=True,
        ),
        Panel(
            title="Who dominates whom: on how many workloads the line's policy dominates the column's",
            form="table",
            hue="policy",
            over="workload",
            columns=[goal.metric for goal in GOALS],
            goals=GOALS,
        ),
    ]

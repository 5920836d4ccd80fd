"""What the studies of one setting share: what each of its values costs, over all workloads."""

from collections.abc import Mapping, Sequence

from fairlead.experiments.studies.ours.comparing import BEYOND, kept_on, lacking, ran_all, seeds_of
from fairlead.experiments.study.panel import Panel
from fairlead.experiments.study.results import Interval, Label, Results, interval_of
from fairlead.experiments.study.study import Holds, Verdict

# What a value must reach of the best one, on every workload, to be called as good.
ENOUGH = 0.9
COSTS = {"throughput": "throughput", "jain_system": "Jain's index"}


def each_value(
    results: Results, setting: str, symbol: str, loads: Sequence[str], *, bounds: bool = True
) -> list[Verdict]:
    """For each value: does it reach 90 % of the best throughput and of the fairest, everywhere?

    `loads`: those of the full run; without all of them there is no answer to that. With `bounds`,
    also whether the theorem's bound on gaps held.
    """
    values = results.labels(setting)
    verdicts = [
        _enough(results, setting, symbol, value, metric)
        for value in values
        for metric in COSTS
        if len(values) > 1 and ran_all(results, loads)
    ]
    bounded = [_bounded(results, setting, symbol, value) for value in values if bounds]
    return verdicts + [verdict for verdict in bounded if verdict is not None]


def shares(results: Results, setting: str, value: Label, metric: str) -> Mapping[str, Interval]:
    """By workload: over the seeds, what this value reaches of the best value."""
    found = {}
    for load in results.labels("workload"):
        by_value = {
            each: results.values(metric, workload=load, **{setting: each})
            for each in results.labels(setting)
        }
        own = by_value[value]
        best = {seed: max(of[seed] for of in by_value.values() if seed in of) for seed in own}
        found[str(load)] = interval_of(own[seed] / best[seed] for seed in own if best[seed])
    return found


def _enough(results: Results, setting: str, symbol: str, value: Label, metric: str) -> Verdict:
    found = shares(results, setting, value, metric)
    _, short, none = kept_on(found, lambda share: share >= ENOUGH)
    holds: Holds = "does not hold" if short else "not comparable" if none else "holds"
    return Verdict(
        claim=(
            f"{symbol} = {value} keeps {ENOUGH:.0%} of the best {COSTS[metric]} "
            f"on all {len(found)} workloads"
        ),
        paper=BEYOND,
        ours=_least_and_middle(found, seeds_of(results)),
        holds=holds,
        why="; ".join(
            [f"less on {', '.join(short)}"] * bool(short)
            + [f"no value on {', '.join(none)}"] * bool(none)
        ),
    )


def _least_and_middle(found: Mapping[str, Interval], seeds: int) -> str:
    valued = {load: of.median for load, of in found.items() if of.seeds}
    if not valued:
        return "no value"
    worst = min(valued, key=lambda load: valued[load])
    middle = interval_of(valued.values()).median
    gaps = lacking(found, seeds)
    return f"{valued[worst]:.0%} on {worst}, {middle:.0%} in the median" + f"; {gaps}" * bool(gaps)


def _bounded(results: Results, setting: str, symbol: str, value: Label) -> Verdict | None:
    """Of the runs in which two clients waited at once; None without such a run."""
    gaps = {
        (row["workload"], row["seed"]): float(row["gap_over_bound"])
        for row in results.rows
        if row[setting] == value and row["gap_over_bound"] is not None
    }
    if not gaps:
        return None
    worst = max(gaps, key=lambda run: gaps[run])
    loads = len({load for load, _ in gaps})
    return Verdict(
        claim=(
            f"{symbol} = {value}: no gap between two backlogged clients exceeds the bound "
            f"on {loads} workloads"
        ),
        paper="Theorem 4.1: 2 (U + Q^u)",
        ours=f"{gaps[worst]:.0%} of the bound at most, in {len(gaps)} runs",
        holds="holds" if gaps[worst] <= 1 else "does not hold",
        why="" if gaps[worst] <= 1 else f"on {worst[0]}, seed {worst[1]}",
    )


def frontier(title: str, hue: str = "policy") -> Panel:
    """The setting's path between throughput and fairness, the workloads taken together."""
    return Panel(
        title=title,
        form="path",
        x="throughput",
        y="jain_system",
        hue=hue,
        over="workload",
        best={"throughput": "most", "jain_system": "most"},
        x_label="throughput, share of the best value's",
        y_label="Jain's index, share of the best",
        zero=False,
    )


def curves(
    setting: str, x_label: str, *, where: Mapping[str, Label] | None = None, note: str = ""
) -> Sequence[Panel]:
    """A line a workload over the setting."""
    shown = {
        "throughput": ("Throughput", "service tokens/s, client view", True),
        "jain_system": ("Fairness", "Jain's index of service", False),
        "light_p99_s": ("Light clients", "p99 wait, s", True),
    }
    return [
        Panel(
            title=title + note,
            form="lines",
            where=where or {},
            x=setting,
            y=metric,
            hue="workload",
            x_label=x_label,
            y_label=y_label,
            log_x=True,
            log_y=log_y,
        )
        for metric, (title, y_label, log_y) in shown.items()
    ]

"""What the studies of one setting share: what each of its values costs, over all workloads."""

from collections.abc import Mapping, Sequence

from fairlead.experiments.study.panel import Panel
from fairlead.experiments.study.results import Label, Results, interval_of
from fairlead.experiments.study.study import Verdict

# What a value must reach of the best one, on every workload, to be called as good.
ENOUGH = 0.9
COSTS = {"throughput": "throughput", "jain_system": "Jain's index"}


def only(results: Results, **labels: Label) -> Results:
    """The rows with these labels."""
    return Results(
        [row for row in results.rows if all(row[name] == of for name, of in labels.items())]
    )


def judged(results: Results, setting: str, symbol: str, *, bounds: bool = True) -> list[Verdict]:
    """For each value: does it reach 90 % of the best throughput and of the fairest, everywhere?

    With `bounds`, also whether the theorem's bound on gaps held.
    """
    values = results.labels(setting)
    verdicts = [
        _enough(results, setting, symbol, value, metric)
        for value in values
        for metric in COSTS
        if len(values) > 1
    ]
    bounded = [_bounded(results, setting, symbol, value) for value in values if bounds]
    return verdicts + [verdict for verdict in bounded if verdict is not None]


def shares(results: Results, setting: str, value: Label, metric: str) -> Mapping[str, float]:
    """By workload: the median over the seeds of what this value reaches of the best value."""
    found = {}
    for load in results.labels("workload"):
        by_value = {
            each: results.values(metric, workload=load, **{setting: each})
            for each in results.labels(setting)
        }
        own = by_value[value]
        best = {seed: max(of[seed] for of in by_value.values() if seed in of) for seed in own}
        parts = [own[seed] / best[seed] for seed in own if best[seed]]
        if parts:
            found[str(load)] = interval_of(parts).median
    return found


def _enough(results: Results, setting: str, symbol: str, value: Label, metric: str) -> Verdict:
    found = shares(results, setting, value, metric)
    short = [load for load, share in found.items() if share < ENOUGH]
    worst = min(found, key=lambda load: found[load])
    middle = interval_of(found.values()).median
    return Verdict(
        claim=f"{symbol} = {value} keeps {ENOUGH:.0%} of the best {COSTS[metric]} on every workload",
        paper="beyond the papers",
        ours=f"{found[worst]:.0%} on {worst}, {middle:.0%} in the median",
        holds="does not hold" if short else "holds",
        why=f"less on {', '.join(short)}" if short else "",
    )


def _bounded(results: Results, setting: str, symbol: str, value: Label) -> Verdict | None:
    gaps = [
        float(row["gap_over_bound"])
        for row in results.rows
        if row[setting] == value and row["gap_over_bound"] is not None
    ]
    if not gaps:
        return None
    return Verdict(
        claim=f"{symbol} = {value}: no gap between two backlogged clients exceeds the bound",
        paper="Theorem 4.1: 2 (U + Q^u)",
        ours=f"{max(gaps):.0%} of the bound at most",
        holds="holds" if max(gaps) <= 1 else "does not hold",
        why="" if max(gaps) <= 1 else "see the rows",
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

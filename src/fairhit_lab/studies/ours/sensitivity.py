"""Verdicts and panels of the studies that vary one setting over all workloads."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from fairhit_lab.studies.ours.comparing import (
    BEYOND,
    failed_on,
    kept_on,
    lacking,
    ran_all,
    seeds_of,
)
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of
from fairhit_lab.studies.shared.study import Holds, Verdict

# The share of the best value that counts as good, on every workload; for waits a multiple of the shortest.
ENOUGH, LONGER = 0.9, 1.5


class RegretCost(NamedTuple):
    """A metric compared with the best value's: as a share of the most, or as a multiple of the least."""

    metric: str
    kind: Literal["most", "least"]
    claim: str


COSTS = (
    RegretCost("throughput", "most", f"keeps {ENOUGH:.0%} of the best throughput"),
    RegretCost("jain_system", "most", f"keeps {ENOUGH:.0%} of the best Jain's index"),
    RegretCost(
        "light_p99_s", "least", f"keeps light clients' p99 waits within {LONGER:g}x the shortest"
    ),
)


def each_value(
    results: Results, setting: str, symbol: str, loads: Sequence[str], *, bounds: bool = True
) -> list[Verdict]:
    """Verdicts for each value of a setting: is it near the best in throughput, fairness and waits everywhere?

    `loads` are the workloads of a full run; without all of them these verdicts are left out. With
    `bounds`, also whether the theorem's bound on gaps held.
    """
    values = results.labels(setting)
    verdicts = [
        _enough(results, setting, symbol, value, cost)
        for value in values
        for cost in COSTS
        if len(values) > 1 and ran_all(results, loads)
    ]
    bounded = [_bounded(results, setting, symbol, value) for value in values if bounds]
    return verdicts + [verdict for verdict in bounded if verdict is not None]


def shares(
    results: Results, setting: str, value: Label, cost: RegretCost
) -> Mapping[str, Interval]:
    """By workload and over the seeds: this value's number over the best value's."""
    best_of = max if cost.kind == "most" else min
    found = {}
    for load in results.labels("workload"):
        by_value = {
            each: results.values(cost.metric, workload=load, **{setting: each})
            for each in results.labels(setting)
        }
        own = by_value[value]
        best = {seed: best_of(of[seed] for of in by_value.values() if seed in of) for seed in own}
        found[str(load)] = interval_of(own[seed] / best[seed] for seed in own if best[seed])
    return found


def _enough(results: Results, setting: str, symbol: str, value: Label, cost: RegretCost) -> Verdict:
    found = shares(results, setting, value, cost)
    most = cost.kind == "most"
    _, missed, none = kept_on(found, lambda share: share >= ENOUGH if most else share <= LONGER)
    holds: Holds = "does not hold" if missed else "not comparable" if none else "holds"
    side = "less" if most else "longer"
    return Verdict(
        claim=f"{symbol} = {value} {cost.claim} on all {len(found)} workloads",
        paper=BEYOND,
        ours=_worst_and_middle(found, seeds_of(results), most=most),
        holds=holds,
        why=failed_on(side, missed, none),
    )


def _worst_and_middle(found: Mapping[str, Interval], seeds: int, *, most: bool) -> str:
    valued = {load: of.median for load, of in found.items() if of.seeds}
    if not valued:
        return "no value"
    worst = (min if most else max)(valued, key=lambda load: valued[load])
    middle = interval_of(valued.values()).median
    gaps = lacking(found, seeds)
    shown = (
        f"{valued[worst]:.0%} on {worst}, {middle:.0%} in the median"
        if most
        else f"{valued[worst]:.2f}x on {worst}, {middle:.2f}x in the median"
    )
    return shown + f"; {gaps}" * bool(gaps)


def _bounded(results: Results, setting: str, symbol: str, value: Label) -> Verdict | None:
    """The verdict on the largest gap of runs in which two clients waited at once; None without such a run."""
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
            f"on {loads} workload{'s' * (loads != 1)}"
        ),
        paper="Theorem 4.1: 2 (U + Q^u)",
        ours=f"{gaps[worst]:.0%} of the bound at most, in {len(gaps)} runs",
        holds="holds" if gaps[worst] <= 1 else "does not hold",
        why="" if gaps[worst] <= 1 else f"on {worst[0]}, seed {worst[1]}",
    )


def frontier(title: str, hue: str = "policy") -> Panel:
    """A panel of the setting's path between throughput and fairness, the workloads merged."""
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
    """Panels with a line per workload over the setting."""
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

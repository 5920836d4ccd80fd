"""The effect of one setting over the workloads: DLPM's quantum Q^u, D2LPM's worker quantum Q^w."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from fairhit_lab.studies.ours.comparing import (
    BEYOND,
    GOALS,
    MEASURES,
    changes,
    could_be,
    failed_on,
    kept_on,
    lacking,
    merged_path,
    only,
    ran_all,
    ratios,
    seeds_of,
    so_many,
)
from fairhit_lab.studies.ours.contention import LOADS, contended
from fairhit_lab.studies.ours.frontiers import QUICK_FLEET_S
from fairhit_lab.studies.ours.variants import ENGINES, FULL_S, WORKER_QUANTUM
from fairhit_lab.studies.shared.claims import SHARE, Rule, above, below, could_show, limited
from fairhit_lab.studies.shared.dominance import Goal
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of
from fairhit_lab.studies.shared.study import Case, Holds, Study, Verdict

# ---- any setting

HARDLY = "this can hardly fail here: only adversarial traffic comes near a bound on any traffic"

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
    verdict = Verdict(
        claim=f"{symbol} = {value} {cost.claim} on all {len(found)} workloads",
        paper=BEYOND,
        ours=_worst_and_middle(found, seeds_of(results), most=most),
        holds=holds,
        why=failed_on(side, missed, none),
    )
    if most:
        return limited(verdict, {load: (SHARE, Rule(low=ENOUGH)) for load in found})
    coulds = [
        could_be(results, cost.metric, {setting: value}, {setting: other})
        for other in results.labels(setting)
    ]
    longest = {load: max(could[load].high for could in coulds) for load in found}
    return limited(
        verdict, {load: (could_show(1, most), Rule(high=LONGER)) for load, most in longest.items()}
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
        why=HARDLY if gaps[worst] <= 1 else f"on {worst[0]}, seed {worst[1]}",
        least=0,
    )


def _curves(
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


JAIN = ("jain_system", "Jain's index, share of the best")

# ---- DLPM's quantum

QUANTA = (256, 1_024, 4_096, 16_384, 65_536)


def quantum_cases(quick: bool) -> Sequence[Case]:
    """DLPM with each quantum on each workload; those of `pareto` among them are the same runs."""
    return [
        contended(
            load,
            {"policy": "dlpm", "quantum": quantum},
            {"scheduler": "dlpm", "quantum": quantum},
            duration_s=100 if quick else None,
        )
        for load in (("judge-s1", "long-qa-s1") if quick else LOADS)
        for quantum in ((4_096, 16_384) if quick else QUANTA)
    ]


# ---- D2LPM's worker quantum

WORKER_QUANTA = (2_000, 8_000, 16_384, 64_000, 256_000)
QUICK_WORKER_QUANTA = (2_000, 16_384, 256_000)
CHARGES = ("input", "extend")
# A short and a long shared prefix, documents, and sessions; all of `pareto-fleet` would take an hour.
FLEET_LOADS = ("judge-s1", "chat", "long-qa-s1", "agentic")


def worker_quantum_cases(quick: bool) -> Sequence[Case]:
    """D2LPM with each worker quantum and charge on some workloads, in front of four engines."""
    return [
        contended(
            load,
            {"policy": f"d2lpm ({charge})", "worker_quantum": quantum},
            {
                "scheduler": "dlpm",
                "router": "d2lpm",
                "worker_quantum": quantum,
                **({"worker_charge": charge} if charge != CHARGES[0] else {}),
            },
            engines=ENGINES,
            duration_s=QUICK_FLEET_S if quick else FULL_S,
        )
        for load in (FLEET_LOADS[:1] if quick else FLEET_LOADS)
        for charge in CHARGES
        for quantum in (QUICK_WORKER_QUANTA if quick else WORKER_QUANTA)
    ]


def _judge_worker_quantum(results: Results) -> Sequence[Verdict]:
    """Verdicts on each value under each charge, and on the charges at the default."""
    if not ran_all(results, FLEET_LOADS):
        return [_beyond(results)]
    verdicts = [_beyond(results), *(_charges(results, goal) for goal in GOALS)]
    for charge in CHARGES:
        of_one = only(results, policy=f"d2lpm ({charge})")
        verdicts += each_value(
            of_one, "worker_quantum", f"Q^w ({charge})", FLEET_LOADS, bounds=False
        )
    return verdicts


def _share(results: Results, metric: str, policy: Label, quantum: Label) -> Interval:
    """A metric over the best of all charges and quanta on the same workload, over workloads with values."""
    parts = []
    for load in results.labels("workload"):
        here = only(results, workload=load)
        own = here.interval(metric, policy=policy, worker_quantum=quantum)
        others = [
            here.interval(metric, policy=each, worker_quantum=other)
            for each in here.labels("policy")
            for other in here.labels("worker_quantum")
        ]
        best = max((of.median for of in others if of.seeds), default=0.0)
        if own.seeds and best:
            parts.append(own.median / best)
    return interval_of(parts)


def _beyond(results: Results) -> Verdict:
    """The verdict on both charges over all quanta, as charges differ in what a quantum buys."""
    metrics = ("throughput", "jain_system")
    count = len(results.labels("workload"))
    at_default = [_share(results, each, "d2lpm (input)", WORKER_QUANTUM) for each in metrics]
    found = {
        quantum: [_share(results, each, "d2lpm (extend)", quantum) for each in metrics]
        for quantum in results.labels("worker_quantum")
    }
    # `seeds` counts workloads here; without a value on one of them medians are of different things.
    complete = {
        quantum: own for quantum, own in found.items() if all(of.seeds == count for of in own)
    }
    judged_at_all = bool(complete) and all(of.seeds == count for of in at_default)
    beyond = [
        quantum
        for quantum, own in complete.items()
        if all(o.median >= d.median for o, d in zip(own, at_default, strict=True))
        and any(o.median > d.median * 1.02 for o, d in zip(own, at_default, strict=True))
    ]
    holds: Holds = "holds" if beyond else "does not hold"
    why = "" if beyond else "none is as good in both, and beyond 2 % better in one"
    lost = [str(quantum) for quantum in found if quantum not in complete]
    if lost and not beyond:
        why += f", but no value on some workload at {', '.join(lost)}"
    if not judged_at_all:
        holds, why = "not comparable", "no value on some workload"
    said = "; ".join(f"extend {quantum}: {_pair(own)}" for quantum, own in found.items())
    return Verdict(
        claim=(
            f"some Q^w with extend is beyond Q^w = {WORKER_QUANTUM} with input in throughput and Jain's "
            f"index (medians over {so_many(results)})"
        ),
        paper="charges the whole input",
        ours=f"shares of the best: input {_pair(at_default)}; {said}",
        holds=holds,
        why=why,
        least=0,
        greatest=len(found),
    )


def _pair(shares: Sequence[Interval]) -> str:
    return " and ".join(f"{of.median:.2f}" if of.seeds else "no value" for of in shares)


def _charges(results: Results, goal: Goal) -> Verdict:
    """The verdict on extend against input at the default."""
    whole, extend = (
        dict[str, Label](policy=f"d2lpm ({charge})", worker_quantum=WORKER_QUANTUM)
        for charge in CHARGES
    )
    found = ratios(results, goal.metric, extend, whole)
    good, bad = (each.get(goal.metric, []) for each in changes(results, (goal,), extend, whole))
    holds: Holds = "holds" if len(good) == len(found) else "holds under conditions only"
    gaps = lacking(found, seeds_of(results))
    verdict = Verdict(
        claim=(
            f"charging only what is computed (extend) is better for {goal.metric} at "
            f"Q^w = {WORKER_QUANTUM} on all {len(found)} workloads"
        ),
        paper="charges the whole input",
        ours="; ".join(
            [*(f"{ratio}x on {load}" for load, ratio in found.items()), *[gaps] * bool(gaps)]
        ),
        holds="does not hold" if bad or not good else holds,
        why=f"better on {', '.join(good) or 'none'}, worse on {', '.join(bad) or 'none'}",
    )
    gained = above(1 + goal.noise) if goal.more else below(1 - goal.noise)
    could = could_be(results, goal.metric, extend, whole)
    return limited(verdict, {load: (reach, gained) for load, reach in could.items()})


STUDIES = {
    "sensitivity-quantum": Study(
        whose="ours",
        title="Sensitivity to DLPM's quantum",
        source="beyond the papers: one engine",
        shows="throughput, fairness and waits by Q^u, for each workload",
        takes="quick 3 s; full 25 s, most of it shared with pareto",
        cases=quantum_cases,
        measures=MEASURES,
        panels=[
            merged_path("Q^u over the workloads (medians)", *JAIN),
            *_curves("quantum", "Q^u, tokens of service"),
        ],
        judge=lambda results: each_value(results, "quantum", "Q^u", tuple(LOADS)),
        choices="Workloads, engine and rates as in `pareto`. The claims on gaps can hardly fail: ordinary "
        "traffic stays below half of a bound on any traffic. They would show an error of the code, not of "
        "the theorem; the search for traffic that comes near it is a test (`docs/reference/invariants.md`). "
        "A value keeps a share of the best that was run, so that some value always has all of it.",
    ),
    "sensitivity-worker-quantum": Study(
        whose="ours",
        title="Sensitivity to D2LPM's worker quantum and its charge",
        source="beyond the papers: four engines; DLPM (arXiv:2501.14312v1), Figure 10 sweeps Q^w",
        shows="throughput, fairness and waits by Q^w and its charge, for each workload",
        takes="quick 4 s; full 27 s",
        cases=worker_quantum_cases,
        measures=MEASURES,
        panels=[
            merged_path("Q^w over the workloads (medians)", *JAIN),
            *[
                panel
                for charge in CHARGES
                for panel in _curves(
                    "worker_quantum",
                    "Q^w, tokens of service",
                    where={"policy": f"d2lpm ({charge})"},
                    note=f", {charge} charged",
                )
            ],
        ],
        judge=_judge_worker_quantum,
        choices="Workloads, engines and rates as in `pareto-fleet`.",
    ),
}

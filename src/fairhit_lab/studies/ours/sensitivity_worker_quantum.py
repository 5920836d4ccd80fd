"""The effect of D2LPM's worker quantum Q^w, and of its charge, on locality, balance and fairness."""

from collections.abc import Sequence

from fairhit_lab.studies.ours.comparing import (
    GOALS,
    MEASURES,
    lacking,
    only,
    ran_all,
    ratios,
    seeds_of,
    so_many,
)
from fairhit_lab.studies.ours.contention import contended
from fairhit_lab.studies.ours.pareto_fleet import QUICK_S
from fairhit_lab.studies.ours.sensitivity import curves, each_value, frontier
from fairhit_lab.studies.ours.variants import ENGINES, FULL_S
from fairhit_lab.studies.shared.dominance import Goal, better, worse
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of
from fairhit_lab.studies.shared.study import Case, Holds, Study, Verdict

QUANTA = (2_000, 8_000, 16_384, 64_000, 256_000)
QUICK_QUANTA = (2_000, 16_384, 256_000)
DEFAULT = 16_384
CHARGES = ("input", "extend")
# A short and a long shared prefix, documents, and sessions; all of `pareto-fleet` would take an hour.
FULL_LOADS = ("judge-s1", "chat", "long-qa-s1", "agentic")


def cases(quick: bool) -> Sequence[Case]:
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
            duration_s=QUICK_S if quick else FULL_S,
        )
        for load in (FULL_LOADS[:1] if quick else FULL_LOADS)
        for charge in CHARGES
        for quantum in (QUICK_QUANTA if quick else QUANTA)
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on each value under each charge, and on the charges at the default."""
    if not ran_all(results, FULL_LOADS):
        return [_beyond(results)]
    verdicts = [_beyond(results), *(_charges(results, goal) for goal in GOALS)]
    for charge in CHARGES:
        of_one = only(results, policy=f"d2lpm ({charge})")
        verdicts += each_value(
            of_one, "worker_quantum", f"Q^w ({charge})", FULL_LOADS, bounds=False
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
    at_default = [_share(results, each, "d2lpm (input)", DEFAULT) for each in metrics]
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
            f"some Q^w with extend is beyond Q^w = {DEFAULT} with input in throughput and Jain's "
            f"index (medians over {so_many(results)})"
        ),
        paper="charges the whole input",
        ours=f"shares of the best: input {_pair(at_default)}; {said}",
        holds=holds,
        why=why,
    )


def _pair(shares: Sequence[Interval]) -> str:
    return " and ".join(f"{of.median:.2f}" if of.seeds else "no value" for of in shares)


def _charges(results: Results, goal: Goal) -> Verdict:
    """The verdict on extend against input at the default."""
    extend: dict[str, Label] = {"policy": "d2lpm (extend)", "worker_quantum": DEFAULT}
    whole: dict[str, Label] = {"policy": "d2lpm (input)", "worker_quantum": DEFAULT}
    found = ratios(results, goal.metric, extend, whole)
    better_on, worse_on = [], []
    for load in found:
        ours = results.values(goal.metric, workload=load, **extend)
        theirs = results.values(goal.metric, workload=load, **whole)
        if theirs.keys() - ours.keys() or worse(ours, theirs, goal):
            worse_on.append(load)
        elif better(ours, theirs, goal):
            better_on.append(load)
    gaps = lacking(found, seeds_of(results))
    return Verdict(
        claim=(
            f"charging only what is computed (extend) is better for {goal.metric} at "
            f"Q^w = {DEFAULT} on all {len(found)} workloads"
        ),
        paper="charges the whole input",
        ours="; ".join(
            [*(f"{ratio}x on {load}" for load, ratio in found.items()), *[gaps] * bool(gaps)]
        ),
        holds="does not hold"
        if worse_on or not better_on
        else "holds"
        if len(better_on) == len(found)
        else "holds only if",
        why=f"better on {', '.join(better_on) or 'none'}, worse on {', '.join(worse_on) or 'none'}",
    )


STUDY = Study(
    title="Sensitivity to D2LPM's worker quantum and its charge",
    source="beyond the papers: four engines; DLPM (arXiv:2501.14312v1), Figure 10 sweeps Q^w",
    shows="throughput, fairness and waits by Q^w and its charge, for each workload",
    takes="quick 4 s; full 2 min",
    cases=cases,
    measures=MEASURES,
    panels=[
        frontier("Q^w over the workloads (medians)"),
        *[
            panel
            for charge in CHARGES
            for panel in curves(
                "worker_quantum",
                "Q^w, tokens of service",
                where={"policy": f"d2lpm ({charge})"},
                note=f", {charge} charged",
            )
        ],
    ],
    judge=judge,
    choices="Workloads, engines and rates as in `pareto-fleet`.",
)

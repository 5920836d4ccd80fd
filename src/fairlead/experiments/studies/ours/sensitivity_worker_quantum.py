"""How D2LPM's worker quantum Q^w, and what is charged to it, trade locality for balance and fairness."""

from collections.abc import Sequence

from fairlead.experiments.studies.ours.contention import contended
from fairlead.experiments.studies.ours.pareto import GOALS, MEASURES
from fairlead.experiments.studies.ours.pareto_fleet import ENGINES, FULL_S, QUICK_S
from fairlead.experiments.studies.ours.sensitivity import curves, frontier, judged, only
from fairlead.experiments.study.dominance import Goal, better, worse
from fairlead.experiments.study.results import Label, Results, interval_of
from fairlead.experiments.study.study import Case, Study, Verdict

QUANTA = (2_000, 8_000, 16_384, 64_000, 256_000)
QUICK_QUANTA = (2_000, 16_384, 256_000)
DEFAULT = 16_384
CHARGES = ("input", "extend")
# A short and a long shared prefix, documents, and sessions; all of `pareto-fleet` would take an hour.
FULL_LOADS = ("judge-s1", "chat", "long-qa-s1", "agentic")


def cases(quick: bool) -> Sequence[Case]:
    """Each worker quantum and charge on some workloads, in front of four engines."""
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
    """What each value costs under each charge, and which charge is better at the default."""
    verdicts = [_beyond(results), *(_charges(results, goal) for goal in GOALS)]
    for charge in CHARGES:
        of_one = only(results, policy=f"d2lpm ({charge})")
        verdicts += judged(of_one, "worker_quantum", f"Q^w ({charge})", bounds=False)
    return verdicts


def _share(results: Results, metric: str, policy: Label, quantum: Label) -> float:
    """Of the best of all charges and quanta on the same workload: the median over the workloads."""
    parts = []
    for load in results.labels("workload"):
        here = only(results, workload=load)
        best = max(
            here.interval(metric, policy=each, worker_quantum=other).median
            for each in here.labels("policy")
            for other in here.labels("worker_quantum")
        )
        own = here.interval(metric, policy=policy, worker_quantum=quantum).median
        parts.append(own / best)
    return interval_of(parts).median


def _beyond(results: Results) -> Verdict:
    """Charges differ in what a quantum buys, so the two are compared over all quanta."""
    metrics = ("throughput", "jain_system")
    at_default = [_share(results, each, "d2lpm (input)", DEFAULT) for each in metrics]
    found = {
        quantum: [_share(results, each, "d2lpm (extend)", quantum) for each in metrics]
        for quantum in results.labels("worker_quantum")
    }
    beyond = [
        quantum
        for quantum, own in found.items()
        if all(mine >= other for mine, other in zip(own, at_default, strict=True))
        and any(mine > other * 1.02 for mine, other in zip(own, at_default, strict=True))
    ]
    said = "; ".join(
        f"extend {quantum}: {own[0]:.2f} and {own[1]:.2f}" for quantum, own in found.items()
    )
    return Verdict(
        claim=f"some Q^w with extend is beyond Q^w = {DEFAULT} with input in throughput and Jain's index",
        paper="charges the whole input",
        ours=f"shares of the best: input {at_default[0]:.2f} and {at_default[1]:.2f}; {said}",
        holds="holds" if beyond else "does not hold",
        why="" if beyond else "each gives up one of the two",
    )


def _charges(results: Results, goal: Goal) -> Verdict:
    """Extend against input at the default."""
    better_on, worse_on, said = [], [], []
    for load in results.labels("workload"):
        values = [
            results.values(
                goal.metric,
                workload=load,
                policy=f"d2lpm ({charge})",
                worker_quantum=DEFAULT,
            )
            for charge in ("extend", "input")
        ]
        extend, whole = values
        if better(extend, whole, goal):
            better_on.append(str(load))
        if worse(extend, whole, goal):
            worse_on.append(str(load))
        ratio = results.ratio(
            goal.metric,
            {"workload": load, "policy": "d2lpm (extend)", "worker_quantum": DEFAULT},
            {"workload": load, "policy": "d2lpm (input)", "worker_quantum": DEFAULT},
        )
        said.append(f"{ratio}x on {load}")
    return Verdict(
        claim=f"charging only what is computed (extend) is better for {goal.metric} at Q^w = {DEFAULT}",
        paper="charges the whole input",
        ours="; ".join(said),
        holds="does not hold"
        if worse_on or not better_on
        else "holds"
        if len(better_on) == len(said)
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

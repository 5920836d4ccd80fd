"""Variants beyond the papers: ageing, what is charged, and outputs charged before they come."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.experiments.studies.ours.contention import contended, worst_gap
from fairlead.experiments.studies.ours.pareto import GOALS, MEASURES, in_words, ratios
from fairlead.experiments.studies.ours.pareto_fleet import ENGINES, FULL_S
from fairlead.experiments.study.dominance import better, worse
from fairlead.experiments.study.panel import Panel
from fairlead.experiments.study.results import Results
from fairlead.experiments.study.study import Case, Holds, Outcome, Study, Verdict

# Of one engine, beside plain DLPM.
ALONE: Mapping[str, Mapping[str, Any]] = {
    "dlpm": {},
    "ageing 4096": {"max_overtake": 4_096},
    "ageing 65536": {"max_overtake": 65_536},
    "charge input": {"charge": "input"},
    "misfit stop": {"misfit": "stop"},
    "predicted outputs": {"scheduler": "dlpm-predict"},
}
# In front of four.
FLEET: Mapping[str, Mapping[str, Any]] = {
    "d2lpm": {},
    "worker-charge extend": {"worker_charge": "extend"},
}
LOADS = ("tot-s1", "judge-s1", "chat", "mixed", "arena", "agentic", "azure")
FLEET_LOADS = ("judge-s1", "chat", "agentic")
QUICK_LOADS: Sequence[str] = ("judge-s1", "chat")
QUICK_FLEET_LOADS: Sequence[str] = ()
QUICK_S = 60
NOTHING_CHANGES = "neither better nor worse beyond noise on any workload"


def longest_wait_s(outcome: Outcome) -> float | None:
    """Of any request of anybody, for its first token."""
    waits = [of["max_s"] for of in outcome.summary["waits"].values() if of["max_s"] is not None]
    return max(waits, default=None)


def cases(quick: bool) -> Sequence[Case]:
    """Each variant on some workloads, with the plain form first."""
    alone = [
        contended(
            load,
            {"engines": 1, "variant": name},
            {"scheduler": "dlpm", **settings},
            duration_s=QUICK_S if quick else None,
        )
        for load in (QUICK_LOADS if quick else LOADS)
        for name, settings in ALONE.items()
    ]
    fleet = [
        contended(
            load,
            {"engines": ENGINES, "variant": name},
            {"scheduler": "dlpm", "router": "d2lpm", **settings},
            engines=ENGINES,
            duration_s=FULL_S,
        )
        for load in (QUICK_FLEET_LOADS if quick else FLEET_LOADS)
        for name, settings in FLEET.items()
    ]
    return [*alone, *fleet]


def judge(results: Results) -> Sequence[Verdict]:
    """What each variant changes against the plain form."""
    present = set(results.labels("variant"))
    verdicts = []
    if "predicted outputs" in present:
        verdicts.append(_smaller_gaps(results))
    for variants, plain in ((ALONE, "dlpm"), (FLEET, "d2lpm")):
        verdicts += [
            _against(results, name, plain) for name in variants if name != plain and name in present
        ]
    return verdicts


def _smaller_gaps(results: Results) -> Verdict:
    """DESIGN 9: a pre-charge shrinks the term w_q * M."""
    found = ratios(results, "gap", {"variant": "predicted outputs"}, {"variant": "dlpm"})
    smaller = [load for load, ratio in found.items() if ratio.median < 1]
    holds: Holds = (
        "holds" if len(smaller) == len(found) else "holds only if" if smaller else "does not hold"
    )
    larger = [load for load in found if load not in smaller]
    return Verdict(
        claim="charging predicted outputs at admission shrinks the largest gap between clients",
        paper="beyond the papers; VTC's Tables 2, 5 and 6 for VTC",
        ours=in_words(found),
        holds=holds,
        why=f"not on {', '.join(larger)}" if larger else "",
    )


def _against(results: Results, name: str, plain: str) -> Verdict:
    """Better in something on some workload, and worse in nothing on any."""
    good: dict[str, list[str]] = {}
    bad: dict[str, list[str]] = {}
    for load in results.labels("workload"):
        for goal in GOALS:
            ours = results.values(goal.metric, workload=load, variant=name)
            theirs = results.values(goal.metric, workload=load, variant=plain)
            if better(ours, theirs, goal):
                good.setdefault(goal.metric, []).append(str(load))
            elif worse(ours, theirs, goal):
                bad.setdefault(goal.metric, []).append(str(load))
    holds: Holds = "does not hold" if not good else "holds only if" if bad else "holds"
    return Verdict(
        claim=f"{name} is better than plain {plain} in something, and worse in nothing",
        paper="beyond the papers",
        ours=f"better: {_where(good)}; worse: {_where(bad)}",
        holds=holds,
        why=f"worse: {_where(bad)}" if bad else NOTHING_CHANGES if not good else "",
    )


def _where(found: Mapping[str, Sequence[str]]) -> str:
    parts = [f"{metric} on {', '.join(loads)}" for metric, loads in found.items()]
    return "; ".join(parts) or "nowhere"


def _bars(title: str, metric: str, y_label: str, engines: int = 1) -> Panel:
    return Panel(
        title=title,
        form="bars",
        x="workload",
        y=metric,
        hue="variant",
        where={"engines": engines},
        y_label=y_label,
    )


STUDY = Study(
    title="Variants: ageing, charges, predicted outputs",
    source="beyond the papers: one engine, and four",
    shows="what each variant changes in throughput, fairness and waits, on which workload",
    takes="quick 3 s; full 2 min",
    cases=cases,
    measures={**MEASURES, "gap": worst_gap, "longest_wait_s": longest_wait_s},
    panels=[
        _bars("Throughput", "throughput", "service tokens/s, client view"),
        _bars("Fairness", "jain_system", "Jain's index of service"),
        _bars("Largest gap", "gap", "tokens of charged service"),
        _bars("Longest wait", "longest_wait_s", "s to the first token"),
        _bars("Four engines: throughput", "throughput", "service tokens/s", ENGINES),
        _bars("Four engines: fairness", "jain_system", "Jain's index", ENGINES),
    ],
    judge=judge,
    choices="Workloads, engines and rates as in `pareto` and `pareto-fleet`; Q^u 4096, Q^w 16384.",
)

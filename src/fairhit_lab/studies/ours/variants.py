"""Variants beyond the papers: ageing, what is charged, and outputs charged before they are produced."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairhit_lab.studies.ours.comparing import (
    BEYOND,
    GOALS,
    MEASURES,
    changes,
    on_all,
    only,
    ran_all,
    so_many,
)
from fairhit_lab.studies.ours.contention import contended
from fairhit_lab.studies.shared.claims import below
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Holds, Outcome, Study, Verdict

PLAIN: Mapping[str, Any] = {"scheduler": "dlpm", "quantum": 4_096}
# Variants on one engine, plain DLPM first.
ALONE: Mapping[str, Mapping[str, Any]] = {
    "dlpm": PLAIN,
    "ageing 4096": {**PLAIN, "max_overtake": 4_096},
    "ageing 65536": {**PLAIN, "max_overtake": 65_536},
    "charge input": {**PLAIN, "charge": "input"},
    "misfit stop": {**PLAIN, "misfit": "stop"},
    "predicted outputs": {**PLAIN, "scheduler": "dlpm-predict"},
}
# In front of four engines runs last half as long: four times as many requests arrive per second.
ENGINES, FULL_S = 4, 120
FLEET: Mapping[str, Mapping[str, Any]] = {
    "d2lpm": {},
    "worker-charge extend": {"worker_charge": "extend"},
}
LOADS = ("tot-s1", "judge-s1", "chat", "mixed", "arena", "agentic", "azure")
FLEET_LOADS = ("judge-s1", "chat", "agentic")
QUICK_LOADS: Sequence[str] = ("judge-s1", "chat")
# The default of `pareto-fleet`, so that these are the same runs.
WORKER_QUANTUM = 16_384
QUICK_S = 60
NOTHING_CHANGES = "neither better nor worse beyond noise on any workload"


def longest_wait_s(outcome: Outcome) -> float | None:
    """The longest wait of any request for its first token."""
    waits = [of["max_s"] for of in outcome.summary["waits"].values() if of["max_s"] is not None]
    return max(waits, default=None)


def cases(quick: bool) -> Sequence[Case]:
    """The variants on some workloads, with the plain form first."""
    d2lpm = {"scheduler": "dlpm", "router": "d2lpm", "worker_quantum": WORKER_QUANTUM}
    points = [
        (1, load, name, settings, QUICK_S if quick else None)
        for load in (QUICK_LOADS if quick else LOADS)
        for name, settings in ALONE.items()
    ]
    points += [
        (ENGINES, load, name, {**d2lpm, **settings}, FULL_S)
        for load in (() if quick else FLEET_LOADS)
        for name, settings in FLEET.items()
    ]
    return [
        contended(
            load,
            {"engines": engines, "variant": name},
            settings,
            engines=engines,
            duration_s=duration_s,
        )
        for engines, load, name, settings, duration_s in points
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on each variant against the plain form."""
    verdicts = []
    if ran_all(results, LOADS):  # a pre-charge shrinks the term w_q * M of the bound
        verdicts.append(
            on_all(
                only(results, engines=1),
                "gap",
                {"variant": "predicted outputs"},
                {"variant": "dlpm"},
                below(1),
                claim="charging predicted outputs at admission shrinks the largest gap between clients",
                paper="beyond the papers; VTC's Tables 2, 5 and 6 for VTC",
            )
        )
    for variants, plain, engines in ((ALONE, "dlpm", 1), (FLEET, "d2lpm", ENGINES)):
        here = only(results, engines=engines)
        verdicts += [
            _against(here, name, plain) for name in variants if name != plain and here.rows
        ]
    return verdicts


def _against(results: Results, name: str, plain: str) -> Verdict:
    """The verdict on a variant: better in one goal on some workload, and worse in none on any."""
    good, bad = changes(results, GOALS, {"variant": name}, {"variant": plain})
    holds: Holds = (
        "does not hold" if not good else "holds under conditions only" if bad else "holds"
    )
    return Verdict(
        claim=f"on {so_many(results)} {name} is better than plain {plain} in something, "
        "and worse in nothing",
        paper=BEYOND,
        ours=f"better: {_where(good)}; worse: {_where(bad)}",
        holds=holds,
        why=f"worse: {_where(bad)}" if bad else NOTHING_CHANGES if not good else "",
        least=0,
        greatest=len(GOALS) * len(results.labels("workload")),
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
    whose="ours",
    title="Variants: ageing, charges, predicted outputs",
    source="beyond the papers: one engine, and four",
    shows="what each variant changes in throughput, fairness and waits, on which workload",
    takes="quick 3 s; full 13 s",
    cases=cases,
    measures={**MEASURES, "longest_wait_s": longest_wait_s},
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

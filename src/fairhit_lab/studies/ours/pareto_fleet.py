"""Every router with its schedulers in front of four engines, on every kind of workload."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairhit_lab.studies.ours.comparing import (
    GOALS,
    MEASURES,
    frontiers,
    on_all,
    ran_all,
    ratios,
    seeds_of,
    undominated,
)
from fairhit_lab.studies.ours.contention import LOADS, contended
from fairhit_lab.studies.ours.variants import ENGINES, FLEET, FULL_S, WORKER_QUANTUM
from fairhit_lab.studies.shared.dominance import Goal
from fairhit_lab.studies.shared.results import Label, Results
from fairhit_lab.studies.shared.study import Case, Outcome, Study, Verdict

QUICK_S = 60
WORKER_QUANTA = (4_096, 16_384, 65_536)
DEFAULT = WORKER_QUANTUM
# The charge of a dispatch to the worker quantum: the whole prompt (the paper's), or the computed part.
CHARGES: Mapping[str, Mapping[str, Any]] = {
    "d2lpm": FLEET["d2lpm"],
    "d2lpm (extend)": FLEET["worker-charge extend"],
}
SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "rr+lpm": {"scheduler": "lpm", "router": "round-robin"},
    "vtc (client round robin)": {"scheduler": "vtc", "router": "client-round-robin"},
    "fcfs (least loaded)": {"scheduler": "fcfs", "router": "least-loaded"},
    "dlpm (least loaded)": {"scheduler": "dlpm", "router": "least-loaded"},
    "fcfs (power of two)": {"scheduler": "fcfs", "router": "power-of-two"},
    "preble": {"scheduler": "preble-groups", "router": "preble"},
    "central-dlpm": {"scheduler": "dlpm", "router": "central-dlpm"},
}
QUICK_LOADS = ("judge-s1",)
QUICK_SYSTEMS = ("rr+lpm", "vtc (client round robin)", "preble")
QUICK_CHARGES = ("d2lpm",)
THROUGHPUT, JAIN, LIGHT = GOALS


def cases(quick: bool) -> Sequence[Case]:
    """A run for each system, worker quantum, charge and workload."""
    duration_s = QUICK_S if quick else FULL_S
    found: list[Case] = []
    for load in QUICK_LOADS if quick else LOADS:
        for name in QUICK_SYSTEMS if quick else SYSTEMS:
            labels: Mapping[str, Label] = {"policy": name, "quantum": 0}
            found.append(
                contended(load, labels, SYSTEMS[name], engines=ENGINES, duration_s=duration_s)
            )
        for name in QUICK_CHARGES if quick else CHARGES:
            for quantum in WORKER_QUANTA:
                labels = {"policy": name, "quantum": quantum}
                settings = {
                    "scheduler": "dlpm",
                    "router": "d2lpm",
                    "worker_quantum": quantum,
                    **CHARGES[name],
                }
                found.append(
                    contended(load, labels, settings, engines=ENGINES, duration_s=duration_s)
                )
    return found


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on D2LPM against the paper's systems, and on dominance."""
    if not ran_all(results, tuple(LOADS)):
        return undominated(results, GOALS)
    verdicts = [
        _against(results, "vtc (client round robin)", THROUGHPUT, "throughput", "up to 2.87x"),
        _against(results, "rr+lpm", THROUGHPUT, "throughput", "up to 2.22x"),
        _against(results, "preble", THROUGHPUT, "throughput", "at least 1x, but for one case"),
        _against(results, "rr+lpm", JAIN, "Jain's index", "above 1x"),
        _against(results, "preble", JAIN, "Jain's index", "above 1x"),
        _against(results, "preble", LIGHT, "light clients' p99 wait", "down to 1/7.18x"),
        _against(results, "rr+lpm", LIGHT, "light clients' p99 wait", "down to 1/9.55x"),
    ]
    return [*verdicts, *undominated(results, GOALS)]


def _against(results: Results, other: str, goal: Goal, what: str, paper: str) -> Verdict:
    """The verdict that D2LPM at its default is at least as good as another system on every workload."""
    side = "at least" if goal.more else "at most"
    return on_all(
        claim=f"D2LPM (Q^w = {DEFAULT}) has {side} the {what} of {other}",
        paper=paper,
        found=ratios(
            results,
            goal.metric,
            {"policy": "d2lpm", "quantum": DEFAULT},
            {"policy": other, "quantum": 0},
        ),
        goal=goal,
        seeds=seeds_of(results),
    )


def blocked_s(outcome: Outcome) -> float | None:
    """Seconds in which engines waited for a central scheduler's answer; None without a central scheduler."""
    central = outcome.summary.get("central")
    return float(central["blocked_s"]) if central else None


STUDY = Study(
    title="Throughput against fairness, every router on every kind of workload",
    source="beyond the papers: four engines",
    shows="throughput against fairness and waits, of each router, D2LPM's worker quanta and charges",
    takes="quick 4 s; full 9 min",
    cases=cases,
    measures={**MEASURES, "blocked_s": blocked_s},
    panels=frontiers(),
    judge=judge,
    choices=(
        "Workloads and engines as in `pareto`, with four times the rate, for 120 s. Mooncake's and "
        "Azure's times are recorded: Mooncake has its full lengths here (prompts above 39,000 tokens "
        "are rejected), Azure the first 480 s, whose second half is heavy. `d2lpm (extend)` charges a "
        "dispatch only for what is to be computed, `d2lpm` for the whole prompt, as the paper does."
    ),
)

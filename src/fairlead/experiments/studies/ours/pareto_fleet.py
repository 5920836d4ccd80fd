"""Every router with its schedulers in front of four engines, on every kind of workload."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.experiments.studies.ours.contention import LOADS, contended
from fairlead.experiments.studies.ours.pareto import (
    GOALS,
    MEASURES,
    X_LABEL,
    in_words,
    ratios,
    undominated,
)
from fairlead.experiments.study.dominance import Goal
from fairlead.experiments.study.measures import throughput
from fairlead.experiments.study.panel import Panel
from fairlead.experiments.study.results import Label, Results
from fairlead.experiments.study.study import Case, Outcome, Study, Verdict

ENGINES = 4
# Half as long as on one engine: four times as many requests come in a second.
FULL_S = 120
QUICK_S = 60
WORKER_QUANTA = (4_096, 16_384, 65_536)
DEFAULT = 16_384
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


def cases(quick: bool) -> Sequence[Case]:
    """A run for each system, worker quantum and workload."""
    duration_s = QUICK_S if quick else FULL_S
    found: list[Case] = []
    for load in QUICK_LOADS if quick else LOADS:
        for name in QUICK_SYSTEMS if quick else SYSTEMS:
            labels: Mapping[str, Label] = {"policy": name, "quantum": 0}
            found.append(
                contended(load, labels, SYSTEMS[name], engines=ENGINES, duration_s=duration_s)
            )
        for quantum in WORKER_QUANTA:
            labels = {"policy": "d2lpm", "quantum": quantum}
            settings = {"scheduler": "dlpm", "router": "d2lpm", "worker_quantum": quantum}
            found.append(contended(load, labels, settings, engines=ENGINES, duration_s=duration_s))
    return found


def judge(results: Results) -> Sequence[Verdict]:
    """D2LPM against the systems of the paper, then each policy: who dominates it."""
    verdicts = [
        _against(
            results,
            "vtc (client round robin)",
            Goal(metric="throughput"),
            "throughput",
            "up to 2.87x",
        ),
        _against(results, "rr+lpm", Goal(metric="throughput"), "throughput", "up to 2.22x"),
        _against(
            results,
            "preble",
            Goal(metric="throughput"),
            "throughput",
            "at least 1x, but for one case",
        ),
        _against(results, "rr+lpm", GOALS[1], "Jain's index", "above 1x"),
        _against(results, "preble", GOALS[1], "Jain's index", "above 1x"),
        _against(results, "preble", GOALS[2], "light clients' p99 wait", "down to 1/7.18x"),
        _against(results, "rr+lpm", GOALS[2], "light clients' p99 wait", "down to 1/9.55x"),
    ]
    return [*verdicts, *undominated(results, GOALS)]


def _against(results: Results, other: str, goal: Goal, what: str, paper: str) -> Verdict:
    """At its default D2LPM is at least as good on every workload."""
    found = ratios(
        results,
        goal.metric,
        {"policy": "d2lpm", "quantum": DEFAULT},
        {"policy": other, "quantum": 0},
    )
    limit = 1 - goal.noise if goal.more else 1 + goal.noise
    worse = [load for load, ratio in found.items() if (ratio.median < limit) == goal.more]
    good = [load for load in found if load not in worse]
    side = "at least" if goal.more else "at most"
    return Verdict(
        claim=f"D2LPM (Q^w = {DEFAULT}) has {side} the {what} of {other} on every workload",
        paper=paper,
        ours=in_words(found),
        holds="holds" if not worse else "holds only if" if good else "does not hold",
        why=f"not on {', '.join(worse)}" if worse else "",
    )


def blocked_s(outcome: Outcome) -> float | None:
    """Seconds in which workers waited for a central scheduler's answer; None without one."""
    central = outcome.summary.get("central")
    return float(central["blocked_s"]) if central else None


STUDY = Study(
    title="Throughput against fairness, every router on every kind of workload",
    source="beyond the papers: four engines",
    shows="throughput against fairness and waits, of each router and D2LPM's worker quanta",
    takes="quick 4 s; full 7 min",
    cases=cases,
    measures={**MEASURES, "throughput": throughput, "blocked_s": blocked_s},
    panels=[
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
    ],
    judge=judge,
    choices=(
        "Workloads and engines as in `pareto`, with four times the rate, for 120 s. Mooncake's and "
        "Azure's times are recorded: Mooncake has its full lengths here (prompts above 39,000 tokens "
        "are rejected), Azure the first 480 s, whose second half is heavy."
    ),
)

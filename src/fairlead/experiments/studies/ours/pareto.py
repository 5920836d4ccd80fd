"""Every scheduler on every kind of workload, on one engine: throughput against fairness."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.experiments.studies.ours.contention import (
    LOADS,
    contended,
    gap_over_bound,
    light_p99_s,
    worst_gap,
)
from fairlead.experiments.study.dominance import Goal, dominators
from fairlead.experiments.study.measures import hit_rate, jain_client, jain_system, throughput
from fairlead.experiments.study.panel import Panel
from fairlead.experiments.study.results import Interval, Label, Results, interval_of
from fairlead.experiments.study.study import Case, Holds, Study, Verdict

# The smallest of them, the product's default, and two more.
QUANTA = (1_024, 4_096, 16_384, 65_536)
DEFAULT = 4_096
SCHEDULERS: Mapping[str, Mapping[str, Any]] = {
    "fcfs": {"scheduler": "fcfs"},
    "rpm (30/min)": {"scheduler": "rpm", "rpm_limit": 30, "rpm_window_us": 60_000_000},
    "lcf": {"scheduler": "lcf"},
    "vtc": {"scheduler": "vtc"},
    "vtc-predict": {"scheduler": "vtc-predict"},
    "drr": {"scheduler": "drr"},
    "lpm": {"scheduler": "lpm"},
    "lpm (fcfs above 128)": {"scheduler": "lpm", "fallback": 128},
    "preble-groups": {"scheduler": "preble-groups"},
}
QUICK_LOADS = ("judge-s1", "chat")
QUICK_SCHEDULERS = ("fcfs", "vtc", "lpm")
QUICK_S = 100

GOALS = (
    Goal(metric="throughput"),
    Goal(metric="jain_system"),
    Goal(metric="light_p99_s", more=False, noise=0.1),
)
MEASURES = {
    "throughput": throughput,
    "hit_rate": hit_rate,
    "jain_system": jain_system,
    "jain_client": jain_client,
    "light_p99_s": light_p99_s,
    "gap": worst_gap,
    "gap_over_bound": gap_over_bound,
}


def cases(quick: bool) -> Sequence[Case]:
    """A run for each scheduler, quantum and workload."""
    loads = QUICK_LOADS if quick else tuple(LOADS)
    schedulers = QUICK_SCHEDULERS if quick else tuple(SCHEDULERS)
    duration_s = QUICK_S if quick else None
    found: list[Case] = []
    for load in loads:
        for name in schedulers:
            labels: Mapping[str, Label] = {"policy": name, "quantum": 0}
            found.append(contended(load, labels, SCHEDULERS[name], duration_s=duration_s))
        for quantum in QUANTA:
            labels = {"policy": "dlpm", "quantum": quantum}
            settings = {"scheduler": "dlpm", "quantum": quantum}
            found.append(contended(load, labels, settings, duration_s=duration_s))
    return found


def policies(results: Results) -> list[dict[str, Label]]:
    """Each policy's labels, in the order of the rows."""
    pairs = dict.fromkeys((row["policy"], row["quantum"]) for row in results.rows)
    return [
        {"policy": policy, "quantum": quantum}
        for policy, quantum in pairs
        if policy is not None and quantum is not None
    ]


def name_of(labels: Mapping[str, Label]) -> str:
    """dlpm 4096, vtc."""
    return " ".join(str(label) for label in labels.values() if label)


def ratios(
    results: Results, metric: str, over: Mapping[str, Label], under: Mapping[str, Label]
) -> dict[str, Interval]:
    """By workload, where both have a value."""
    found = {}
    for load in results.labels("workload"):
        tops = results.values(metric, workload=load, **over)
        bottoms = results.values(metric, workload=load, **under)
        pairs = [tops[seed] / bottoms[seed] for seed in tops if bottoms.get(seed)]
        if pairs:
            found[str(load)] = interval_of(pairs)
    return found


def in_words(ratios: Mapping[str, Interval]) -> str:
    """The median, and the least and the most with their workloads."""
    if len(ratios) == 1:
        return "".join(f"{ratio}x on {load}" for load, ratio in ratios.items())
    low = min(ratios, key=lambda name: ratios[name].median)
    high = max(ratios, key=lambda name: ratios[name].median)
    middle = interval_of(ratio.median for ratio in ratios.values()).median
    return (
        f"{middle:.2f}x in the median; {ratios[low].median:.2f}x on {low} "
        f"to {ratios[high].median:.2f}x on {high}"
    )


def judge(results: Results) -> Sequence[Verdict]:
    """DLPM against VTC and LPM, then each policy: who dominates it."""
    dlpm = [labels for labels in policies(results) if labels["policy"] == "dlpm"]
    return [
        _everywhere(results, dlpm, Goal(metric="throughput"), "vtc", "no less throughput than VTC"),
        _everywhere(
            results, dlpm, Goal(metric="jain_system"), "lpm", "no lower Jain index than LPM"
        ),
        _everywhere(
            results, dlpm, GOALS[2], "lpm", "no longer p99 waits of light clients than LPM"
        ),
        *undominated(results, GOALS),
    ]


def _everywhere(
    results: Results, dlpm: Sequence[Mapping[str, Label]], goal: Goal, other: str, what: str
) -> Verdict:
    """DLPM at its default is at least as good on every workload; if not, whether a quantum is."""
    good: list[str] = []
    said = why = ""
    holds: Holds = "does not hold"
    for labels in dlpm:
        found = ratios(results, goal.metric, labels, {"policy": other, "quantum": 0})
        worse = [load for load, ratio in found.items() if _is_worse(ratio.median, goal)]
        if not worse:
            good.append(str(labels["quantum"]))
        if labels["quantum"] == DEFAULT:
            said = in_words(found)
            holds = "does not hold" if worse else "holds"
            why = f"worse on {', '.join(worse)}" if worse else ""
    if holds != "holds" and good:
        holds, why = "holds only if", f"the quantum is {' or '.join(good)}; with {DEFAULT} {why}"
    return Verdict(
        claim=f"DLPM with a quantum of {DEFAULT} has {what} on every workload",
        paper="beyond the papers",
        ours=said,
        holds=holds,
        why=why,
    )


def _is_worse(ratio: float, goal: Goal) -> bool:
    return ratio < 1 - goal.noise if goal.more else ratio > 1 + goal.noise


def undominated(results: Results, goals: Sequence[Goal]) -> list[Verdict]:
    """A line a policy: which others dominate it, and where."""
    by_load = {
        str(load): Results([row for row in results.rows if row["workload"] == load])
        for load in results.labels("workload")
    }
    among = policies(results)
    return [_of_one(by_load, goals, one, among) for one in among]


def _of_one(
    by_load: Mapping[str, Results],
    goals: Sequence[Goal],
    one: Mapping[str, Label],
    among: Sequence[Mapping[str, Label]],
) -> Verdict:
    by: dict[str, list[str]] = {}
    where: dict[str, None] = {}
    for load, here in by_load.items():
        for labels in dominators(here, goals, one, among):
            by.setdefault(name_of(labels), []).append(load)
            where[load] = None
    most = sorted(by, key=lambda name: -len(by[name]))
    return Verdict(
        claim=f"nobody dominates {name_of(one)} on any workload",
        paper="beyond the papers",
        ours="by nobody"
        if not by
        else "by " + "; ".join(f"{name} on {len(by[name])}" for name in most),
        holds="does not hold" if by else "holds",
        why=f"dominated on {len(where)} of {len(by_load)}: {', '.join(where)}" if by else "",
    )


X_LABEL = "throughput, share of the best policy's"
STUDY = Study(
    title="Throughput against fairness, every scheduler on every kind of workload",
    source="beyond the papers: one engine",
    shows="throughput against fairness and waits, of each scheduler and DLPM's quanta",
    takes="quick 4 s; full 3 min",
    cases=cases,
    measures=MEASURES,
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
        "One A10G with Llama-3.1-8B (39,000 tokens of KV; for whole documents Llama-3.2-3B with "
        "129,000), ideal host. In each workload one client (of ServeGen two, of the agents nobody in "
        "particular) asks for two to five times its share, the others for 60 to 90 % of theirs; "
        "capacities were measured by saturation. Lengths of Mooncake and ServeGen are divided by 4, "
        "of agents by 16. Waits count who is never served. One policy dominates another on a workload "
        "if throughput, Jain's index (system view) and light clients' p99 are no worse in the "
        "median and one is better, beyond 2 % (waits 10 %), and the better one worse in no seed. DLPM, DRR "
        "and Preble pass over 32 misfits a look at most; the others stop at the first."
    ),
)

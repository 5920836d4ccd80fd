"""Every scheduler on every kind of workload, on one engine: throughput against fairness."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairhit_lab.studies.ours.comparing import (
    BEYOND,
    GOALS,
    MEASURES,
    failed_on,
    frontiers,
    in_words,
    is_worse,
    kept_on,
    on_all,
    policies,
    ran_all,
    ratios,
    seeds_of,
    undominated,
)
from fairhit_lab.studies.ours.contention import LOADS, contended
from fairhit_lab.studies.ours.variants import ALONE
from fairhit_lab.studies.shared.dominance import Goal
from fairhit_lab.studies.shared.results import Label, Results
from fairhit_lab.studies.shared.study import Case, Holds, Study, Verdict

# The smallest of them, the product's default, and two more.
QUANTA = (1_024, 4_096, 16_384, 65_536)
DEFAULT = 4_096
SCHEDULERS: Mapping[str, Mapping[str, Any]] = {
    "fcfs": {"scheduler": "fcfs"},
    "rpm (30/min)": {"scheduler": "rpm", "rpm_limit": 30, "rpm_window_us": 60_000_000},
    "lcf": {"scheduler": "lcf"},
    "vtc": {"scheduler": "vtc"},
    "vtc (skip)": {"scheduler": "vtc", "misfit": "skip"},
    "vtc-predict": {"scheduler": "vtc-predict"},
    "vtc-oracle": {"scheduler": "vtc-oracle"},
    "vtc-noisy": {"scheduler": "vtc-noisy"},
    "drr": {"scheduler": "drr"},
    "lpm": {"scheduler": "lpm"},
    "lpm (to 128)": {"scheduler": "lpm", "fallback": 128},
    "preble-groups": {"scheduler": "preble-groups"},
}
# Variants of DLPM with its default quantum: name here -> name in `variants`.
VARIANTS = {
    "dlpm (stop)": "misfit stop",
    "dlpm (ageing)": "ageing 4096",
    "dlpm (input)": "charge input",
    "dlpm-predict": "predicted outputs",
}
QUICK_LOADS = ("judge-s1", "chat")
QUICK_SCHEDULERS = ("fcfs", "vtc", "lpm")
QUICK_S = 100
THROUGHPUT, JAIN, LIGHT = GOALS
LCF: Mapping[str, Label] = {"policy": "lcf", "quantum": 0}
VTC: Mapping[str, Label] = {"policy": "vtc", "quantum": 0}


def cases(quick: bool) -> Sequence[Case]:
    """A run for each scheduler, quantum, variant and workload."""
    duration_s = QUICK_S if quick else None
    found: list[Case] = []

    def add(load: str, policy: str, quantum: int, settings: Mapping[str, Any]) -> None:
        labels: Mapping[str, Label] = {"policy": policy, "quantum": quantum}
        found.append(contended(load, labels, settings, duration_s=duration_s))

    for load in QUICK_LOADS if quick else LOADS:
        for name in QUICK_SCHEDULERS if quick else SCHEDULERS:
            add(load, name, 0, SCHEDULERS[name])
        for quantum in QUANTA:
            add(load, "dlpm", quantum, {"scheduler": "dlpm", "quantum": quantum})
        for name, variant in {} if quick else VARIANTS.items():
            add(load, name, DEFAULT, ALONE[variant])
    return found


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on DLPM against VTC and LPM, on dominance, and on VTC's lift."""
    if not ran_all(results, tuple(LOADS)):
        return undominated(results, GOALS)
    return [
        _everywhere(results, THROUGHPUT, "vtc", "no less throughput than VTC"),
        _everywhere(results, JAIN, "lpm", "no lower Jain index than LPM"),
        _everywhere(results, LIGHT, "lpm", "no longer p99 waits of light clients than LPM"),
        *undominated(results, GOALS),
        *_without_the_lift(results),
    ]


def _everywhere(results: Results, goal: Goal, other: str, what: str) -> Verdict:
    """The verdict on DLPM at its default quantum on every workload; "holds only if" another quantum is."""
    good: list[str] = []
    said = why = ""
    holds: Holds = "not comparable"
    for labels in policies(results):
        if labels["policy"] != "dlpm":
            continue
        found = ratios(results, goal.metric, labels, {"policy": other, "quantum": 0})
        _, bad, none = kept_on(found, lambda ratio: not is_worse(ratio, goal))
        if not bad and not none:
            good.append(str(labels["quantum"]))
        if labels["quantum"] == DEFAULT:
            said = in_words(found, seeds_of(results))
            holds = "does not hold" if bad else "not comparable" if none else "holds"
            why = failed_on("worse", bad, none)
    if holds == "does not hold" and good:
        holds, why = "holds only if", f"the quantum is {' or '.join(good)}; with {DEFAULT} {why}"
    count = len(results.labels("workload"))
    return Verdict(
        claim=f"DLPM with a quantum of {DEFAULT} has {what} on all {count} workloads",
        paper=BEYOND,
        ours=said,
        holds=holds,
        why=why,
    )


def _without_the_lift(results: Results) -> list[Verdict]:
    """Verdicts on LCF, which is VTC without the lift: its gain and its price.

    Both charge the same, so their gaps can be compared.
    """
    if not {"lcf", "vtc"} <= set(results.labels("policy")):
        return []
    seeds = seeds_of(results)
    waits = on_all(
        claim="LCF, VTC without its lift, has no longer p99 waits of light clients than VTC",
        paper=BEYOND,
        found=ratios(results, LIGHT.metric, LCF, VTC),
        goal=LIGHT,
        seeds=seeds,
    )
    gaps = on_all(
        claim="LCF lets two waiting clients drift no further apart than VTC (largest gap)",
        paper="VTC: without the lift no bound",
        found=ratios(results, "gap", LCF, VTC),
        goal=Goal(metric="gap", more=False, noise=0.1),
        seeds=seeds,
    )
    return [waits, gaps]


STUDY = Study(
    title="Throughput against fairness, every scheduler on every kind of workload",
    source="beyond the papers: one engine",
    shows="throughput against fairness and waits, of each scheduler, DLPM's quanta and variants",
    takes="quick 4 s; full 5 min",
    cases=cases,
    measures=MEASURES,
    panels=frontiers(),
    judge=judge,
    choices=(
        "One A10G with Llama-3.1-8B (39,000 tokens of KV; for whole documents Llama-3.2-3B with "
        "129,000), ideal host. In each workload one client (of ServeGen two, of the agents none in "
        "particular) asks for two to five times its share, the others for 60 to 90 % of theirs; "
        "capacities were measured by saturation. Lengths of Mooncake and ServeGen are divided by 4, "
        "of agents by 16. Waits include requests never served. One policy dominates another on a workload "
        "if throughput, Jain's index (system view) and light clients' p99 are no worse in the "
        "median and one is better, beyond 2 % (waits 10 %), and the better one worse in no seed. "
        "A pass of DLPM, DRR and Preble skips up to 32 requests that do not fit, as the core does by "
        "itself; the others stop at the first, as their papers do. `vtc (skip)` is VTC with the passes of "
        "DLPM. `dlpm (stop)` is DLPM that stops at the first of them, as vLLM and SGLang make it. "
        "`dlpm (ageing)` serves a request first that its own client has overtaken by 4096 tokens of "
        "service, `dlpm (input)` charges cached prompts too, `dlpm-predict` charges expected outputs at "
        "admission; all with Q^u 4096. `lpm (to 128)` becomes FCFS while more than 128 wait, as in SGLang. "
        "`vtc-oracle` knows the outputs' lengths, `vtc-noisy` errs by up to half. "
        "LCF differs from VTC by the lift alone: light clients come and go, and keep what they did "
        "not use meanwhile. No heavy client is ever away here, whose return is what LCF makes others pay for "
        "(`vtc-fig10`)."
    ),
)

"""Every policy on every kind of workload: throughput against fairness, on one engine and on four."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairhit_lab.studies.ours.comparing import (
    BEYOND,
    GOALS,
    MEASURES,
    could_be,
    failed_on,
    in_words,
    kept_on,
    merged_path,
    no_worse,
    on_all,
    ran_all,
    ratios,
    seeds_of,
    so_many,
)
from fairhit_lab.studies.ours.contention import LOADS, contended
from fairhit_lab.studies.ours.variants import ALONE, ENGINES, FLEET, FULL_S, WORKER_QUANTUM
from fairhit_lab.studies.shared.claims import limited
from fairhit_lab.studies.shared.dominance import Goal, Labels, dominations
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Label, Results
from fairhit_lab.studies.shared.study import Case, Holds, Outcome, Study, Verdict

THROUGHPUT, JAIN, LIGHT = GOALS
# Name of a policy, its quantum (0: has none), settings of the simulator.
Policy = tuple[str, int, Mapping[str, Any]]

# ---- one engine

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
LCF: Labels = {"policy": "lcf", "quantum": 0}
VTC: Labels = {"policy": "vtc", "quantum": 0}


def _schedulers(quick: bool) -> list[Policy]:
    """The schedulers, DLPM's quanta and its variants; few of them in a quick run."""
    named = ("fcfs", "vtc", "lpm") if quick else SCHEDULERS
    variants = {} if quick else VARIANTS
    return [
        *((name, 0, SCHEDULERS[name]) for name in named),
        *(("dlpm", quantum, {"scheduler": "dlpm", "quantum": quantum}) for quantum in QUANTA),
        *((name, DEFAULT, ALONE[variant]) for name, variant in variants.items()),
    ]


def cases(quick: bool) -> Sequence[Case]:
    """A run for each scheduler, quantum, variant and workload."""
    return [
        contended(load, _of(name, quantum), settings, duration_s=100 if quick else None)
        for load in (("judge-s1", "chat") if quick else LOADS)
        for name, quantum, settings in _schedulers(quick)
    ]


def _judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on DLPM against VTC and LPM, on dominance, and on LCF, which is VTC without its lift.

    LCF and VTC charge the same, so their gaps can be compared.
    """
    return [
        _everywhere(results, THROUGHPUT, "vtc", "no less throughput than VTC"),
        _everywhere(results, JAIN, "lpm", "no lower Jain index than LPM"),
        _everywhere(results, LIGHT, "lpm", "no longer p99 waits of light clients than LPM"),
        *_undominated(results),
        on_all(
            results,
            LIGHT.metric,
            LCF,
            VTC,
            no_worse(LIGHT),
            claim="LCF, VTC without its lift, has no longer p99 waits of light clients than VTC",
        ),
        on_all(
            results,
            "gap",
            LCF,
            VTC,
            no_worse(Goal(metric="gap", more=False, noise=0.1)),
            claim="LCF lets two waiting clients drift no further apart than VTC (largest gap)",
            paper="VTC: without the lift no bound",
        ),
    ]


def _everywhere(results: Results, goal: Goal, other: str, what: str) -> Verdict:
    """The verdict on DLPM at its default quantum on every workload; the condition may be another quantum."""
    good: list[str] = []
    said = why = ""
    holds: Holds = "not comparable"
    for labels in _policies(results):
        if labels["policy"] != "dlpm":
            continue
        found = ratios(results, goal.metric, labels, {"policy": other, "quantum": 0})
        _, bad, none = kept_on(found, no_worse(goal))
        if not bad and not none:
            good.append(str(labels["quantum"]))
        if labels["quantum"] == DEFAULT:
            said = in_words(found, seeds_of(results))
            holds = "does not hold" if bad else "not comparable" if none else "holds"
            why = failed_on("worse", bad, none)
    if holds == "does not hold" and good:
        holds, why = (
            "holds under conditions only",
            f"the quantum is {' or '.join(good)}; with {DEFAULT} {why}",
        )
    count = len(results.labels("workload"))
    verdict = Verdict(
        claim=f"DLPM with a quantum of {DEFAULT} has {what} on all {count} workloads",
        paper=BEYOND,
        ours=said,
        holds=holds,
        why=why,
    )
    could = could_be(results, goal.metric, _of("dlpm", DEFAULT), _of(other, 0))
    return limited(verdict, {load: (reach, no_worse(goal)) for load, reach in could.items()})


# ---- four engines

QUICK_FLEET_S = 60
WORKER_QUANTA = (4_096, 16_384, 65_536)
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
    "central-fair": {"scheduler": "fair", "router": "central-fair"},
}
# Of D2LPM at its default over another system: that system, the goal, the paper's number.
AGAINST: Sequence[tuple[str, Goal, str]] = (
    ("vtc (client round robin)", THROUGHPUT, "up to 2.87x"),
    ("rr+lpm", THROUGHPUT, "up to 2.22x"),
    ("preble", THROUGHPUT, "at least 1x, but for one case"),
    ("rr+lpm", JAIN, "above 1x"),
    ("preble", JAIN, "above 1x"),
    ("preble", LIGHT, "down to 1/7.18x"),
    ("rr+lpm", LIGHT, "down to 1/9.55x"),
)
NAMED = {THROUGHPUT: "throughput", JAIN: "Jain's index", LIGHT: "light clients' p99 wait"}


def _systems(quick: bool) -> list[Policy]:
    """The systems, and D2LPM with each worker quantum and charge; few of them in a quick run."""
    d2lpm = {"scheduler": "dlpm", "router": "d2lpm"}
    named = ("rr+lpm", "vtc (client round robin)", "preble") if quick else SYSTEMS
    return [
        *((name, 0, SYSTEMS[name]) for name in named),
        *(
            (name, quantum, {**d2lpm, "worker_quantum": quantum, **CHARGES[name]})
            for name in (("d2lpm",) if quick else CHARGES)
            for quantum in WORKER_QUANTA
        ),
    ]


def fleet_cases(quick: bool) -> Sequence[Case]:
    """A run for each system, worker quantum, charge and workload."""
    duration_s = QUICK_FLEET_S if quick else FULL_S
    return [
        contended(load, _of(name, quantum), settings, engines=ENGINES, duration_s=duration_s)
        for load in (("judge-s1",) if quick else LOADS)
        for name, quantum, settings in _systems(quick)
    ]


def _judge_fleet(results: Results) -> Sequence[Verdict]:
    """Verdicts on D2LPM against the paper's systems on every workload, and on dominance."""
    against = [
        on_all(
            results,
            goal.metric,
            _of("d2lpm", WORKER_QUANTUM),
            _of(other, 0),
            no_worse(goal),
            claim=f"D2LPM (Q^w = {WORKER_QUANTUM}) has {'at least' if goal.more else 'at most'} the "
            f"{NAMED[goal]} of {other}",
            paper=paper,
        )
        for other, goal, paper in AGAINST
    ]
    return [*against, *_undominated(results)]


def blocked_s(outcome: Outcome) -> float | None:
    """Seconds in which engines waited for a central scheduler's answer; None without a central scheduler."""
    central = outcome.summary.get("central")
    return float(central["blocked_s"]) if central else None


# ---- both


def _of(policy: str, quantum: int) -> dict[str, Label]:
    return {"policy": policy, "quantum": quantum}


def _policies(results: Results) -> list[dict[str, Label]]:
    """The labels of each policy, in the order of the rows."""
    pairs = dict.fromkeys((row["policy"], row["quantum"]) for row in results.rows)
    return [
        {"policy": policy, "quantum": quantum}
        for policy, quantum in pairs
        if policy is not None and quantum is not None
    ]


def _name_of(labels: Mapping[str, Label]) -> str:
    """The name of a policy with its quantum: dlpm 4096, vtc."""
    return " ".join(str(label) for label in labels.values() if label)


def _undominated(results: Results) -> list[Verdict]:
    """A verdict per policy, with the policies that dominate it and the number of workloads."""
    among = _policies(results)
    found = dominations(results, GOALS, "workload", among)
    loads = [str(load) for load in results.labels("workload")]
    verdicts = []
    for place, one in enumerate(among):
        by = {other: on for (other, of), on in found.items() if of == place}
        most = sorted(by, key=lambda other: -len(by[other]))
        where = [load for load in loads if any(load in on for on in by.values())]
        shown = "; ".join(f"{_name_of(among[other])} on {len(by[other])}" for other in most)
        verdicts.append(
            Verdict(
                claim=f"no other policy dominates {_name_of(one)} on any of {so_many(results)}",
                paper=BEYOND,
                ours=f"by {shown}" if by else "by none",
                holds="does not hold" if by else "holds",
                why=f"dominated on {len(where)} of {len(loads)}: {', '.join(where)}" if by else "",
                least=0,
                greatest=len(loads),
            )
        )
    return verdicts


def _where_all_ran(
    judge: Callable[[Results], Sequence[Verdict]],
) -> Callable[[Results], Sequence[Verdict]]:
    """The judge of a full run; a quick run, without all workloads, answers for dominance alone."""
    return lambda results: (
        judge(results) if ran_all(results, tuple(LOADS)) else _undominated(results)
    )


X_LABEL = "throughput, share of the best policy's"
PANELS = (
    merged_path(
        "Fairness (medians over the workloads)",
        "jain_system",
        "Jain's index of service, share of the best",
        x_label=X_LABEL,
    ),
    merged_path(
        "Light clients' waits (medians over the workloads)",
        "light_p99_s",
        "p99 wait of light clients, times the shortest",
        x_label=X_LABEL,
        best={"throughput": "most", "light_p99_s": "least"},
        log_y=True,
        zero=True,
    ),
    Panel(
        title="Who dominates whom: on how many workloads the line's policy dominates the column's",
        form="table",
        hue="policy",
        over="workload",
        columns=[goal.metric for goal in GOALS],
        goals=GOALS,
    ),
)

STUDIES = {
    "pareto": Study(
        whose="ours",
        title="Throughput against fairness, every scheduler on every kind of workload",
        source="beyond the papers: one engine",
        shows="throughput against fairness and waits, of each scheduler, DLPM's quanta and variants",
        takes="quick 4 s; full 70 s",
        cases=cases,
        measures=MEASURES,
        panels=PANELS,
        judge=_where_all_ran(_judge),
        choices=(
            "One A10G with Llama-3.1-8B (39,000 tokens of KV; for whole documents Llama-3.2-3B "
            "with 129,000), ideal host. In each workload one client (of ServeGen two, of the "
            "agents none in particular) asks for two to five times its share, the others for 60 "
            "to 90 % of theirs; capacities were measured by saturation. Lengths of Mooncake and "
            "ServeGen are divided by 4, of agents by 16. Waits include requests never served. "
            "One policy dominates another on a workload if throughput, Jain's index (system "
            "view) and light clients' p99 are no worse in the median and one is better, beyond "
            "2 % (waits 10 %), and the better one worse in no seed. A pass of DLPM, DRR and "
            "Preble skips up to 32 requests that do not fit, as the core does by itself; the "
            "others stop at the first, as their papers do. `vtc (skip)` is VTC with the passes "
            "of DLPM. `dlpm (stop)` is DLPM that stops at the first of them, as vLLM and SGLang "
            "make it. `dlpm (ageing)` serves a request first that its own client has overtaken "
            "by 4096 tokens of service, `dlpm (input)` charges cached prompts too, "
            "`dlpm-predict` charges expected outputs at admission; all with Q^u 4096. `lpm (to "
            "128)` becomes FCFS while more than 128 wait, as in SGLang. `vtc-oracle` knows the "
            "outputs' lengths, `vtc-noisy` errs by up to half. LCF differs from VTC by the lift "
            "alone: light clients come and go, and keep what they did not use meanwhile. No "
            "heavy client is ever away here, whose return is what LCF makes others pay for "
            "(`vtc-fig10`)."
        ),
    ),
    "pareto-fleet": Study(
        whose="ours",
        title="Throughput against fairness, every router on every kind of workload",
        source="beyond the papers: four engines",
        shows="throughput against fairness and waits, of each router, D2LPM's worker quanta and charges",
        takes="quick 4 s; full 2 min",
        cases=fleet_cases,
        measures={**MEASURES, "blocked_s": blocked_s},
        panels=PANELS,
        judge=_where_all_ran(_judge_fleet),
        choices=(
            "Workloads and engines as in `pareto`, with four times the rate, for 120 s. "
            "Mooncake's and Azure's times are recorded: Mooncake has its full lengths here "
            "(prompts above 39,000 tokens are rejected), Azure the first 480 s, whose second "
            "half is heavy. `d2lpm (extend)` charges a dispatch only for what is to be "
            "computed, `d2lpm` for the whole prompt, as the paper does."
        ),
    ),
}

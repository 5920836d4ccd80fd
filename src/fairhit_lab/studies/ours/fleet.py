"""The gateway's queue before many engines, against routers and central queues: throughput, shares, waits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairhit_lab.studies.dlpm.shared import PREBLE_BY_THRESHOLD
from fairhit_lab.studies.ours.comparing import (
    BEYOND,
    MEASURES,
    could_be,
    merged_path,
    ratios,
    target,
)
from fairhit_lab.studies.ours.contention import LOADS, contended, light_share
from fairhit_lab.studies.shared.claims import Rule, could_show
from fairhit_lab.studies.shared.dominance import Goal, dominations
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Label, Results
from fairhit_lab.studies.shared.study import Case, Study, Verdict

STOCK, PLUG_IN = "fleet", "fleet + plug-in"
CENTRAL = "central-fair"
# Simulators with one view of the whole queue for each engine; they know each engine's memory at once.
CENTRALS: Mapping[str, Mapping[str, Any]] = {
    "central-dlpm": {"scheduler": "dlpm", "router": "central-dlpm"},
    CENTRAL: {"scheduler": "fair", "router": CENTRAL},
}
FLEETS: Mapping[str, Mapping[str, Any]] = {
    STOCK: {"scheduler": "fair", "router": "fleet"},
    PLUG_IN: {"scheduler": "fair", "router": "fleet", "engine_scheduler": "fair"},
}
EXTEND = {"worker_quantum": 65_536, "worker_charge": "extend"}
ROUTERS: Mapping[str, Mapping[str, Any]] = {
    "preble": {"scheduler": "preble-groups", "router": "preble"},
    "d2lpm": {"scheduler": "dlpm", "router": "d2lpm"},
    "d2lpm (extend)": {"scheduler": "dlpm", "router": "d2lpm", **EXTEND},
}
OVERDRAFT: Mapping[str, Mapping[str, Any]] = {
    "d2lpm (overdraft)": {
        "scheduler": "dlpm", "router": "d2lpm", **EXTEND, "worker_overdraft": 65_536
    },
}  # fmt: skip
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "threshold": PREBLE_BY_THRESHOLD,
    "rr+lpm": {"scheduler": "lpm", "router": "round-robin"},
    "vtc (client round robin)": {"scheduler": "vtc", "router": "client-round-robin"},
    "fcfs (least loaded)": {"scheduler": "fcfs", "router": "least-loaded"},
}
SYSTEMS = {**ROUTERS, **CENTRALS, **FLEETS}
FEW_LOADS: Sequence[str] = ("tot-s1", "judge-s1", "chat")
AT_ONCE = {**ROUTERS, **FLEETS}
# Host and engines; the systems and workloads that are run there, and the seconds of arrivals.
POINTS: Mapping[
    tuple[str, int], tuple[Mapping[str, Mapping[str, Any]], Sequence[str], int]
] = {
    ("ideal", 4): ({**SYSTEMS, **OVERDRAFT, **OTHERS}, tuple(LOADS), 120),
    ("sglang", 4): ({**AT_ONCE, **OVERDRAFT}, tuple(LOADS), 120),
    ("vllm", 4): (AT_ONCE, FEW_LOADS, 120),
    ("ideal", 16): (SYSTEMS, tuple(LOADS), 60),
    ("ideal", 64): ({**AT_ONCE, CENTRAL: CENTRALS[CENTRAL]}, tuple(LOADS), 30),
}  # fmt: skip
QUICK_LOADS, QUICK_S = ("judge-s1",), 30

THROUGHPUT, SHARE = Goal(metric="throughput"), Goal(metric="light_share")
WAIT = Goal(metric="light_p99_s", more=False, noise=0.1)
GOALS = (THROUGHPUT, SHARE, WAIT)
OF_BEST, TIMES_WAIT, NEAR_SHARE = 0.95, 1.1, 0.02


def cases(quick: bool) -> Sequence[Case]:
    """Each system on each workload, host and number of engines."""
    return [
        contended(
            load,
            {"host": host, "engines": engines, "policy": name, "workload": load},
            {**settings, "host": host},
            engines=engines,
            duration_s=QUICK_S if quick else duration_s,
        )
        for (host, engines), (systems, loads, duration_s) in POINTS.items()
        if engines == 4 or not quick
        for load in (QUICK_LOADS if quick else loads)
        for name, settings in systems.items()
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """The targets, for each kind of fleet and each point."""
    verdicts = []
    for host, engines in POINTS:
        rows = [row for row in results.rows if (row["host"], row["engines"]) == (host, engines)]
        if rows:
            where = f"{engines} engines, host {host}"
            here = replace(results, rows=rows)
            verdicts += [each for fleet in FLEETS for each in _targets(here, fleet, where)]
    return verdicts


def _targets(results: Results, fleet: str, where: str) -> list[Verdict]:
    loads = [str(load) for load in results.labels("workload")]
    systems = [str(policy) for policy in results.labels("policy")]

    def to(metric: str, other: str) -> dict[str, float]:
        found = ratios(results, metric, {"policy": fleet}, {"policy": other})
        return {load: each.median for load, each in found.items()}

    def could(other: str, metric: str) -> dict[str, Rule]:
        return could_be(results, metric, {"policy": fleet}, {"policy": other})

    others = [name for name in systems if name not in FLEETS]
    to_best = {load: min(to("throughput", name)[load] for name in others) for load in loads}
    verdicts = [
        _undominated(results, fleet, where, others),
        target(
            f"{where}: {fleet} has at least {OF_BEST} of the best throughput",
            to_best,
            Rule(low=OF_BEST),
            {
                load: could_show(0, min(could(name, "throughput")[load].high for name in others))
                for load in loads
            },
        ),
    ]
    for central in (name for name in CENTRALS if name in systems):
        verdicts += [
            target(
                f"{where}: light clients' p99 wait under {fleet} is at most {TIMES_WAIT} of {central}'s",
                to("light_p99_s", central),
                Rule(high=TIMES_WAIT),
                could(central, "light_p99_s"),
            ),
            _shares(results, fleet, where, central),
        ]
    return verdicts


def _shares(results: Results, fleet: str, where: str, central: str) -> Verdict:
    """The verdict on the worst light client's share of its entitlement, beside that under `central`."""
    fleets, centrals = (
        {
            str(load): results.interval("light_share", workload=load, policy=name).median
            for load in results.labels("workload")
        }
        for name in (fleet, central)
    )
    return target(
        f"{where}: the worst light client has under {fleet} at most {NEAR_SHARE} less of its "
        f"entitlement than under {central}",
        fleets,
        {load: Rule(low=share - NEAR_SHARE) for load, share in centrals.items()},
        {},  # a light client has more than its part where a heavy one has less
    )


def _undominated(results: Results, fleet: str, where: str, others: Sequence[str]) -> Verdict:
    """The verdict on others that are as good as the fleet in all goals and better in one."""
    among = [{"policy": name} for name in (fleet, *others)]
    found = dominations(results, GOALS, "workload", among)
    by = {others[one - 1]: on for (one, other), on in found.items() if other == 0}
    shown = "; ".join(f"by {name} on {', '.join(map(str, on))}" for name, on in by.items())
    return Verdict(
        claim=f"{where}: none of {', '.join(others)} dominates {fleet} on any workload",
        paper=BEYOND,
        ours=shown or "by none",
        holds="does not hold" if by else "holds",
        why=shown,
        least=0,
        greatest=len(results.labels("workload")),
    )


def _panels(host: str, engines: int) -> list[Panel]:
    where = {"host": host, "engines": engines}
    said = f"{engines} engines, {host}"
    return [
        merged_path(
            f"Share of entitlement: {said}", "light_share",
            "worst light client's share of its entitlement",
            where=where, best={"throughput": "most"},
        ),
        merged_path(
            f"Light clients' waits: {said}", "light_p99_s",
            "p99 wait of light clients, times the shortest",
            where=where, best={"throughput": "most", "light_p99_s": "least"}, log_y=True,
        ),
    ]  # fmt: skip


# ---- what the memory that engines report is worth, and a hold for the engine with the prompt

ABLATION_HOSTS = ("ideal", "sglang")
# Seconds of the longest hold: none, one that long prompts exceed, and the default.
NO_HOLD, SHORT_HOLD, HOLD = 0, 2, 16
HOLDS = (NO_HOLD, SHORT_HOLD, HOLD)
REPORTS = ("load", "memory")


def _ablation(label: str, setting: str, values: Mapping[Label, Any], quick: bool) -> Sequence[Case]:
    """Both fleets before four engines, with each value of a setting, shown as `label`."""
    return [
        contended(
            load,
            {"host": host, "policy": name, label: shown, "workload": load},
            {**FLEETS[name], "host": host, setting: value},
            engines=4,
            duration_s=QUICK_S if quick else 120,
        )
        for host in ABLATION_HOSTS
        for load in (QUICK_LOADS if quick else LOADS)
        for name in FLEETS
        for shown, value in values.items()
    ]


def memory_cases(quick: bool) -> Sequence[Case]:
    """Engines that report load and memory, or their load alone."""
    return _ablation("reports", "engine_reports", {each: each for each in REPORTS}, quick)


def hold_cases(quick: bool) -> Sequence[Case]:
    """Requests held for the engine with their prompt, for so many seconds at most."""
    values: dict[Label, int] = {each: each * 1_000_000 for each in HOLDS}
    return _ablation("longest_hold_s", "max_hold_us", values, quick)


def judge_memory(results: Results) -> Sequence[Verdict]:
    """How throughput and light clients' waits change with the report of memory."""
    return _gains(results, "reports", REPORTS, "where engines report their memory")


def judge_hold(results: Results) -> Sequence[Verdict]:
    """How throughput and light clients' waits change with the default hold."""
    return _gains(results, "longest_hold_s", (NO_HOLD, HOLD), f"with holds of up to {HOLD} s")


def _gains(results: Results, label: str, values: tuple[Label, Label], where: str) -> list[Verdict]:
    """Whether the second value of a label is no worse than the first, for each fleet and host."""

    def gain(metric: str, host: str, fleet: str, claim: str, rule: Rule) -> Verdict:
        without, given = ({"host": host, "policy": fleet, label: each} for each in values)
        found = {
            load: each.median for load, each in ratios(results, metric, given, without).items()
        }
        return target(claim, found, rule, could_be(results, metric, given, without))

    return [
        gain(metric, host, fleet, f"host {host}: {fleet} has {what} {where}", rule)
        for host in ABLATION_HOSTS
        for fleet in FLEETS
        for metric, what, rule in (
            ("throughput", "no less throughput, within 2 %,", Rule(low=0.98)),
            (
                "light_p99_s",
                "p99 waits of light clients at most 1.1 as long",
                Rule(high=TIMES_WAIT),
            ),
        )
    ]


def _bars(label: str) -> list[Panel]:
    return [
        Panel(
            title=f"{title}: {fleet}, {host}",
            form="bars",
            x="workload",
            y=metric,
            hue=label,
            where={"host": host, "policy": fleet},
            y_label=unit,
            log_y=True,
        )
        for host in ABLATION_HOSTS
        for fleet in FLEETS
        for title, metric, unit in (
            ("Throughput", "throughput", "service tokens/s, client view"),
            ("Light clients' waits", "light_p99_s", "s, p99 to the first token"),
        )
    ]


_FLEET = Study(
    whose="ours",
    title="The gateway's queue before 4, 16 and 64 engines",
    source="beyond the papers: many engines, late binding",
    shows="throughput, entitlement and waits of the gateway's queue, of routers and of central queues",
    takes="quick 8 s; full 20 min",
    cases=cases,
    measures={**MEASURES, "light_share": light_share},
    panels=[panel for host, engines in POINTS for panel in _panels(host, engines)],
    judge=judge,
    choices=(
        "Workloads, engines and rates as in `pareto-fleet`. `fleet` is the gateway's own queue under "
        "`fair` (`--router fleet`) before stock engines, which serve in order of arrival and report no "
        "prices; before engines with the plug-in (`fleet + plug-in`) it has the prices that they measure, "
        "and each orders the few requests that it has under `fair`. The gateway reads their load four "
        "times a second, learns their capacity, decides in 100 us and is 100 us away. Central queues know "
        "each engine's memory and cache at once, and bind requests in the scheduling pass, which no "
        "gateway can. `d2lpm` has 16,384 tokens to a worker; `d2lpm (extend)` charges computed tokens "
        "only, and has 65,536; `d2lpm (overdraft)` may exceed them by as much again for cached prompts. "
        "Arrivals last 60 s at 16 engines and 30 s at 64. On host vllm three workloads are run. A client "
        "is light if it asks for less than its share."
    ),
)

_MEMORY = Study(
    whose="ours",
    title="The gateway's queue before engines that report their memory, or their load alone",
    source="beyond the papers: four engines, late binding",
    shows="what the report of free memory is worth: throughput and waits with and without it",
    takes="quick 2 s; full 6 min",
    cases=memory_cases,
    measures={**MEASURES, "light_share": light_share},
    panels=_bars("reports"),
    judge=judge_memory,
    choices="Workloads, engines and fleets as in `fleet`, four engines.",
)

_HOLD = Study(
    whose="ours",
    title="Delay scheduling: requests held for the engine that has their prompt cached",
    source="beyond the papers: four engines, late binding",
    shows="what it is worth to hold requests for an engine: throughput and waits by the longest hold",
    takes="quick 4 s; full 8 min",
    cases=hold_cases,
    measures={**MEASURES, "light_share": light_share},
    panels=_bars("longest_hold_s"),
    judge=judge_hold,
    choices=(
        "Workloads, engines and fleets as in `fleet`, four engines. `longest_hold_s` in seconds; shorter "
        "holds are half a millisecond for each prompt token that the other engine holds."
    ),
)

STUDIES = {"fleet": _FLEET, "fleet-memory": _MEMORY, "fleet-hold": _HOLD}

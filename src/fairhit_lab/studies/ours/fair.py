"""`fair` and its parts against the other policies: 13 workloads, three hosts, the targets judged."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from fairhit.core.service import TokenCost
from fairhit_lab.studies.ours.comparing import BEYOND, MEASURES, merged_path
from fairhit_lab.studies.ours.contention import LOADS, contended, light_share
from fairhit_lab.studies.shared.dominance import Goal, dominations
from fairhit_lab.studies.shared.measures import in_summary
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Study, Verdict

HOSTS = ("ideal", "vllm", "sglang")
FAIR: Mapping[str, Any] = {"scheduler": "fair"}
BASELINES: Mapping[str, Mapping[str, Any]] = {
    "vtc": {"scheduler": "vtc"},
    "lpm": {"scheduler": "lpm"},
    "dlpm": {"scheduler": "dlpm"},
}
# What turns each part of `fair` off. All off, it is DLPM that stops at the first request that does not fit.
OFF: Mapping[str, Mapping[str, Any]] = {
    "engine cost": {"cost": TokenCost()},
    "prepaid outputs": {"prepay": "none"},
    "overdraft": {"overdraft": 0},
    "near matches": {"near": 1},
    "eviction": {"eviction": "lru"},
    "small quantum": {"quantum": 4_096},
}
ALL_OFF: Mapping[str, Any] = {key: value for off in OFF.values() for key, value in off.items()}
LEFT_OUT = {f"fair without {part}": {**FAIR, **off} for part, off in OFF.items()}
ALONE = {
    f"only {part}": {**FAIR, **{key: value for key, value in ALL_OFF.items() if key not in off}}
    for part, off in OFF.items()
}
POLICIES: Mapping[str, Mapping[str, Any]] = {**BASELINES, "fair": FAIR}
ABLATIONS: Mapping[str, Mapping[str, Any]] = {**LEFT_OUT, "nothing": {**FAIR, **ALL_OFF}, **ALONE}

THROUGHPUT = Goal(metric="throughput")
SHARE = Goal(metric="light_share")
WAIT = Goal(metric="light_p99_s", more=False, noise=0.1)
GOALS = (THROUGHPUT, SHARE, WAIT)
OF_LPM, LEAST_SHARE, NEAR_SHARE, TIMES_WAIT, NOISE = 0.97, 0.85, 0.02, 1.25, 0.01
QUICK_LOADS, QUICK_S = ("judge-s1", "chat"), 60


def cases(quick: bool) -> Sequence[Case]:
    """Each policy on each workload and host; the parts of `fair` alone and left out on the ideal host."""
    return [
        contended(
            load,
            {"host": host, "policy": name},
            {**settings, "host": host},
            duration_s=QUICK_S if quick else None,
        )
        for host in HOSTS
        for load in (QUICK_LOADS if quick else LOADS)
        for name, settings in (
            POLICIES if host != "ideal" or quick else {**POLICIES, **ABLATIONS}
        ).items()
    ]


def _judge(results: Results) -> Sequence[Verdict]:
    """The targets, host by host, and which policies dominate which."""
    return [verdict for host in HOSTS for verdict in _targets(results, host)]


def _targets(results: Results, host: str) -> list[Verdict]:
    def of(metric: str, policy: str, load: str) -> float:
        return results.interval(metric, host=host, workload=load, policy=policy).median

    def best_share(load: str) -> float:
        return max(of("light_share", policy, load) for policy in POLICIES)

    loads = [str(load) for load in results.labels("workload")]
    lpm_best = [
        load
        for load in loads
        if all(of("throughput", "lpm", load) >= of("throughput", name, load) for name in BASELINES)
    ]
    return [
        _target(
            f"{host}: at least {OF_LPM} of lpm's throughput where lpm has the most of vtc, lpm and dlpm",
            {
                load: of("throughput", "fair", load) / of("throughput", "lpm", load)
                for load in lpm_best
            },
            lambda ratio, _: ratio >= OF_LPM,
        ),
        _target(
            f"{host}: no less throughput than dlpm, within {NOISE:.0%}",
            {
                load: of("throughput", "fair", load) / of("throughput", "dlpm", load)
                for load in loads
            },
            lambda ratio, _: ratio >= 1 - NOISE,
        ),
        _target(
            f"{host}: the worst light client has {LEAST_SHARE} of its entitlement, or at most "
            f"{NEAR_SHARE} less than under the best policy",
            {load: of("light_share", "fair", load) for load in loads},
            lambda share, load: share >= min(LEAST_SHARE, best_share(load) - NEAR_SHARE),
        ),
        _target(
            f"{host}: light clients' p99 wait is at most {TIMES_WAIT} of the shorter of vtc's and dlpm's",
            {
                load: of("light_p99_s", "fair", load)
                / min(of("light_p99_s", "vtc", load), of("light_p99_s", "dlpm", load))
                for load in loads
            },
            lambda ratio, _: ratio <= TIMES_WAIT,
        ),
        _undominated(results, host, loads),
    ]


def _target(claim: str, found: Mapping[str, float], rule: Callable[[float, str], bool]) -> Verdict:
    """The verdict on medians that must keep the rule on every workload."""
    if not found:
        return Verdict(
            claim=claim,
            paper=BEYOND,
            ours="no value",
            holds="not comparable",
            why="there is no such workload",
        )
    bad = [load for load, value in found.items() if not rule(value, load)]
    low, high = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
    return Verdict(
        claim=claim,
        paper=BEYOND,
        ours=f"{median(found.values()):.2f} in the median; {found[low]:.2f} on {low} to "
        f"{found[high]:.2f} on {high}",
        holds="does not hold" if len(bad) == len(found) else "holds only if" if bad else "holds",
        why=f"not on {', '.join(f'{load} ({found[load]:.2f})' for load in bad)}" if bad else "",
    )


def _undominated(results: Results, host: str, loads: Sequence[str]) -> Verdict:
    """The verdict on other policies that are as good in all goals and better in one."""
    here = Results([row for row in results.rows if row["host"] == host])
    among = [{"policy": policy} for policy in POLICIES]
    fair = len(among) - 1
    by = {
        str(among[other]["policy"]): on
        for (other, one), on in dominations(here, GOALS, "workload", among).items()
        if one == fair
    }
    shown = "; ".join(f"by {name} on {', '.join(map(str, on))}" for name, on in by.items())
    return Verdict(
        claim=f"{host}: none of {', '.join(BASELINES)} dominates fair on any of {len(loads)} workloads",
        paper=BEYOND,
        ours=shown or "by none",
        holds="does not hold" if by else "holds",
        why=shown,
    )


def _bars(title: str, metric: str, y_label: str, host: str, *, log_y: bool = False) -> Panel:
    return Panel(
        title=f"{title}, {host}",
        form="bars",
        x="workload",
        y=metric,
        hue="policy",
        where={"host": host},
        y_label=y_label,
        log_y=log_y,
    )


STUDY = Study(
    title="fair: the product's own policy, its parts and its targets",
    source="beyond the papers: one engine, three hosts",
    shows="throughput, entitlement and waits under vtc, lpm, dlpm, fair, and without fair's parts",
    takes="quick 10 s; full 12 min",
    cases=cases,
    measures={
        **MEASURES,
        **in_summary("jain_entitlement", "worst_share"),
        "light_share": light_share,
    },
    panels=[
        merged_path(
            "Share of entitlement (medians over the workloads, ideal host)",
            "light_share",
            "worst light client's share of its entitlement",
            where={"host": "ideal"},
            best={"throughput": "most"},
        ),
        merged_path(
            "Light clients' waits (medians over the workloads, ideal host)",
            "light_p99_s",
            "p99 wait of light clients, times the shortest",
            where={"host": "ideal"},
            best={"throughput": "most", "light_p99_s": "least"},
            log_y=True,
        ),
        *(
            _bars("Throughput", "throughput", "service tokens/s, client view", host)
            for host in HOSTS[1:]
        ),
        *(
            _bars(
                "Light clients' p99 wait", "light_p99_s", "s to the first token", host, log_y=True
            )
            for host in HOSTS[1:]
        ),
    ],
    judge=_judge,
    choices=(
        "Workloads, engines and rates as in `pareto`. `fair` has no flag set; its cost is fitted to"
        " the passes of the simulated engine. `fair without` a part turns that part off; `nothing` "
        "turns all of them off, `only` leaves one of them on. All of `fair` stop at the first "
        "request that does not fit, as vLLM and SGLang do; `dlpm` skips up to 32 on the ideal host."
        " A client is light if it asks for less than its share; its share of entitlement is what it"
        " received over its part by weighted max-min of the demands (client view). The quantum is "
        "not adapted, and no request that does not fit is passed for one that does."
    ),
)

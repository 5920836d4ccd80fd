"""`fair` and its parts against the other policies: 13 workloads, three hosts, the targets judged."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from fairhit.core.service import TokenCost
from fairhit_lab.studies.ours.comparing import BEYOND, MEASURES, could_be, merged_path, target
from fairhit_lab.studies.ours.contention import LOADS, contended, light_share
from fairhit_lab.studies.shared.claims import Rule, below, could_show
from fairhit_lab.studies.shared.dominance import Goal, dominations
from fairhit_lab.studies.shared.measures import in_summary
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Label, Results
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
NOTHING = {**FAIR, **ALL_OFF}
LEFT_OUT = {f"without {part}": {**FAIR, **off} for part, off in OFF.items()}
ALONE = {
    f"only {part}": {**FAIR, **{key: value for key, value in ALL_OFF.items() if key not in off}}
    for part, off in OFF.items()
}
# Others' schedulers that run in the simulator only; on the ideal host.
OTHERS: Mapping[str, Mapping[str, Any]] = {
    name: {"scheduler": name} for name in ("k-lpm", "wsc", "las", "justitia")
}
# Longer turns, which buy throughput with waits.
LONGER = {
    f"quantum {quantum:,}": {**FAIR, "quantum": quantum, "overdraft": quantum}
    for quantum in (4_096, 16_384)
}
POLICIES: Mapping[str, Mapping[str, Any]] = {**BASELINES, "fair": FAIR}
# Cases in groups, each compared within itself and in panels of its own.
GROUPS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "policies": POLICIES,
    "longer turns": {"fair": FAIR, **LONGER},
}
IDEAL_GROUPS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    **GROUPS,
    "policies": {**POLICIES, **OTHERS},
    "left out": {"fair": FAIR, **LEFT_OUT, "nothing": NOTHING},
    "alone": {"fair": FAIR, **ALONE, "nothing": NOTHING},
}

THROUGHPUT = Goal(metric="throughput")
SHARE = Goal(metric="light_share")
WAIT = Goal(metric="light_p99_s", more=False, noise=0.1)
GOALS = (THROUGHPUT, SHARE, WAIT)
OF_LPM, LEAST_SHARE, NEAR_SHARE, TIMES_WAIT, NOISE = 0.97, 0.85, 0.02, 1.25, 0.01
LITTLE = 1.03  # what a longer turn must gain at least to be worth a quantum that adapts
QUICK_LOADS, QUICK_S = ("judge-s1", "chat"), 60


def cases(quick: bool) -> Sequence[Case]:
    """Cases of each policy on each workload and host; on the ideal host also others and parts of `fair`."""
    return [
        contended(
            load,
            {"host": host, "group": group, "policy": name},
            {**settings, "host": host},
            duration_s=QUICK_S if quick else None,
        )
        for host in HOSTS
        for load in (QUICK_LOADS if quick else LOADS)
        for group, policies in (IDEAL_GROUPS if host == "ideal" and not quick else GROUPS).items()
        for name, settings in policies.items()
    ]


def _judge(results: Results) -> Sequence[Verdict]:
    """The targets, host by host, and which policies dominate which."""
    return [verdict for host in HOSTS for verdict in _targets(_Host(results, host))]


class _Host:
    """The rows of the policies on one host. Ratios are taken seed by seed, then their median."""

    def __init__(self, results: Results, host: str) -> None:
        self.name = host
        here = [row for row in results.rows if row["host"] == host]
        self._results, self._longer = (
            replace(results, rows=[row for row in here if row["group"] == group])
            for group in ("policies", "longer turns")
        )
        self.loads = [str(load) for load in self._results.labels("workload")]
        self.policies = [str(policy) for policy in self._results.labels("policy")]

    def of(self, metric: str, policy: str, load: str) -> float:
        """The median over the seeds."""
        return self._results.interval(metric, workload=load, policy=policy).median

    def could_be(self, metric: str, *others: str) -> dict[str, Rule]:
        """By workload the least and greatest ratio of `fair` to `others` that the runs could have shown."""
        found = [
            could_be(self._results, metric, {"policy": "fair"}, {"policy": other})
            for other in others
        ]
        return {load: could_show(0, max(each[load].high for each in found)) for load in self.loads}

    def throughput(self, other: str) -> Iterator[tuple[str, float]]:
        """The throughput of `fair` over that of `other`, by workload."""
        for load in self.loads:
            ours, theirs = ({"workload": load, "policy": name} for name in ("fair", other))
            yield load, self._results.ratio("throughput", ours, theirs).median

    def wait(self, load: str) -> float:
        """Light clients' p99 wait over the shorter of vtc's and dlpm's."""
        fair, vtc, dlpm = (
            self._results.values("light_p99_s", workload=load, policy=name)
            for name in ("fair", "vtc", "dlpm")
        )
        return median(fair[seed] / min(vtc[seed], dlpm[seed]) for seed in fair)

    def longer(self, quantum: str) -> Iterator[tuple[str, float]]:
        """The throughput with a longer quantum over that without a flag, by workload."""
        for load in self.loads:
            longer, fair = ({"workload": load, "policy": name} for name in (quantum, "fair"))
            yield load, self._longer.ratio("throughput", longer, fair).median

    def dominating(self) -> dict[str, Sequence[Label]]:
        """The policies that are as good as `fair` in all goals and better in one, and where."""
        among = [{"policy": policy} for policy in self.policies]
        fair = self.policies.index("fair")
        found = dominations(self._results, GOALS, "workload", among)
        return {self.policies[one]: on for (one, other), on in found.items() if other == fair}


def _targets(host: _Host) -> list[Verdict]:
    best_share = {
        load: max(host.of("light_share", policy, load) for policy in POLICIES)
        for load in host.loads
    }
    lpm_best = [
        load
        for load in host.loads
        if all(
            host.of("throughput", "lpm", load) >= host.of("throughput", name, load)
            for name in BASELINES
        )
    ]
    return [
        target(
            f"{host.name}: at least {OF_LPM} of lpm's throughput where lpm has the most of vtc, lpm and dlpm",
            {load: ratio for load, ratio in host.throughput("lpm") if load in lpm_best},
            Rule(low=OF_LPM),
            host.could_be("throughput", "lpm"),
        ),
        target(
            f"{host.name}: no less throughput than dlpm, within {NOISE:.0%}",
            dict(host.throughput("dlpm")),
            Rule(low=1 - NOISE),
            host.could_be("throughput", "dlpm"),
        ),
        target(
            f"{host.name}: the worst light client has {LEAST_SHARE} of its entitlement, or at most "
            f"{NEAR_SHARE} less than under the best policy",
            {load: host.of("light_share", "fair", load) for load in host.loads},
            {
                load: Rule(low=min(LEAST_SHARE, share - NEAR_SHARE))
                for load, share in best_share.items()
            },
            {},  # a light client has more than its part where a heavy one has less
        ),
        target(
            f"{host.name}: light clients' p99 wait is at most {TIMES_WAIT} of the shorter of vtc's and "
            "dlpm's",
            {load: host.wait(load) for load in host.loads},
            Rule(high=TIMES_WAIT),
            host.could_be("light_p99_s", "vtc", "dlpm"),
        ),
        _undominated(host),
        *(
            target(
                f"{host.name}: {quantum} (overdraft alike) has less than {LITTLE} of the throughput",
                dict(host.longer(quantum)),
                below(LITTLE),
                host.could_be("throughput", "fair"),
            )
            for quantum in LONGER
        ),
    ]


def _undominated(host: _Host) -> Verdict:
    """The verdict on other policies that are as good in all goals and better in one."""
    by = host.dominating()
    shown = "; ".join(f"by {name} on {', '.join(map(str, on))}" for name, on in by.items())
    others = ", ".join(name for name in host.policies if name != "fair")
    return Verdict(
        claim=f"{host.name}: none of {others} dominates fair on any of {len(host.loads)} workloads",
        paper=BEYOND,
        ours=shown or "by none",
        holds="does not hold" if by else "holds",
        why=shown,
        least=0,
        greatest=len(host.loads),
    )


def _shares(title: str, where: Mapping[str, str]) -> Panel:
    return merged_path(
        title,
        "light_share",
        "worst light client's share of its entitlement",
        where=where,
        best={"throughput": "most"},
    )


def _waits(title: str, where: Mapping[str, str]) -> Panel:
    return merged_path(
        title,
        "light_p99_s",
        "p99 wait of light clients, times the shortest",
        where=where,
        best={"throughput": "most", "light_p99_s": "least"},
        log_y=True,
    )


def _rows(host: str, group: str) -> Mapping[str, str]:
    return {"host": host, "group": group}


STUDY = Study(
    whose="ours",
    title="fair: the product's own policy, its parts and its targets",
    source="beyond the papers: one engine, three hosts",
    shows="throughput, entitlement and waits under vtc, lpm, dlpm, fair, and without fair's parts",
    takes="quick 10 s; full 4 min",
    cases=cases,
    measures={
        **MEASURES,
        **in_summary("jain_entitlement", "worst_share"),
        "light_share": light_share,
    },
    # Four in a row: a host's policies, then parts and longer turns.
    panels=[
        _shares("Share of entitlement, ideal", _rows("ideal", "policies")),
        _waits("Light clients' waits, ideal", _rows("ideal", "policies")),
        _shares("Share of entitlement, ideal: a part left out", _rows("ideal", "left out")),
        _waits("Light clients' waits, ideal: a part left out", _rows("ideal", "left out")),
        _shares("Share of entitlement, vllm", _rows("vllm", "policies")),
        _waits("Light clients' waits, vllm", _rows("vllm", "policies")),
        _waits("Light clients' waits, ideal: one part alone", _rows("ideal", "alone")),
        _waits("Light clients' waits, ideal: longer turns", _rows("ideal", "longer turns")),
        _shares("Share of entitlement, sglang", _rows("sglang", "policies")),
        _waits("Light clients' waits, sglang", _rows("sglang", "policies")),
        _waits("Light clients' waits, vllm: longer turns", _rows("vllm", "longer turns")),
        _waits("Light clients' waits, sglang: longer turns", _rows("sglang", "longer turns")),
    ],
    judge=_judge,
    choices=(
        "Workloads, engines and rates as in `pareto`. `fair` has no flag set; its cost is fitted to the "
        "passes of the simulated engine. `without` a part turns that part of `fair` off; `nothing` turns "
        "all of them off, `only` leaves one of them on; `quantum` lengthens quantum and overdraft. All "
        "of `fair` stop at the first request that does not fit, as vLLM and SGLang do; `dlpm` skips up "
        "to 32 on the ideal host. A client is light if it asks for less than its share; its share of "
        "entitlement is what it received over its part by weighted max-min of the demands (client view). "
        "Ratios are taken seed by seed, then their median. The quantum is not adapted, and no request "
        "that does not fit is passed for one that does."
    ),
)

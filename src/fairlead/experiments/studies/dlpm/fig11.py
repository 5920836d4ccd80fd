"""DLPM Figure 11: from 5 to 50 clients on one GPU, at a constant total rate."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.experiments.studies.dlpm.systems import ON_A10G
from fairlead.experiments.study.claims import Rule, above, judged, within
from fairlead.experiments.study.measures import hit_rate, throughput
from fairlead.experiments.study.panel import Panel
from fairlead.experiments.study.results import Interval, Label, Results, interval_of
from fairlead.experiments.study.study import Case, Generated, Simulated, Study, Verdict

COUNTS = (5, 10, 20, 30, 40, 50)
POLICIES = ("dlpm", "lpm", "vtc")
STATED = "stated"
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "40,000 KV tokens": {"kv_tokens": 40_000},
    "SGLang's admission": {"host": "sglang"},
    "Q^u 65,536": {"quantum": 65_536},
}


def cases(quick: bool) -> Sequence[Case]:
    """Each policy with each number of clients; the ends of the range under other settings."""
    duration_s = 240 if quick else 360

    def case(clients: int, policy: str, variant: str, settings: Mapping[str, Any]) -> Case:
        own: dict[str, Any] = {"host": "ideal", "scheduler": policy, **settings}
        if policy == "dlpm" and own["host"] == "ideal":
            own["max_misfits"] = 32
        if policy != "dlpm":
            own.pop("quantum", None)
        return Simulated(
            labels={"clients": clients, "policy": policy, "variant": variant},
            source=Generated(
                workload="tot-many",
                settings={"clients": clients, "rate": 0.5, "duration": duration_s},
            ),
            settings={**ON_A10G, **own},
            stop_s=duration_s,
        )

    made = [
        case(clients, policy, STATED, {})
        for clients in ((5, 50) if quick else COUNTS)
        for policy in POLICIES
    ]
    if not quick:
        made += [
            case(clients, policy, variant, settings)
            for variant, settings in OTHERS.items()
            for clients in (5, 50)
            for policy in POLICIES
        ]
    return made


def _worst(results: Results, variant: str, over: str, under: str) -> Interval:
    """The least ratio of throughputs of all counts, by seed."""
    found: dict[int, list[float]] = {}
    for clients in results.labels("clients"):
        of = {"clients": clients, "variant": variant}
        tops = results.values("throughput", policy=over, **of)
        bottoms = results.values("throughput", policy=under, **of)
        for seed in tops:
            if not bottoms.get(seed):
                continue
            found.setdefault(seed, []).append(tops[seed] / bottoms[seed])
    return interval_of(min(values) for values in found.values())


def _spread(results: Results, variant: str, policy: str) -> Interval:
    """Throughput with most clients over that with fewest."""
    counts = results.labels("clients")
    of: dict[str, Label] = {"policy": policy, "variant": variant}
    return results.ratio("throughput", {**of, "clients": counts[-1]}, {**of, "clients": counts[0]})


def judge(results: Results) -> Sequence[Verdict]:
    """DLPM about LPM, both falling slightly; VTC flat and below."""
    others = [name for name in OTHERS if name in results.labels("variant")]

    def verdict(
        claim: str, paper: str, why: str, rule: Rule, of: Mapping[str, Interval]
    ) -> Verdict:
        elsewhere = {name: value for name, value in of.items() if name != STATED}
        return judged(
            claim=claim,
            paper=paper,
            ours=of[STATED],
            unit="x",
            rule=rule,
            why=why,
            elsewhere=elsewhere,
        )

    settings = (STATED, *others)
    made = [
        verdict(
            "DLPM's service rate is about LPM's (95 % or more) at every number of clients: the worst",
            "comparable",
            "with little memory every change of client costs a prefix",
            above(0.95),
            {name: _worst(results, name, "dlpm", "lpm") for name in settings},
        ),
        verdict(
            "DLPM's service rate is above VTC's at every number of clients: the worst",
            "VTC consistently underperforms",
            "trees of 30 requests hardly repeat once they are served",
            above(1),
            {name: _worst(results, name, "dlpm", "vtc") for name in settings},
        ),
    ]
    made += [
        verdict(
            f"{policy.upper()}'s service rate falls slightly with more clients (50 over 5: 0.85 to 1)",
            "a slight decrease",
            "every tree has its own prefix whoever sends it, so clients add no prefixes",
            within(0.85, 1),
            {name: _spread(results, name, policy) for name in settings},
        )
        for policy in ("dlpm", "lpm")
    ]
    made.append(
        verdict(
            "VTC's service rate is flat over the number of clients (50 over 5: 0.95 to 1.05)",
            "less affected",
            "the fewer requests a client has waiting, the nearer VTC's order is to that of arrival",
            within(0.95, 1.05),
            {name: _spread(results, name, "vtc") for name in settings},
        )
    )
    return made


STUDY = Study(
    title="More clients on one GPU",
    source="DLPM (arXiv:2501.14312v1), Figure 11",
    shows="service rate of DLPM, LPM and VTC with 5 to 50 clients at a constant total rate",
    takes="quick 8 s; full 4 min",
    cases=cases,
    measures={"throughput": throughput, "hit_rate": hit_rate},
    panels=[
        Panel(
            title=title,
            form="lines",
            x="clients",
            y=metric,
            hue="policy",
            where={"variant": STATED},
            x_label="clients",
            y_label=label,
        )
        for title, metric, label in (
            ("Service rate", "throughput", "input + 2 x output, tokens/s"),
            ("Hit rate", "hit_rate", "share of prompt tokens"),
        )
    ],
    judge=judge,
    choices="Workload and rate are not printed: trees of thought (b = 2), 0.5 a second in all, 1.7 times "
    "what an A10G serves (8.9 requests/s); the run stops with the arrivals. 129,000 KV tokens; "
    "the ideal engine. Scarce memory, SGLang's admission and a large Q^u are varied with 5 and "
    "with 50 clients.",
)

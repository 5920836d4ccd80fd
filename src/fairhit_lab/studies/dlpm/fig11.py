"""DLPM Figure 11: from 5 to 50 clients on one GPU, at a constant total rate."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fairhit_lab.studies.dlpm.shared import BESIDE_ONE, ON_A10G, STATED, on_ideal
from fairhit_lab.studies.shared.claims import Rule, above, could_show, judged, within
from fairhit_lab.studies.shared.limits import throughput_ratio
from fairhit_lab.studies.shared.measures import in_summary
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of, three_digits
from fairhit_lab.studies.shared.study import Case, Generated, Simulated, Study, Verdict

COUNTS = (5, 10, 20, 30, 40, 50)
POLICIES = ("dlpm", "lpm", "vtc", "fair")
SCARCE = "40,000 KV tokens"
FALLS = "falls slightly with more clients (50 over 5: 0.85 to 1)"
RATE = 0.5  # trees a second, of all clients
# Settings, and the rate.
OTHERS: Mapping[str, tuple[Mapping[str, Any], float]] = {
    SCARCE: ({"kv_tokens": 40_000}, RATE),
    "SGLang's admission": ({"host": "sglang"}, RATE),
    "SGLang's admission, deep queues": ({"host": "sglang"}, 4 * RATE),
    "Q^u 65,536": ({"quantum": 65_536}, RATE),
}


def cases(quick: bool) -> Sequence[Case]:
    """The policies with each number of clients; the ends of the range under other settings."""
    duration_s = 240 if quick else 360

    def case(
        clients: int, policy: str, variant: str, settings: Mapping[str, Any], rate: float = RATE
    ) -> Case:
        own = on_ideal({"scheduler": policy, **settings}, skips=policy == "dlpm")
        if policy != "dlpm":
            own.pop("quantum", None)
        return Simulated(
            labels={"clients": clients, "policy": policy, "variant": variant},
            source=Generated(
                workload="tot-many",
                settings={"clients": clients, "rate": rate, "duration": duration_s},
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
            case(clients, policy, variant, settings, rate)
            for variant, (settings, rate) in OTHERS.items()
            for clients in (5, 50)
            for policy in POLICIES
        ]
    return made


def _worst(results: Results, variant: str, over: str, under: str) -> Interval:
    """The least ratio of throughputs over the numbers of clients, by seed."""
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
    """The throughput with most clients, over that with fewest."""
    counts = results.labels("clients")
    of: dict[str, Label] = {"policy": policy, "variant": variant}
    return results.ratio("throughput", {**of, "clients": counts[-1]}, {**of, "clients": counts[0]})


def _complete(results: Results, variant: str) -> bool:
    """True if the setting was run with as many numbers of clients as the stated one: a worst is of all."""
    counts = {
        name: len({row["clients"] for row in results.rows if row["variant"] == name})
        for name in (STATED, variant)
    }
    return counts[variant] >= counts[STATED]


def _judged(
    results: Results,
    claim: str,
    paper: str,
    why: str,
    *,
    rule: Rule,
    of: Callable[[str], Interval],
    reach: Rule | None,
) -> Verdict:
    """The verdict on a number as stated and in the other settings.

    A worst of fewer numbers of clients counts where it breaks the rule: more of them could not mend it.
    """
    others = {name: of(name) for name in OTHERS if name in results.labels("variant")}
    few = {
        name: found
        for name, found in others.items()
        if not _complete(results, name) and rule(found.median)
    }
    if "the worst" in claim and few:
        worst = ", ".join(f"{name} {found.median:.3g}x" for name, found in few.items())
        why += f"; the worst of fewer numbers of clients, not judged: {worst}"
        others = {name: found for name, found in others.items() if name not in few}
    return judged(
        claim=claim,
        paper=paper,
        ours=of(STATED),
        unit="x",
        rule=rule,
        why=why,
        elsewhere=others,
        reach=reach,
    )


def _worst_reach(results: Results, over: str, under: str) -> Rule | None:
    """Return the range of the least ratio of throughputs: the widest with any number of clients."""
    found = [
        reach
        for clients in results.labels("clients")
        for of in [{"clients": clients, "variant": STATED}]
        if (reach := throughput_ratio(results, {**of, "policy": over}, {**of, "policy": under}))
    ]
    return could_show(0, min(reach.high for reach in found)) if found else None


def _spread_reach(results: Results, policy: str) -> Rule | None:
    """Return the range of the ratio of throughputs with most and with fewest clients."""
    counts = results.labels("clients")
    of: dict[str, Label] = {"policy": policy, "variant": STATED}
    return throughput_ratio(results, {**of, "clients": counts[-1]}, {**of, "clients": counts[0]})


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on DLPM beside LPM and VTC at every number of clients, and on each over that number."""
    verdict = partial(_judged, results)
    made = [
        verdict(
            f"DLPM's service rate is {claim} at every number of clients: the worst",
            paper,
            _hit_rates(results, "dlpm", other),
            rule=rule,
            of=partial(_worst, results, over="dlpm", under=other),
            reach=_worst_reach(results, "dlpm", other),
        )
        for claim, paper, rule, other in (
            ("about LPM's (95 % or more)", "comparable", Rule(low=0.95), "lpm"),
            ("above VTC's", "VTC consistently underperforms", above(1), "vtc"),
        )
    ]
    made += [
        verdict(
            f"{policy.upper()}'s service rate {claim}",
            paper,
            _hit_rates(results, policy),
            rule=rule,
            of=partial(_spread, results, policy=policy),
            reach=_spread_reach(results, policy),
        )
        for policy, claim, paper, rule in (
            ("dlpm", FALLS, "a slight decrease", within(0.85, 1)),
            ("lpm", FALLS, "a slight decrease", within(0.85, 1)),
            (
                "vtc",
                "is flat over the number of clients (50 over 5: 0.95 to 1.05)",
                "less affected",
                within(0.95, 1.05),
            ),
        )
    ]
    return made


def _hit_rates(results: Results, *policies: str) -> str:
    """Median hit rates as stated and with scarce memory, with fewest and with most clients."""
    counts = results.labels("clients")

    def rate(policy: str, variant: str, clients: Label) -> str:
        of = {"policy": policy, "variant": variant, "clients": clients}
        return three_digits(results.interval("hit_rate", **of).median)

    return "; ".join(
        f"{policy.upper()}'s hit rate, {variant}: {rate(policy, variant, counts[0])} with {counts[0]} "
        f"clients, {rate(policy, variant, counts[-1])} with {counts[-1]}"
        for variant in (STATED, SCARCE)
        if variant in results.labels("variant")
        for policy in policies
    )


STUDY = Study(
    title="More clients on one GPU",
    source="DLPM (arXiv:2501.14312v1), Figure 11",
    shows="service rate of DLPM, LPM and VTC with 5 to 50 clients at a constant total rate",
    takes="quick 8 s; full 90 s",
    cases=cases,
    measures=in_summary("throughput", "requests_per_s", "hit_rate"),
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
    "what an A10G serves (8.9 requests/s); the run stops with the arrivals. What the run can show: as more "
    "is asked for than is served, a policy may have up to 1.7 times the rate of another, or any part of it; "
    "what is asked for is the limit that is stated. 129,000 KV tokens; "
    "the ideal engine. At a request that does not fit, passes of DLPM skip up to 32 of them "
    "(max_misfits), a bound for the sake of speed; those of LPM and VTC end there, as theirs do, and with "
    "SGLang's admission DLPM's, too. Scarce memory, SGLang's admission, also with four times "
    f"as many trees, and a large Q^u are varied with 5 and with 50 clients. {BESIDE_ONE}",
)

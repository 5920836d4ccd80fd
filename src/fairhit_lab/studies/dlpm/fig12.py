"""DLPM Figure 12: two chats, trees of thought and a judge on one GPU."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairhit_lab.studies.dlpm.shared import (
    BESIDE_ONE,
    ON_A10G,
    STATED,
    Run,
    jain_ratio,
    on_ideal,
    over_time,
    ratios,
    spelled,
)
from fairhit_lab.studies.shared.claims import Rule, above, judged
from fairhit_lab.studies.shared.limits import ends_ratio, waits_ratio
from fairhit_lab.studies.shared.measures import in_summary, ttft
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Generated, Simulated, Study, Verdict

POLICIES = ("dlpm", "lpm", "vtc", "fair")
TREES = "c2"
RATES = 8.0  # times 0.2, 0.1, 0.02 and 0.05 programs a second
# Settings, then the factor of the rates.
OTHERS: Mapping[str, tuple[Mapping[str, Any], float]] = {
    "40,000 KV tokens": ({"kv_tokens": 40_000}, RATES / 2),
    "SGLang's admission": ({"host": "sglang"}, RATES),
    "Q^u 65,536": ({"quantum": 65_536}, RATES),
    "LPM falls back above 128": ({"fallback": 128}, RATES),
}


def cases(quick: bool) -> Sequence[Case]:
    """The policies with arrivals for some minutes, run to the last finish."""
    duration_s = 100 if quick else 150

    def case(policy: str, variant: str, settings: Mapping[str, Any], times: float) -> Case:
        own = on_ideal({"scheduler": policy, **settings}, skips=policy == "dlpm")
        # Chats with short and with long answers, trees of b = 2, judges of six respects.
        rates = tuple(times * rate for rate in (0.2, 0.1, 0.02, 0.05))
        return Simulated(
            labels={"policy": policy, "variant": variant},
            source=Generated(workload="mixed", settings={"rates": rates, "duration": duration_s}),
            settings={**ON_A10G, **own},
            series=variant == STATED,
        )

    made = [case(policy, STATED, {}, RATES) for policy in POLICIES]
    if not quick:
        takes = {"quantum": "dlpm", "fallback": "lpm"}
        made += [
            case(policy, variant, settings, times)
            for variant, (settings, times) in OTHERS.items()
            for policy in POLICIES
            if all(takes.get(name, policy) == policy for name in settings)
        ]
    return made


# The claim, the paper's words; measure and its unit, numerator, denominator.
Ratio = tuple[str, str, str, str]
CLAIMS: Sequence[tuple[str, str, Ratio]] = (
    *(
        (
            f"requests wait longer for their first token under {other.upper()} than under DLPM: mean",
            "DLPM consistently better",
            ("ttft_mean_s", " s", other, "dlpm"),
        )
        for other in ("vtc", "lpm")
    ),
    *(
        (
            f"all programs take longer from end to end under {other.upper()} than under DLPM",
            "DLPM consistently better",
            ("makespan_s", " s", other, "dlpm"),
        )
        for other in ("vtc", "lpm")
    ),
    (
        "under LPM the trees of thought make the others wait longer than under DLPM: mean of the others",
        "significantly increasing the response time for other clients",
        ("others_mean_s", " s", "lpm", "dlpm"),
    ),
    (
        "under LPM the chats wait longer than under DLPM: mean of clients 0 and 1",
        "significantly increasing the response time for other clients",
        ("chats_mean_s", " s", "lpm", "dlpm"),
    ),
    (
        "VTC shares actual service more evenly than DLPM: Jain's index (system view), VTC's in DLPM's",
        "more evenly distributed",
        ("jain_system", "", "vtc", "dlpm"),
    ),
    (
        "VTC shares service as clients see it more evenly than DLPM: Jain's index (client view)",
        "not printed",
        ("jain_client", "", "vtc", "dlpm"),
    ),
)


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on response times, the last finish and fairness; "more" means by 1 % at least."""
    made = []
    for claim, paper, (metric, unit, over, under) in CLAIMS:
        found = ratios(results, metric, {"policy": over}, {"policy": under}, (STATED, *OTHERS))
        runs: dict[str, Run] = {
            policy.upper(): {"policy": policy, "variant": STATED} for policy in (over, under)
        }
        made.append(
            judged(
                claim=claim,
                paper=paper,
                ours=found.pop(STATED),
                unit="x",
                rule=above(1.01),
                why=f"as stated {spelled(results, metric, runs, unit)}; "
                f"hit rates {spelled(results, 'hit_rate', runs)}",
                elsewhere=found,
                reach=_limits(results, metric, runs[over.upper()], runs[under.upper()]),
                whose="ours" if paper == "not printed" else "paper",
            )
        )
    return made


def _limits(results: Results, metric: str, over: Run, under: Run) -> Rule | None:
    """Return the range of the ratio, given the run below the line."""
    if metric.startswith("jain"):
        return jain_ratio(results, metric, under, 4)
    if metric == "makespan_s":
        return ends_ratio(results, over, under)
    return waits_ratio(results, metric, over, under)


STUDY = Study(
    title="Mixed workloads on one GPU",
    source="DLPM (arXiv:2501.14312v1), Figure 12",
    shows="two chats, trees of thought and a judge: response time and actual service over time",
    takes="quick 6 s; full 16 s",
    cases=cases,
    measures={
        **in_summary("makespan_s", "throughput", "hit_rate"),
        "ttft_mean_s": ttft("mean_s"),
        "others_mean_s": ttft("mean_s", without=(TREES,)),
        "chats_mean_s": ttft("mean_s", without=(TREES, "c3")),
        **in_summary("jain_client", "jain_system"),
    },
    panels=over_time(
        ("response_time", "service_system"),
        {policy: {"policy": policy, "variant": STATED} for policy in POLICIES},
    ),
    judge=judge,
    choices="One of the four programs is unstated: a judge of six respects. Clients 0 and 1 chat (four "
    "turns, short and long answers), 2 grows trees (b = 2), 3 judges. Rates 1.6, 0.8, 0.16 and "
    "0.4 programs a second, so that all queue on one A10G with 129,000 KV tokens (half of that "
    "with 40,000). What the run can show: arrivals last 150 s and the run goes on until all is served, so "
    "that no wait is cut; a policy may end at any time after the last arrival, and a wait may last for the "
    "whole run, which are the limits stated. Ideal engine; SGLang's admission, memory, Q^u and LPM's "
    "fallback are varied. At a request that does not fit, passes of DLPM skip up to 32 of them "
    "(max_misfits), a bound for the sake of speed; those of LPM and VTC end there, as theirs do, and with "
    f"SGLang's admission DLPM's, too. More means by more than 1 %. {BESIDE_ONE}",
)

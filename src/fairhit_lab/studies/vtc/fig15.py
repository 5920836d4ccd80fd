"""VTC Figure 15: how far service swings between two clients, over the pool's size and requests' lengths."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import above, judged, within
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Results, interval_of
from fairhit_lab.studies.shared.study import Case, Generated, Study, Verdict
from fairhit_lab.studies.vtc.shared import (
    CHOICES,
    PAPER,
    SIMULATED,
    curve,
    measured,
    ours,
    simulated,
    theirs,
)
from fairhit_lab.studies.vtc_artifact.measures import (
    TABLE,
    difference_at,
    most_difference,
    spread_of_difference,
)

# By pool and length of input and of output, in tokens: the workload, and the authors' run of it.
WORKLOADS = {
    (35_000, 256): ("overload-s4-35000-256", "llama13b_a100_35000_256"),
    (65_000, 256): ("overload-s4", "llama13b_a100_65000_256"),
    (35_000, 512): ("overload-s4-35000-512", "llama13b_a100_35000_512"),
    (35_000, 768): ("overload-s4-35000-768", ""),
}


def cases(quick: bool) -> Sequence[Case]:
    """VTC in each; 10 minutes of requests, quick 4 of the first three."""
    found: list[Case] = []
    for (pool, length), (workload, run) in WORKLOADS.items():
        if quick and length == 768:
            continue
        labels = {"pool": pool, "length": length}
        source = Generated(workload=workload, settings={"duration": 240 if quick else 600})
        gpu = {"step_time": "a100-2024:llama-2-13b", "kv_tokens": pool}
        found.append(simulated("vtc", source, labels=labels, settings=gpu))
        if run:
            found.append(measured("vtc", run, labels=labels))
    return found


def judge(results: Results) -> Sequence[Verdict]:
    """Larger pools and longer requests let it swing further; up to the bound."""
    settings = [each for each in WORKLOADS if each[1] in results.labels("length")]
    verdicts = [_within_bound(results, pool, length) for pool, length in settings]
    verdicts += [
        _further(
            results,
            "a pool of 65,000 lets it swing further than one of 35,000 (256/256)",
            (65_000, 256),
            (35_000, 256),
        ),
        _further(
            results,
            "512/512 swings further than 256/256 (pool of 35,000)",
            (35_000, 512),
            (35_000, 256),
        ),
    ]
    if (35_000, 768) in settings:
        verdicts.append(
            judged(
                claim="768/768 swings as far as 512/512: the bound is reached",
                paper="the same variance",
                ours=_over(results, (35_000, 768), (35_000, 512)),
                rule=within(0.8, 1.25),
                too_low=_spreads(results, (35_000, 768), (35_000, 512)),
                too_high=_spreads(results, (35_000, 768), (35_000, 512)),
                unit="x",
            )
        )
    return verdicts


def _within_bound(results: Results, pool: int, length: int) -> Verdict:
    """Theorem 4.4: 2 w_q M."""
    most = ours(results, "most_difference", "vtc", pool=pool, length=length)
    return judged(
        claim=f"pool {pool:,}, {length}/{length}: the difference is within Theorem 4.4's bound",
        paper=f"at most {4 * pool:,};"
        f" {theirs(results, 'most_difference', 'vtc', pool=pool, length=length)}",
        ours=most,
        rule=within(0, 4 * pool),
        too_high="at the end it is "
        + str(ours(results, "last_difference", "vtc", pool=pool, length=length)),
    )


def _further(
    results: Results, claim: str, over: tuple[int, int], under: tuple[int, int]
) -> Verdict:
    """`over` and `under` are pools and lengths."""
    rows = " and ".join(
        theirs(results, "most_difference", "vtc", pool=pool, length=length)
        for pool, length in (over, under)
    )
    found = _over(results, over, under)
    tops, bottoms = (_most(results, pool, length) for pool, length in (over, under))
    worst = max(tops.values()) / max(bottoms.values())
    return judged(
        claim=claim,
        paper=f"greater variation (no number printed); {rows}",
        ours=found,
        rule=above(1.2),
        too_low=_spreads(results, over, under),
        unit="x",
        elsewhere={"between the worst seeds": interval_of([worst])} if found.seeds > 1 else {},
    )


def _over(results: Results, over: tuple[int, int], under: tuple[int, int]) -> Interval:
    """How far the first one's curve goes, by how far the second one's does."""
    tops, bottoms = (_most(results, pool, length) for pool, length in (over, under))
    return interval_of(tops[seed] / bottoms[seed] for seed in tops)


def _most(results: Results, pool: int, length: int) -> dict[int, float]:
    return results.values("most_difference", origin=SIMULATED, pool=pool, length=length)


def _spreads(results: Results, *settings: tuple[int, int]) -> str:
    """Seeds whose curve hardly swings lie beside others whose curve does: what the range is about."""
    return "standard deviation of the curve: " + ", ".join(
        f"{ours(results, 'spread', 'vtc', pool=pool, length=length)} tokens"
        f" with {pool:,} and {length}/{length}"
        for pool, length in settings
    )


STUDY = Study(
    title="How far service swings",
    source=f"{PAPER}, Figure 15",
    shows="the difference of two clients' accumulated service under VTC, over the size of the pool and the"
    " length of requests",
    takes="quick 5 s; full 40 s",
    cases=cases,
    measures={
        **TABLE,
        "most_difference": most_difference,
        "spread": spread_of_difference,
        "last_difference": difference_at(1.0),
    },
    panels=[
        curve("(a) By pool, in tokens (256/256)", "difference", "pool", length=256),
        curve(
            "(b) By length (pool of 35,000)",
            "difference",
            "length",
            pool=35_000,
        ),
        Panel(
            title="Difference of service: largest, and standard deviation, tokens; throughput, tokens/s",
            form="table",
            x="pool",
            hue="length",
            where={"origin": "simulated"},
            columns=["most_difference", "spread", "tokens_per_s"],
        ),
    ],
    judge=judge,
    choices=f"{CHOICES} Here it is Llama-2-13b on an A100 (80 GB), with rates above its capacity as in the"
    " artifact: 180 and 360 requests a minute at 256/256 (240 and 480 with 65,000 tokens of KV).",
)

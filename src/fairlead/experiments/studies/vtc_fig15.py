"""VTC Figure 15: how far service swings between two clients, over the pool's size and requests' lengths."""

from collections.abc import Sequence

from fairlead.experiments.claims import above, judged, within
from fairlead.experiments.panel import Panel
from fairlead.experiments.results import Interval, Results, interval_of
from fairlead.experiments.studies.vtc import (
    CHOICES,
    PAPER,
    curve,
    measured,
    ours,
    simulated,
    theirs,
)
from fairlead.experiments.study import Case, Generated, Study, Verdict
from fairlead.experiments.vtc_measures import (
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


def _over(results: Results, over: tuple[int, int], under: tuple[int, int]) -> Interval:
    """How far the larger setting's curve goes, by that of the smaller one: medians of what each seed has."""
    tops, bottoms = (
        results.values("most_difference", origin="simulated", pool=pool, length=length)
        for pool, length in (over, under)
    )
    return interval_of(tops[seed] / bottoms[seed] for seed in tops)


def judge(results: Results) -> Sequence[Verdict]:
    """Larger pools and longer requests let it swing further; up to the bound."""
    verdicts = [
        judged(
            claim=f"pool {pool:,}, {length}/{length}: within Theorem 4.4's bound, by which",
            paper=f"bounded by {4 * pool:,};"
            f" {theirs(results, 'most_difference', 'vtc', pool=pool, length=length)}",
            ours=_share(
                ours(results, "most_difference", "vtc", pool=pool, length=length), 4 * pool
            ),
            rule=within(0, 1),
            why="beyond the bound",
            unit="x the bound",
        )
        for pool, length in WORKLOADS
        if length in results.labels("length")
    ]
    verdicts.append(
        judged(
            claim="a pool of 65,000 lets it swing further than one of 35,000 (256/256)",
            paper="greater variation (no number printed)",
            ours=_over(results, (65_000, 256), (35_000, 256)),
            rule=above(1.2),
            why=TURNS,
            unit="x",
        )
    )
    verdicts.append(
        judged(
            claim="512/512 swings further than 256/256 (pool 35,000)",
            paper="greater variation (no number printed)",
            ours=_over(results, (35_000, 512), (35_000, 256)),
            rule=above(1.2),
            why=TURNS,
            unit="x",
        )
    )
    if 768 in results.labels("length"):
        verdicts.append(
            judged(
                claim="768/768 swings as far as 512/512: the bound is reached",
                paper="the same variance",
                ours=_over(results, (35_000, 768), (35_000, 512)),
                rule=within(0.8, 1.25),
                why=TURNS,
                unit="x",
            )
        )
    return verdicts


def _share(found: Interval, of: float) -> Interval:
    return Interval(found.median / of, found.low / of, found.high / of, found.seeds)


TURNS = (
    "the swing is that of batches of one client and of the other that take turns; whether turns set in"
    " depends on the arrivals and on single passes, so it differs from seed to seed"
)

STUDY = Study(
    title="How far service swings",
    source=f"{PAPER}, Figure 15",
    shows="larger pools and longer requests let service differ by more, up to the bound",
    takes="quick 12 s; full 4 min",
    cases=cases,
    measures={
        **TABLE,
        "most_difference": most_difference,
        "spread": spread_of_difference,
        "last_difference": difference_at(1.0),
    },
    panels=[
        curve("(a) Pool of 35,000 and 65,000", "difference", "pool", length=256),
        curve("(b) Length of input and output", "difference", "length", pool=35_000),
        Panel(
            title="Largest difference of service, tokens",
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

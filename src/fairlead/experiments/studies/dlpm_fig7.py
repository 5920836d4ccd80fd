"""DLPM Figure 7: three workloads, two kinds of misbehaving clients, one to eight GPUs, four systems."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.experiments.measures import (
    hit_rate,
    jain_client,
    jain_system,
    program_completion,
    throughput,
    ttft,
)
from fairlead.experiments.panel import Panel
from fairlead.experiments.studies.dlpm_fig7_claims import SCARCE, STATED, judge
from fairlead.experiments.studies.systems import DLPM_SYSTEMS, ON_A100, PREBLE_BY_THRESHOLD
from fairlead.experiments.study import Case, Generated, Simulated, Study

# Programs a second, client and GPU. One A100 serves 16 (ToT S1), 14 (ToT S2), 5.3 and 5.1 (judge), 4.3 and
# 2.6 (long QA) requests/s: good clients at 65 to 90 % of their shares in S1, all at 1.3 to 2 times in S2.
RATES: Mapping[tuple[str, str], tuple[float, ...]] = {
    ("tot", "s1"): (0.12,),
    ("tot", "s2"): (0.08,),
    ("judge", "s1"): (0.5,),
    ("judge", "s2"): (0.33,),
    ("long-qa", "s1"): (0.56, 0.08),
    ("long-qa", "s2"): (0.09,),
}
# Arrivals until, stop at, in seconds: long enough for queues, as short as eight GPUs' trees allow.
LASTS: Mapping[str, tuple[float, float]] = {
    "tot": (40, 100),
    "judge": (60, 150),
    "long-qa": (60, 150),
}
# The inputs of a document's dozen questions; of trees and articles it is several programs' worth.
WORKER_QUANTUM = 262_144
# Varied at D = 4: settings of D2LPM alone, against the others as they stand.
OF_D2LPM: Mapping[str, Mapping[str, Any]] = {
    "Q^w 16,384": {"worker_quantum": 16_384},
    "Q^w 65,536": {"worker_quantum": 65_536},
    "Q^w 1,048,576": {"worker_quantum": 1_048_576},
    "Q^u 65,536": {"quantum": 65_536},
    "min-match 1,024": {"min_match": 1_024},
    "Q^w 1,048,576, min-match 1,024": {"worker_quantum": 1_048_576, "min_match": 1_024},
    "Q^w 16,384, extend charged": {"worker_quantum": 16_384, "worker_charge": "extend"},
}
# Varied at D = 4 for all systems, without the largest workload: settings, then the workload's.
Given = tuple[Mapping[str, Any], Mapping[str, Any]]
OF_ALL: Mapping[str, Given] = {
    "SGLang's admission": ({"host": "sglang"}, {}),
    "cv 4": ({}, {"cv": 4}),
    "no in-batch sharing": ({"inbatch": "compute"}, {}),
}


def _case(
    point: tuple[str, str],
    replicas: int,
    system: str,
    variant: str = STATED,
    given: Given = ({}, {}),
) -> Case:
    """`given`: what the variant changes, of the settings and of the workload."""
    workload, kind = point
    rates = tuple(replicas * rate for rate in RATES[point])
    own: dict[str, Any] = {"host": "ideal", **DLPM_SYSTEMS[system], "replicas": replicas}
    if system == "d2lpm":
        own["worker_quantum"] = WORKER_QUANTUM
    own.update(given[0])
    if own["host"] == "ideal" and system in {"d2lpm", "preble"}:
        own["max_misfits"] = 32
    return Simulated(
        labels={
            "workload": workload,
            "misbehaviour": kind,
            "replicas": replicas,
            "system": system,
            "variant": variant,
        },
        source=Generated(
            workload=f"{workload}-{kind}",
            settings={"clients": 3, "rates": rates, "duration": LASTS[workload][0], **given[1]},
        ),
        settings={**ON_A100, **own},
        stop_s=LASTS[workload][1],
    )


def cases(quick: bool) -> Sequence[Case]:
    """All points of the figure, then what the paper leaves unstated, at D = 4."""
    if quick:
        points = [
            (point, 2 if point[0] == "tot" else 4) for point in RATES if point != ("tot", "s1")
        ]
        return [_case(*at, system) for at in points for system in DLPM_SYSTEMS]
    made = [
        _case(point, replicas, system)
        for point in RATES
        for replicas in (1, 2, 4, 8)
        for system in DLPM_SYSTEMS
        if (system, replicas) != ("preble", 1)  # a router between engines, omitted there too
    ]
    made += [
        _case(point, 4, "d2lpm", variant, (settings, {}))
        for variant, settings in OF_D2LPM.items()
        for point in RATES
        if point != ("tot", "s1")
    ]
    made += [
        _case(point, 4, system, variant, given)
        for variant, given in OF_ALL.items()
        for point in RATES
        if point != ("tot", "s1")
        for system in DLPM_SYSTEMS
    ]
    made += [
        _case(point, 4, "preble", "Preble by a threshold", (PREBLE_BY_THRESHOLD, {}))
        for point in RATES
        if point != ("tot", "s1")
    ]
    scarce: Given = ({"kv_tokens": 100_000}, {})
    made += [_case(("tot", "s2"), replicas, "rr+lpm", SCARCE, scarce) for replicas in (4, 8)]
    return made


SHOWN = (
    ("throughput", "Throughput", "input + 2 x output, tokens/s"),
    ("jain_client", "Jain's index", "client view"),
    ("p50", "P50 of good clients", "seconds"),
    ("p99", "P99 of good clients", "seconds"),
)


def _panel(workload: str, kind: str, metric: str, title: str, label: str) -> Panel:
    """Programs of trees and judges from start to end, first tokens of long QA (section 6.1)."""
    unit = "ttft_s" if workload == "long-qa" else "program_s"
    return Panel(
        title=f"{title}: {kind.upper()}@{workload}",
        form="bars",
        x="replicas",
        y=f"{metric}_{unit}" if metric in {"p50", "p99"} else metric,
        hue="system",
        where={"workload": workload, "misbehaviour": kind, "variant": STATED},
        x_label="GPUs (D)",
        y_label=label,
    )


STUDY = Study(
    title="Three workloads on one to eight GPUs",
    source="DLPM (arXiv:2501.14312v1), Figure 7",
    shows="throughput, fairness and good clients' latency with a client that sends more (S1) or longer (S2)",
    takes="quick 15 s; full 9 min",
    cases=cases,
    measures={
        "throughput": throughput,
        "jain_client": jain_client,
        "jain_system": jain_system,
        "hit_rate": hit_rate,
        "p50_program_s": program_completion("p50_s", without=("c0",)),
        "p99_program_s": program_completion("p99_s", without=("c0",)),
        "p50_ttft_s": ttft("p50_s", without=("c0",)),
        "p99_ttft_s": ttft("p99_s", without=("c0",)),
    },
    panels=[
        *(_panel(*point, *shown) for point in RATES for shown in SHOWN),
        Panel(
            title="Hit rate: S2@tot",
            form="bars",
            x="replicas",
            y="hit_rate",
            hue="system",
            where={"workload": "tot", "misbehaviour": "s2", "variant": STATED},
            x_label="GPUs (D)",
            y_label="share of prompt tokens",
        ),
    ],
    judge=judge,
    choices="Rates, durations, counts of clients and quanta are not printed: one misbehaving and two good "
    "clients; arrivals for 40 to 60 s, in proportion to D, stopped at 100 to 150 s; rates by the capacity "
    "measured: S1 asks for 2 to 3 times it, S2, where all send alike, for 1.3 to 2 times. Llama-3.1-8B on "
    "A100s with 449,000 KV tokens. Q^w decides long QA: one question has 21,000 tokens, and a Q^w below that "
    "moves every request to another GPU; it is 262,144 here, a document with its questions, and varied at "
    "D = 4. The ideal engine, for speed; SGLang's admission is varied at D = 4. Programs under way at the "
    "stop are in no percentile. Preble is E2 as published; by a threshold (section 7.1) at D = 4.",
)

"""DLPM Figure 7: three workloads, two kinds of misbehaving clients, one to eight GPUs, four systems."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairhit_lab.studies.dlpm.fig7_claims import FEWEST, SCARCE, column_of, judge
from fairhit_lab.studies.dlpm.shared import (
    BESIDE,
    DLPM_SYSTEMS,
    ON_A100,
    PREBLE_BY_THRESHOLD,
    STATED,
    SYSTEMS,
)
from fairhit_lab.studies.shared.measures import fewest_programs, in_summary, program_wait, wait
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.study import Case, Generated, Simulated, Study

# Programs a second, client and GPU; requests_per_s has what is served.
RATES: Mapping[tuple[str, str], tuple[float, ...]] = {
    ("tot", "s1"): (0.12,),
    ("tot", "s2"): (0.08,),
    ("judge", "s1"): (0.5,),
    ("judge", "s2"): (0.33,),
    ("long-qa", "s1"): (0.56, 0.08),
    ("long-qa", "s2"): (0.09,),
}
# Arrivals last so long that a good client can be expected to begin so many programs, and this at least;
# then the run goes on for a while before it is stopped, in seconds.
PROGRAMS = 1.5 * FEWEST
LASTS: Mapping[str, tuple[float, float]] = {
    "tot": (40, 60),
    "judge": (60, 90),
    "long-qa": (60, 90),
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
# Systems whose passes stop at a request that does not fit, or skip it, unlike as stated; at D = 4.
StopOrSkip = tuple[tuple[str, ...], Mapping[str, Any]]
STOP_OR_SKIP: Mapping[str, StopOrSkip] = {
    "all stop": (("d2lpm", "preble"), {"misfit": "stop", "max_misfits": None}),
    "all skip": (("rr+lpm", "vtc"), {"misfit": "skip", "max_misfits": 32}),
}


def _case(
    point: tuple[str, str],
    replicas: int,
    system: str,
    variant: str = STATED,
    given: Given = ({}, {}),
) -> Case:
    """A case of the figure; `given` are the settings, and the workload's, that the variant changes."""
    workload, kind = point
    rates = tuple(replicas * rate for rate in RATES[point])
    least_s, after_s = LASTS[workload]
    arrivals_s = max(least_s, round(PROGRAMS / rates[-1]))
    own: dict[str, Any] = {"host": "ideal", **SYSTEMS[system], "replicas": replicas}
    if system == "d2lpm":
        own["worker_quantum"] = WORKER_QUANTUM
    if system in {"d2lpm", "preble"} and given[0].get("host", "ideal") == "ideal":
        own["max_misfits"] = 32
    own.update(given[0])
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
            settings={"clients": 3, "rates": rates, "duration": arrivals_s, **given[1]},
        ),
        settings={**ON_A100, **own},
        stop_s=arrivals_s + after_s,
    )


def cases(quick: bool) -> Sequence[Case]:
    """The points of the figure, then what the paper leaves unstated, at D = 4."""
    if quick:
        points = [
            (point, 2 if point[0] == "tot" else 4) for point in RATES if point != ("tot", "s1")
        ]
        return [_case(*at, system) for at in points for system in DLPM_SYSTEMS]
    made = [
        _case(point, replicas, system)
        for point in RATES
        for replicas in (1, 2, 4, 8)
        for system in SYSTEMS
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
        _case(point, 4, system, variant, (settings, {}))
        for variant, (systems, settings) in STOP_OR_SKIP.items()
        for point in RATES
        if point != ("tot", "s1")
        for system in systems
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
    """A panel of the figure."""
    return Panel(
        title=f"{title}: {kind.upper()}@{workload}",
        form="bars",
        x="replicas",
        y=column_of(metric, workload),
        hue="system",
        where={"workload": workload, "misbehaviour": kind, "variant": STATED},
        x_label="GPUs (D)",
        y_label=label,
    )


STUDY = Study(
    title="Three workloads on one to eight GPUs",
    source="DLPM (arXiv:2501.14312v1), Figure 7",
    shows="throughput, fairness and good clients' latency with a client that sends more (S1) or longer (S2)",
    takes="quick 15 s; full 12 min",
    cases=cases,
    measures={
        **in_summary("throughput", "requests_per_s", "jain_client", "jain_system", "hit_rate"),
        "p50_program_s": program_wait("p50_s", without=("c0",)),
        "p99_program_s": program_wait("p99_s", without=("c0",)),
        "p50_wait_s": wait("p50_s", without=("c0",)),
        "p99_wait_s": wait("p99_s", without=("c0",)),
        "programs": fewest_programs("c0", "c1", "c2"),
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
    "clients; arrivals for 40 to 375 s, until a good client can be expected to have begun 30 programs, "
    "then 60 or 90 s more: eight GPUs for ten minutes would take hours. Points where a client began fewer "
    "than 20 are in no claim over points: one program more or less would move them. Programs and first "
    "tokens still awaited at the stop count with the time so far, so latencies under overload are too "
    "short, and their ratios too near 1. Rates are in proportion to D, by the capacity measured: S1 asks "
    "for 2 to 3 times it, the good clients for 65 to 90 % of their shares; in S2, where all send alike, "
    "every client asks for 1.3 to 2 times its share, as nothing would wait at 60 to 80 %. Llama-3.1-8B on "
    "A100s with 449,000 KV tokens. Q^w is 262,144, outside the 2,000 to 40,000 of the paper's Figure 10 "
    "(trees of thought): one question of long QA has 21,000 tokens, and a Q^w below that moves every "
    "request to another GPU; this is a document with its questions. It decides long QA and is varied at D "
    "= 4, with 16,384 inside that range. The ideal engine, for speed; SGLang's admission is varied at D = "
    "4. At a request that does not fit, passes of D2LPM and Preble skip up to 32 of them, those of "
    "VTC and LPM end: all of either kind at D = 4. Preble is E2 as published; by a threshold (section "
    f"7.1) at D = 4. {BESIDE}",
)

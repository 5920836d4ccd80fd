"""DLPM Figure 7: three workloads, two kinds of misbehaving clients, one to eight GPUs, four systems."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairhit_lab.studies.dlpm.fig7_claims import judge
from fairhit_lab.studies.dlpm.fig7_points import SCARCE, column_of
from fairhit_lab.studies.dlpm.shared import (
    BESIDE,
    DLPM_SYSTEMS,
    FLEET,
    ON_A100,
    PREBLE_BY_RATIO,
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
    ("tot", "s2"): (0.038,),
    ("judge", "s1"): (0.5,),
    ("judge", "s2"): (0.24,),
    ("long-qa", "s1"): (0.56, 0.08),
    ("long-qa", "s2"): (0.04,),
}
# Ten minutes of arrivals; then the run goes on for a while before it is stopped, in seconds.
ARRIVALS_S, QUICK_ARRIVALS_S = 600, 60
AFTER_S: Mapping[str, float] = {"tot": 60, "judge": 90, "long-qa": 90}
# The inputs of a document's dozen questions; of trees and articles it is several programs' worth.
WORKER_QUANTUM = 262_144
# The simulated queue is charged every token: before 8 GPUs the figure's run would take more than an hour.
FLEET_AT_MOST = 4
IDEAL = "ideal engine"
# All below is varied at D = 4. Settings of D2LPM alone, against the others as they stand; Figure 10 varies
# those for trees.
OF_D2LPM: Mapping[str, Mapping[str, Any]] = {
    "Q^w 16,384": {"worker_quantum": 16_384},
    "Q^w 65,536": {"worker_quantum": 65_536},
    "Q^w 1,048,576": {"worker_quantum": 1_048_576},
    "Q^u 65,536": {"quantum": 65_536},
    "min-match 1,024": {"min_match": 1_024},
    "Q^w 1,048,576, min-match 1,024": {"worker_quantum": 1_048_576, "min_match": 1_024},
    "Q^w 16,384, extend charged": {"worker_quantum": 16_384, "worker_charge": "extend"},
}
# For all systems: settings, then the workload's. Without the largest workload, S1 trees of thought.
Given = tuple[Mapping[str, Any], Mapping[str, Any]]
OF_ALL: Mapping[str, Given] = {
    IDEAL: ({"host": "ideal"}, {}),
    "ideal engine, no in-batch sharing": ({"host": "ideal", "inbatch": "compute"}, {}),
    "cv 4": ({}, {"cv": 4}),
}
# For all systems, of S2 trees of thought: what the paper leaves open about them.
OF_TREES: Mapping[str, Given] = {
    "one prefix": ({}, {"preface": (531, 0), "question": (59,)}),
    "siblings say the same": ({}, {"collapse": True}),
}
# Of one system: another Preble, and SGLang's lpm, which orders by arrival above 128 waiting requests.
OF_ONE: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "Preble by a ratio of the prompt": ("preble", PREBLE_BY_RATIO),
    "Preble by a threshold": ("preble", PREBLE_BY_THRESHOLD),
    "lpm's fall-back at 128": ("rr+lpm", {"fallback": 128}),
}


def _case(
    point: tuple[str, str],
    replicas: int,
    system: str,
    variant: str = STATED,
    given: Given = ({}, {}),
    *,
    arrivals_s: float = ARRIVALS_S,
) -> Case:
    """A case of the figure; `given` are the settings, and the workload's, that the variant changes."""
    workload, kind = point
    own: dict[str, Any] = {"host": "sglang", **SYSTEMS[system], "replicas": replicas}
    if system == "d2lpm":
        own["worker_quantum"] = WORKER_QUANTUM
    if system in {"d2lpm", "preble"} and given[0].get("host") == "ideal":
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
            settings={
                "clients": 3,
                "rates": tuple(replicas * rate for rate in RATES[point]),
                "duration": arrivals_s,
                **given[1],
            },
        ),
        settings={**ON_A100, **own},
        stop_s=arrivals_s + AFTER_S[workload],
    )


def cases(quick: bool) -> Sequence[Case]:
    """The points of the figure, then what the paper leaves unstated, at D = 4."""
    smaller = [point for point in RATES if point != ("tot", "s1")]
    if quick:
        points = [(point, 2 if point[0] == "tot" else 4) for point in smaller]
        return [
            _case(*at, system, arrivals_s=QUICK_ARRIVALS_S)
            for at in points
            for system in DLPM_SYSTEMS
        ]
    made = [
        _case(point, replicas, system)
        for point in RATES
        for replicas in (1, 2, 4, 8)
        for system in SYSTEMS
        # Preble is a router between engines, omitted there too; the queue is in no claim.
        if (system, replicas) != ("preble", 1) and (system != FLEET or replicas <= FLEET_AT_MOST)
    ]
    made += [
        _case(point, 4, "d2lpm", variant, (settings, {}))
        for variant, settings in OF_D2LPM.items()
        for point in smaller
        if point[0] != "tot"
    ]
    made += [
        _case(point, 4, system, variant, given)
        for of, points in ((OF_ALL, smaller), (OF_TREES, [("tot", "s2")]))
        for variant, given in of.items()
        for point in points
        for system in DLPM_SYSTEMS
    ]
    made += [
        _case(point, 4, system, variant, (settings, {}))
        for variant, (system, settings) in OF_ONE.items()
        for point in smaller
    ]
    scarce: Given = ({"kv_tokens": 100_000}, {})
    made += [_case(("tot", "s2"), replicas, "rr+lpm", SCARCE, scarce) for replicas in (4, 8)]
    return made


SHOWN = (
    ("throughput", "Throughput", "input + 2 x output, tokens/s"),
    ("jain_client", "Jain's index", "client view"),
    ("p50", "P50", "good clients' seconds"),
    ("p99", "P99", "good clients' seconds"),
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
        log_y=metric in {"p50", "p99"},
    )


STUDY = Study(
    title="Three workloads on one to eight GPUs",
    source="DLPM (arXiv:2501.14312v1), Figure 7",
    shows="throughput, fairness and good clients' latency with a client that sends more (S1) or longer (S2)",
    takes="quick 15 s; full 55 min",
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
    "clients; ten minutes of arrivals, then 60 or 90 s more. Points where a client began fewer than 20 "
    "programs are in no claim over points: one program more or less would move them. Programs and first "
    "tokens still awaited at the stop count with the time so far: what a ratio could be at most is "
    "computed from that. Of throughput the limit is what is asked for. Claims of more than 1x in the mean "
    "ask for the direction alone and can hardly fail; those with a number ask for the size. Rates are in "
    "proportion to D: S1 asks for 2 to 3 times what is served, the good clients for 65 to 90 % of their "
    "shares; S2 asks for what D2LPM can serve before eight GPUs and RR+LPM cannot. Llama-3.1-8B on A100s "
    "with 449,000 KV tokens under SGLang's rules of admission (host sglang). Q^w is 262,144, outside the "
    "2,000 to 40,000 of the paper's Figure 10 (trees of thought): one question of long QA has 21,000 tokens, "
    "and a Q^w below that moves every request to another GPU; this is a document with its questions. Varied "
    "at D = 4, each over the same points, those not varied as stated: D2LPM's quanta and min-match on judge "
    "and long QA, the ideal engine (D2LPM and Preble skip up to 32 requests that do not fit, VTC and LPM do "
    "not) with and without in-batch sharing, burstier arrivals, one prefix for all of client 0's trees, "
    "siblings that say the same, lpm's fall-back to the order of arrival above 128 waiting requests, Preble "
    f"by a ratio of the prompt (section 6.1) and by a threshold (section 7.1) instead of E2. {BESIDE} It "
    f"stands before up to {FLEET_AT_MOST} GPUs.",
)

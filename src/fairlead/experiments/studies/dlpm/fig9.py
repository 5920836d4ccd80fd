"""DLPM Figure 9: three clients' trees of thought on four GPUs, one of them with ten times the prefix."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.experiments.studies.dlpm.systems import DLPM_SYSTEMS, ON_A10G, PREBLE_BY_THRESHOLD
from fairlead.experiments.study.claims import above, judged, within
from fairlead.experiments.study.dlpm_measures import lead_of, response_peak, slow_share
from fairlead.experiments.study.measures import (
    hit_rate,
    jain_client,
    jain_system,
    makespan_s,
    throughput,
    ttft,
)
from fairlead.experiments.study.panel import Panel
from fairlead.experiments.study.results import Interval, Results, interval_of
from fairlead.experiments.study.study import Case, Generated, Simulated, Study, Verdict

# Client 0's ten times 59 tokens: a question of its own each time, or one text before all of them.
OWN = {"question": (590, 59)}
SHARED = {"preface": (531, 0)}
SYSTEMS = {**DLPM_SYSTEMS, "threshold": PREBLE_BY_THRESHOLD}
STATED, ONE_PREFIX = "stated", "one prefix"
BY_THRESHOLD = "a threshold without balancing and one prefix for all of client 0's trees"
# What the paper leaves open, for those systems that a claim compares: workload, then settings.
OTHERS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "ideal engine": (OWN, {"host": "ideal"}),
    "40,000 KV tokens": (OWN, {"host": "ideal", "kv_tokens": 40_000}),
    "no in-batch sharing": (OWN, {"host": "ideal", "inbatch": "compute"}),
    "siblings say the same": ({**OWN, "collapse": True}, {"host": "ideal"}),
}


def cases(quick: bool) -> Sequence[Case]:
    """A closed list of programs, run to its end: first as stated, then with what is unstated varied."""
    arrivals = {"rates": (0.4,), "programs_each": 8 if quick else 16}

    def case(
        system: str, variant: str, workload: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> Case:
        return Simulated(
            labels={"system": system, "variant": variant},
            source=Generated(workload="tot", settings={"branches": (3,), **arrivals, **workload}),
            settings={**ON_A10G, **SYSTEMS[system], "replicas": 4, **settings},
            series=True,
        )

    made = [case(system, STATED, OWN, {"host": "sglang"}) for system in DLPM_SYSTEMS]
    made += [
        case(system, ONE_PREFIX, SHARED, {"host": "sglang"})
        for system in (("d2lpm", "threshold") if quick else ("d2lpm", "preble", "threshold"))
    ]
    if not quick:
        made += [
            case(system, variant, workload, settings)
            for variant, (workload, settings) in OTHERS.items()
            for system in ("d2lpm", "preble", "vtc")
        ]
    return made


def judge(results: Results) -> Sequence[Verdict]:
    """Completion times, Preble's collapse, and who got what."""
    made = [*_completion(results), *_shares(results), *_waits(results)]
    if set(OTHERS) <= set(results.labels("variant")):  # quick runs are over in a few minutes
        made.append(_collapse(results))
    return made


def _over_d2lpm(results: Results, metric: str, system: str, variant: str) -> Interval:
    of = {"variant": variant}
    return results.ratio(metric, {**of, "system": system}, {**of, "system": "d2lpm"})


def _completion(results: Results) -> list[Verdict]:
    others = [name for name in OTHERS if name in results.labels("variant")]
    vtc_hits = results.interval("hit_rate", system="vtc", variant=STATED)
    return [
        judged(
            claim=f"D2LPM ends before {name}, which takes longer by the factor",
            paper="first of all; up to 2x against VTC and Preble",
            ours=_over_d2lpm(results, "makespan_s", system, STATED),
            unit="x",
            rule=above(1),
            why=f"VTC's hit rate is {vtc_hits}: siblings come together and find their parent's text under "
            "every policy; without in-batch sharing D2LPM, which sends them to one GPU, loses most",
            elsewhere={
                variant: _over_d2lpm(results, "makespan_s", system, variant)
                for variant in others
                if system != "rr+lpm"
            },
        )
        for system, name in (("vtc", "VTC"), ("preble", "Preble"), ("rr+lpm", "RR+LPM"))
    ]


def _shares(results: Results) -> list[Verdict]:
    made = [
        judged(
            claim=f"actual service is shared equally under {name}: Jain's index, system view (0.98 or more)",
            paper="ideal sharing",
            ours=results.interval("jain_system", system=system, variant=STATED),
            rule=above(0.98),
            why="while all three are active",
        )
        for system, name in (("vtc", "VTC"), ("d2lpm", "D2LPM"))
    ]
    made.append(
        judged(
            claim="under D2LPM client 0's client-view service is above the others', by the factor",
            paper="above 1: its longer prefix makes its tokens cheaper",
            ours=results.interval("lead_client", system="d2lpm", variant=STATED),
            unit="x",
            rule=above(1),
            why="first half of the run",
        )
    )
    return made


def _waits(results: Results) -> list[Verdict]:
    others = [name for name in OTHERS if name in results.labels("variant")]
    return [
        judged(
            claim="under VTC requests wait longer for their first token than under D2LPM, in the mean",
            paper="D2LPM's response times are lower throughout",
            ours=_over_d2lpm(results, "ttft_mean_s", "vtc", STATED),
            unit="x",
            rule=above(1),
            why="mean over the clients",
            elsewhere={name: _over_d2lpm(results, "ttft_mean_s", "vtc", name) for name in others},
        ),
        judged(
            claim="Preble leaves clients 1 and 2 to wait: highest mean response of a minute, over D2LPM's",
            paper="up to 600 s of queueing, against tens",
            ours=_over_d2lpm(results, "peak_response_s", "preble", STATED),
            unit="x",
            rule=above(1),
            why="E2 as published",
            elsewhere={
                BY_THRESHOLD: _over_d2lpm(results, "peak_response_s", "threshold", ONE_PREFIX)
            },
        ),
    ]


def _collapse(results: Results) -> Verdict:
    """A quarter of the capacity: a share of minutes at less than 40 % of the best one."""
    rows = {
        "E2 with a text of its own for each tree": ("preble", STATED),
        "E2 with one prefix for all of client 0's trees": ("preble", ONE_PREFIX),
        BY_THRESHOLD: ("threshold", ONE_PREFIX),
    }
    excess = {
        name: _excess(results, system, variant)
        for name, (system, variant) in rows.items()
        if results.values("slow_share", system=system, variant=variant)
    }
    first, *rest = excess
    return judged(
        claim="Preble falls to about 1/4 of the cluster's capacity: share of its minutes below 40 % "
        "of the best one, beyond D2LPM's own",
        paper="about a third of the run (300 to 600 s)",
        ours=excess[first],
        rule=within(0.1, 1),
        why="E2 as published weighs load and moves prefixes, so no GPU keeps them all",
        elsewhere={name: excess[name] for name in rest},
    )


def _excess(results: Results, system: str, variant: str) -> Interval:
    theirs = results.values("slow_share", system=system, variant=variant)
    own = results.values("slow_share", system="d2lpm", variant=variant)
    return interval_of(theirs[seed] - own[seed] for seed in theirs if seed in own)


def _rows_of(metric: str, title: str, label: str) -> list[Panel]:
    return [
        Panel(
            title=f"{title}: {system}",
            form="lines",
            of="series",
            x="time_s",
            y=metric,
            hue="client",
            where={"system": system, "variant": variant},
            x_label="time, s",
            y_label=label,
        )
        for system, variant in (
            *((name, STATED) for name in DLPM_SYSTEMS),
            ("threshold", ONE_PREFIX),
        )
    ]


STUDY = Study(
    title="Case study on four GPUs",
    source="DLPM (arXiv:2501.14312v1), Figure 9",
    shows="response time, actual service and service as clients see it, to the end of a list of programs",
    takes="quick 15 s; full 6 min",
    cases=cases,
    measures={
        "makespan_s": makespan_s,
        "throughput": throughput,
        "hit_rate": hit_rate,
        "jain_client": jain_client,
        "jain_system": jain_system,
        "lead_client": lead_of("c0", "service_client"),
        "lead_system": lead_of("c0", "service_system"),
        "ttft_mean_s": ttft("mean_s"),
        "peak_response_s": response_peak(without=("c0",)),
        "slow_share": slow_share,
    },
    panels=[
        *_rows_of("response_time", "Response time", "seconds to the first token"),
        *_rows_of("service_system", "Actual service", "extend + 2 x output, tokens/s"),
        *_rows_of("service_client", "Service", "input + 2 x output, tokens/s"),
        Panel(
            title="End to end",
            form="bars",
            x="variant",
            y="makespan_s",
            hue="system",
            y_label="seconds to the last finish",
        ),
    ],
    judge=judge,
    choices="Rates and lengths are unstated: 16 trees each (quick: 8) at 0.4 a second: all of them are there "
    "before a tenth is done. SGLang's rules of admission (host sglang), 129,000 KV tokens a GPU; scarce "
    "memory and in-batch sharing are varied on the ideal engine. Is client 0's longer prefix a longer "
    "question each time (stated) or one text for all its trees (one prefix)? Both. Preble: E2 as published, "
    "and as this paper tells it: to the longest match above a threshold (threshold).",
)

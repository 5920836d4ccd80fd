"""DLPM Figure 9: three clients' trees of thought on four GPUs, one of them with ten times the prefix."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairhit_lab.studies.dlpm.fig9_claims import APART, ONE_PREFIX, judge
from fairhit_lab.studies.dlpm.over_time import over_time
from fairhit_lab.studies.dlpm.systems import (
    DLPM_SYSTEMS,
    ON_A10G,
    PREBLE_BY_THRESHOLD,
)
from fairhit_lab.studies.dlpm.varied import STATED
from fairhit_lab.studies.shared.dlpm_measures import lead_of, response_peak, slow_share
from fairhit_lab.studies.shared.measures import (
    hit_rate,
    jain_client,
    jain_system,
    makespan_s,
    throughput,
    ttft,
)
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.study import Case, Generated, Simulated, Study

# Client 0's ten times 59 tokens: a question of its own each time, or one text before all of them.
OWN = {"question": (590, 59)}
SHARED = {"preface": (531, 0)}
SYSTEMS = {**DLPM_SYSTEMS, "threshold": PREBLE_BY_THRESHOLD}
# What the paper leaves open, for those systems that a claim compares: workload, then settings.
OTHERS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "ideal engine": (OWN, {"host": "ideal"}),
    "40,000 KV tokens": (OWN, {"host": "ideal", "kv_tokens": 40_000}),
    APART: (OWN, {"host": "ideal", "inbatch": "compute"}),
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
        *over_time(
            ("response_time", "service_system", "service_client"),
            {
                **{system: {"system": system, "variant": STATED} for system in DLPM_SYSTEMS},
                "threshold": {"system": "threshold", "variant": ONE_PREFIX},
            },
        ),
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
    choices="Rates and lengths are unstated: 16 trees each (quick: 8) at 0.4 a second, so that the last "
    "comes after about 40 s. SGLang's rules of admission (host sglang), 129,000 KV tokens a GPU; scarce "
    "memory and in-batch sharing are varied on the ideal engine. With SGLang's rules every look ends at a "
    "request that does not fit; on the ideal engine looks of D2LPM and Preble pass it over, as many as there "
    "are (max_misfits is not set: queues are short), and VTC's end. Is client 0's longer prefix a longer "
    "question each time (stated) or one text for all its trees (one prefix)? Both. Preble: E2 as published, "
    "and as this paper tells it: to the longest match above a threshold (threshold).",
)

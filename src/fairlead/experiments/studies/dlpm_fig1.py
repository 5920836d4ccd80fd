"""DLPM Figure 1: throughput against fairness on one GPU; DLPM's quantum moves between VTC and LPM."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.experiments.measures import hit_rate, jain_client, jain_system, throughput
from fairlead.experiments.panel import Panel
from fairlead.experiments.results import Results
from fairlead.experiments.studies.systems import ON_A10G
from fairlead.experiments.study import Case, Generated, Simulated, Study, Verdict

QUANTA = (256, 1_024, 4_096, 16_384, 65_536)
OTHERS = ("vtc", "lpm")


def cases(quick: bool) -> Sequence[Case]:
    """VTC, LPM, and DLPM with each quantum, on trees of thought of which client 0 grows too many."""
    duration_s = 120 if quick else 900
    source = Generated(
        workload="tot-s1", settings={"clients": 3, "rates": (0.05,), "duration": duration_s}
    )

    def case(policy: str, quantum: int, settings: Mapping[str, Any]) -> Case:
        return Simulated(
            labels={"policy": policy, "quantum": quantum},
            source=source,
            settings={**ON_A10G, "scheduler": policy, **settings},
            stop_s=duration_s,
        )

    return [
        *(case(name, 0, {}) for name in OTHERS),
        *(case("dlpm", quantum, {"quantum": quantum}) for quantum in QUANTA),
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """DLPM lies beyond the line from VTC to LPM."""
    best = max(
        (
            results.ratio("throughput", {"policy": "dlpm", "quantum": q}, {"policy": "vtc"})
            for q in QUANTA
        ),
        key=lambda ratio: ratio.median,
    )
    return [
        Verdict(
            claim="some quantum gives DLPM more throughput than VTC",
            paper="above 1x",
            ours=f"{best}x",
            holds="holds" if best.low > 1 else "does not hold",
            why="" if best.low > 1 else "see the rows",
        )
    ]


STUDY = Study(
    title="Throughput against fairness",
    source="DLPM (arXiv:2501.14312v1), Figure 1",
    shows="DLPM's quantum moves between VTC's fairness and LPM's throughput",
    takes="quick 10 s; full 3 min",
    cases=cases,
    measures={
        "throughput": throughput,
        "jain_client": jain_client,
        "jain_system": jain_system,
        "hit_rate": hit_rate,
    },
    panels=[
        Panel(
            title="One A10G, trees of thought (S1)",
            form="path",
            x="throughput",
            y="jain_client",
            hue="policy",
            x_label="throughput, service tokens/s",
            y_label="Jain's index, client view",
            zero=False,
        )
    ],
    judge=judge,
    choices="Rates and quanta are not printed: 0.05 trees a second and client, quanta by factors of 4.",
)

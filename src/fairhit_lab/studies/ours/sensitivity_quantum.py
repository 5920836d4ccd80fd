"""The effect of DLPM's quantum Q^u on throughput and fairness, on every kind of workload."""

from collections.abc import Sequence

from fairhit_lab.studies.ours.comparing import MEASURES
from fairhit_lab.studies.ours.contention import LOADS, contended
from fairhit_lab.studies.ours.sensitivity import curves, each_value, frontier
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Study, Verdict

QUANTA = (256, 1_024, 4_096, 16_384, 65_536)
QUICK_QUANTA = (4_096, 16_384)
QUICK_LOADS = ("judge-s1", "long-qa-s1")
QUICK_S = 100


def cases(quick: bool) -> Sequence[Case]:
    """DLPM with each quantum on each workload; those of `pareto` among them are the same runs."""
    return [
        contended(
            load,
            {"policy": "dlpm", "quantum": quantum},
            {"scheduler": "dlpm", "quantum": quantum},
            duration_s=QUICK_S if quick else None,
        )
        for load in (QUICK_LOADS if quick else LOADS)
        for quantum in (QUICK_QUANTA if quick else QUANTA)
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on each quantum, and on the theorem's bound."""
    return each_value(results, "quantum", "Q^u", tuple(LOADS))


STUDY = Study(
    title="Sensitivity to DLPM's quantum",
    source="beyond the papers: one engine",
    shows="throughput, fairness and waits by Q^u, for each workload",
    takes="quick 3 s; full 1 min, most of it shared with pareto",
    cases=cases,
    measures=MEASURES,
    panels=[
        frontier("Q^u over the workloads (medians)"),
        *curves("quantum", "Q^u, tokens of service"),
    ],
    judge=judge,
    choices="Workloads, engine and rates as in `pareto`.",
)

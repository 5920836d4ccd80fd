"""VTC Figure 7: Poisson arrivals, many short requests against few long ones."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Generated, Study, Verdict
from fairhit_lab.studies.vtc.differences import (
    DIFFERENCES,
    grows_under_fcfs,
    later_within_bound,
    within_bound,
)
from fairhit_lab.studies.vtc.shared import BOUND, CHOICES, PAPER, both, curve
from fairhit_lab.studies.vtc_artifact.measures import TABLE, rate


def cases(quick: bool) -> Sequence[Case]:
    """FCFS and VTC; 10 minutes of requests, quick 4."""
    source = Generated(workload="poisson_short_long", settings={"duration": 240 if quick else 600})
    return both(source, "poisson_short_long")


def judge(results: Results) -> Sequence[Verdict]:
    """Bounded or not."""
    return [
        within_bound(results, f"bounded (by {BOUND:,})"),
        later_within_bound(results, f"at most {BOUND:,}"),
        grows_under_fcfs(results, "not fair", 1.5),
    ]


STUDY = Study(
    title="Many short requests against few long ones",
    source=f"{PAPER}, Figure 7",
    shows="the difference of accumulated service of two clients with Poisson arrivals, one with many short"
    " requests, one with few long ones",
    takes="quick 3 s; full 20 s",
    cases=cases,
    measures={
        **TABLE,
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        **DIFFERENCES,
    },
    panels=[
        curve("(a) Received service rate (VTC)", "service_rate", scheduler="vtc"),
        curve("(b) Difference of service", "difference", "scheduler"),
    ],
    judge=judge,
    choices=CHOICES,
)

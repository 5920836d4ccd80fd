"""VTC Figure 3: two clients over capacity, one with twice the other's requests."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import above, judged
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Generated, Study, Verdict
from fairhit_lab.studies.vtc.differences import (
    DIFFERENCES,
    grows_under_fcfs,
    within_bound,
)
from fairhit_lab.studies.vtc.shared import (
    BOUND,
    CHOICES,
    MEASURED,
    PAPER,
    curve,
    measured,
    ours,
    simulated,
    theirs,
)
from fairhit_lab.studies.vtc_artifact.measures import TABLE, evenness, least_share


def cases(quick: bool) -> Sequence[Case]:
    """FCFS and VTC, simulated, and as measured; 10 minutes of requests, quick 5."""
    source = Generated(workload="overload", settings={"duration": 300 if quick else 600})
    return [
        simulated("fcfs", source),
        simulated("vtc", source),
        measured("fcfs", "overload"),
        measured("vtc", "overload_600s"),
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """Bounded or not, growing or not, equal or not."""
    return [
        within_bound(results, f"at most {BOUND:,} tokens"),
        grows_under_fcfs(results, "without bound", 1.8),
        judged(
            claim="VTC: both get the same service at any time (over windows of 60 s, least by most)",
            paper=f"1 (no number printed); {theirs(results, 'least_share', 'vtc')}",
            ours=ours(results, "least_share", "vtc"),
            rule=above(0.9),
            too_low=f"over the whole run it is {ours(results, 'even', 'vtc')}",
        ),
    ]


STUDY = Study(
    title="Two clients over capacity",
    source=f"{PAPER}, Figure 3",
    shows="the difference of two clients' accumulated service over time, and each one's service rate",
    takes="quick 2 s; full 10 s",
    cases=cases,
    measures={
        **TABLE,
        **DIFFERENCES,
        "least_share": least_share("c0", "c1"),
        "even": evenness({"c0": 1, "c1": 1}),
    },
    panels=[
        curve("(a) Difference of service", "difference", "scheduler"),
        curve("(a) as the authors measured it", "difference", "scheduler", origin=MEASURED),
        curve("(b) Received service rate (VTC)", "service_rate", scheduler="vtc"),
        curve("(b) as the authors measured it", "service_rate", origin=MEASURED, scheduler="vtc"),
    ],
    judge=judge,
    choices=CHOICES,
)

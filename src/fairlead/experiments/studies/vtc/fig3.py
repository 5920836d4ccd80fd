"""VTC Figure 3: two clients over capacity, one with twice the other's requests."""

from collections.abc import Sequence

from fairlead.experiments.artifact.measures import (
    TABLE,
    difference_at,
    least_share,
    most_difference,
)
from fairlead.experiments.studies.vtc.shared import (
    BOUND,
    CHOICES,
    MEASURED,
    PAPER,
    curve,
    measured,
    ours,
    quotient,
    simulated,
    theirs,
)
from fairlead.experiments.study.claims import above, below, judged
from fairlead.experiments.study.results import Results
from fairlead.experiments.study.study import Case, Generated, Study, Verdict


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
        judged(
            claim="VTC: accumulated service of both differs by no more than Theorem 4.4 allows",
            paper=f"at most {BOUND:,} tokens; {theirs(results, 'most_difference', 'vtc')}",
            ours=ours(results, "most_difference", "vtc"),
            rule=below(BOUND),
            why="beyond the bound",
        ),
        judged(
            claim="FCFS: the difference grows all the time (at the end, by that at half-time)",
            paper=f"without bound; {theirs(results, 'last_difference', 'fcfs')}",
            ours=quotient(results, "last_difference", "half_difference", "fcfs"),
            rule=above(1.8),
            why="it levels off",
            unit="x",
        ),
        judged(
            claim="VTC: both get the same service at any time (over windows of 60 s, least by most)",
            paper=f"1 (no number printed); {theirs(results, 'least_share', 'vtc')}",
            ours=ours(results, "least_share", "vtc"),
            rule=above(0.9),
            why="VTC charges outputs as they come, so batches of one client and of the other take turns,"
            " and a window of 60 s holds no whole number of turns; the means over minutes are equal."
            " Whether turns set in hangs on the first passes: the authors' run of 360 s has them"
            " (Table 5), their run of 600 s of the same workload has not",
        ),
    ]


STUDY = Study(
    title="Two clients over capacity",
    source=f"{PAPER}, Figure 3",
    shows="VTC keeps the difference of the clients' service bounded, FCFS does not",
    takes="quick 2 s; full 10 s",
    cases=cases,
    measures={
        **TABLE,
        "most_difference": most_difference,
        "half_difference": difference_at(0.5),
        "last_difference": difference_at(1.0),
        "least_share": least_share("c0", "c1"),
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

"""VTC Figure 7: Poisson arrivals, many short requests against few long ones."""

from collections.abc import Sequence

from fairlead.experiments.artifact.measures import (
    TABLE,
    difference_at,
    later_swing,
    most_difference,
    rate,
)
from fairlead.experiments.studies.vtc.shared import (
    BOUND,
    CHOICES,
    LATE,
    PAPER,
    both,
    curve,
    ours,
    quotient,
    theirs,
)
from fairlead.experiments.study.claims import above, below, judged
from fairlead.experiments.study.results import Results
from fairlead.experiments.study.study import Case, Generated, Study, Verdict


def cases(quick: bool) -> Sequence[Case]:
    """FCFS and VTC; 10 minutes of requests, quick 4."""
    source = Generated(workload="poisson_short_long", settings={"duration": 240 if quick else 600})
    return both(source, "poisson_short_long")


def judge(results: Results) -> Sequence[Verdict]:
    """Bounded or not."""
    return [
        judged(
            claim="VTC: accumulated service of both differs by no more than Theorem 4.4 allows",
            paper=f"bounded (by {BOUND:,}); {theirs(results, 'most_difference', 'vtc')}",
            ours=ours(results, "most_difference", "vtc"),
            rule=below(BOUND),
            why=LATE,
        ),
        judged(
            claim="VTC: in the second half, where both always wait, it moves by no more than that",
            paper=f"at most {BOUND:,}; {theirs(results, 'later_swing', 'vtc')}",
            ours=ours(results, "later_swing", "vtc"),
            rule=below(BOUND),
            why="it goes on growing",
        ),
        judged(
            claim="FCFS: the difference goes on growing (at the end, by that at half-time)",
            paper=f"not fair; {theirs(results, 'last_difference', 'fcfs')}",
            ours=quotient(results, "last_difference", "half_difference", "fcfs"),
            rule=above(1.5),
            why="it levels off",
            unit="x",
        ),
    ]


STUDY = Study(
    title="Many short requests against few long ones",
    source=f"{PAPER}, Figure 7",
    shows="VTC bounds the difference of service under Poisson arrivals and unequal lengths",
    takes="quick 3 s; full 20 s",
    cases=cases,
    measures={
        **TABLE,
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        "most_difference": most_difference,
        "later_swing": later_swing,
        "half_difference": difference_at(0.5),
        "last_difference": difference_at(1.0),
    },
    panels=[
        curve("(a) Received service rate (VTC)", "service_rate", scheduler="vtc"),
        curve("(b) Difference of service", "difference", "scheduler"),
    ],
    judge=judge,
    choices=CHOICES,
)

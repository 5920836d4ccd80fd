"""VTC Figure 13: response times on the real trace behind limits of requests a minute."""

from collections.abc import Sequence

from fairlead.experiments.artifact.measures import (
    TABLE,
    longest_mean_response,
    response,
    share_served,
)
from fairlead.experiments.studies.vtc.shared import (
    CHOICES,
    HEAVIEST,
    MIDDLING,
    PAPER,
    REAL,
    curve,
    measured,
    ours,
    simulated,
    theirs,
)
from fairlead.experiments.study.claims import above, below, judged
from fairlead.experiments.study.results import Results
from fairlead.experiments.study.study import Case, Study, Verdict

SHOWN = (*MIDDLING, *HEAVIEST)
LIMITS = (5, 15, 20, 30)
RPM_5 = {"scheduler": "rpm-5", "origin": "simulated"}
FCFS = {"scheduler": "fcfs", "origin": "simulated"}


def cases(_: bool) -> Sequence[Case]:
    """The limits of the figure, and FCFS, which has none."""
    return [
        *(simulated(f"rpm-{limit}", REAL, shown=None if limit == 5 else SHOWN) for limit in LIMITS),
        simulated("fcfs", REAL, shown=SHOWN),
        *(measured(name, "real", shown=SHOWN) for name in ("rpm-5", "rpm-20", "fcfs")),
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """Either fair or busy."""
    return [
        judged(
            claim="RPM 5: all clients have a short response time (the longest mean of any)",
            paper=f"similar for all; {theirs(results, 'longest_s', 'rpm-5', ' s')}",
            ours=ours(results, "longest_s", "rpm-5"),
            rule=below(5),
            why="some client waits",
            unit=" s",
        ),
        judged(
            claim="RPM 5 rejects more than it has to (tokens/s, by FCFS's)",
            paper="340 of 777: 0.44x",
            ours=results.ratio("tokens_per_s", RPM_5, FCFS),
            rule=below(0.5),
            why="it serves more",
            unit="x",
        ),
        judged(
            claim="RPM 30 protects nobody (mean response time of the 13th and 14th client)",
            paper="the response time for all requests grows up",
            ours=ours(results, "middling_s", "rpm-30"),
            rule=above(10),
            why="they hardly wait",
            unit=" s",
        ),
        judged(
            claim="RPM 30 is close to FCFS (mean response time of the 13th and 14th client, by FCFS's)",
            paper="converges to FCFS (no number printed)",
            ours=results.ratio("middling_s", {**FCFS, "scheduler": "rpm-30"}, FCFS),
            rule=above(0.5),
            why="what it rejects keeps the queue shorter than FCFS's",
            unit="x",
        ),
    ]


STUDY = Study(
    title="Response times behind limits of requests a minute",
    source=f"{PAPER}, Figure 13",
    shows="a low limit wastes the engine, a high one is FCFS",
    takes="quick 4 s; full 20 s",
    cases=cases,
    measures={
        **TABLE,
        "middling_s": response(*MIDDLING),
        "heaviest_s": response(*HEAVIEST),
        "longest_s": longest_mean_response(),
        "share_served": share_served,
    },
    panels=[
        curve(
            f"RPM {limit}" + (" (all clients)" if limit == 5 else ""),
            "response_time",
            scheduler=f"rpm-{limit}",
        )
        for limit in LIMITS
    ],
    judge=judge,
    choices=CHOICES,
)

"""VTC Figures 11 and 12: the real trace under FCFS and VTC; who waits, and who asked for it."""

from collections.abc import Sequence

from fairlead.experiments.artifact.measures import TABLE, longest_mean_response, response
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


def cases(_: bool) -> Sequence[Case]:
    """FCFS and VTC."""
    return [
        *(simulated(name, REAL, shown=SHOWN) for name in ("fcfs", "vtc")),
        *(measured(name, "real", shown=SHOWN) for name in ("fcfs", "vtc")),
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """Who is delayed under which."""
    return [
        judged(
            claim="FCFS: everybody waits (mean response time of the 13th and 14th client)",
            paper=f"increases drastically for all; {theirs(results, 'middling_s', 'fcfs', ' s')}",
            ours=ours(results, "middling_s", "fcfs"),
            rule=above(30),
            why="FCFS protects them",
            unit=" s",
        ),
        judged(
            claim="VTC: clients that ask for little are isolated (the 13th and 14th)",
            paper=f"flat; {theirs(results, 'middling_s', 'vtc', ' s')}",
            ours=ours(results, "middling_s", "vtc"),
            rule=below(10),
            why="they wait for memory",
            unit=" s",
        ),
        judged(
            claim="VTC: of all clients but the two heaviest, the one with the longest mean response time",
            paper=f"flat; {theirs(results, 'others_s', 'vtc', ' s')}",
            ours=ours(results, "others_s", "vtc"),
            rule=below(15),
            why="some ask for more than their share for a while",
            unit=" s",
        ),
        judged(
            claim="VTC: the heaviest client waits",
            paper=f"drastic increase; {theirs(results, 'heaviest_s', 'vtc', ' s')}",
            ours=ours(results, "heaviest_s", "vtc"),
            rule=above(60),
            why="it does not ask for more than its share",
            unit=" s",
        ),
        judged(
            claim="VTC: the second heaviest client waits",
            paper=f"drastic increase; {theirs(results, 'second_s', 'vtc', ' s')}",
            ours=ours(results, "second_s", "vtc"),
            rule=above(30),
            why="it does not ask for more than its share",
            unit=" s",
        ),
    ]


STUDY = Study(
    title="Response times on the real trace",
    source=f"{PAPER}, Figures 11 and 12",
    shows="FCFS delays everybody, VTC only those who ask for more than their share",
    takes="quick 3 s; full 10 s",
    cases=cases,
    measures={
        **TABLE,
        "middling_s": response(*MIDDLING),
        "second_s": response(HEAVIEST[0]),
        "heaviest_s": response(HEAVIEST[1]),
        "others_s": longest_mean_response(*HEAVIEST),
    },
    panels=[
        curve("Figure 11: requested (of these four)", "request_rate", scheduler="fcfs"),
        curve("Figure 11: requested by all 27", "total_request_rate", scheduler="fcfs"),
        curve("Figure 12: response time (FCFS)", "response_time", scheduler="fcfs"),
        curve("Figure 12: response time (VTC)", "response_time", scheduler="vtc"),
    ],
    judge=judge,
    choices=f"{CHOICES} Shown are the 13th, 14th, 26th and 27th of 27 clients by requests sent. The paper"
    " says 210 requests a minute; the trace that it ships, and ran, has 150.",
)

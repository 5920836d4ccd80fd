"""VTC Figures 11 and 12: the real trace under FCFS and VTC; who waits, and who asked for it."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import above, below
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Study, Verdict
from fairhit_lab.studies.vtc.responses import (
    RESPONSES,
    WaitClaim,
    on_real_trace,
    wait_verdict,
)
from fairhit_lab.studies.vtc.shared import CHOICES, PAPER, curve
from fairhit_lab.studies.vtc_artifact.measures import TABLE


def cases(_: bool) -> Sequence[Case]:
    """FCFS and VTC."""
    return on_real_trace(("fcfs", "vtc"), ("fcfs", "vtc"))


CLAIMS = (
    WaitClaim(
        claim="FCFS: everybody waits (mean response time of the 13th and 14th client)",
        metric="middling_s",
        scheduler="fcfs",
        printed="increases drastically for all",
        rule=above(30),
    ),
    WaitClaim(
        claim="VTC: clients that ask for little are isolated (the 13th and 14th)",
        metric="middling_s",
        scheduler="vtc",
        printed="flat",
        rule=below(10),
    ),
    WaitClaim(
        claim="VTC: of all clients but the two heaviest, the one with the longest mean response time",
        metric="others_s",
        scheduler="vtc",
        printed="flat",
        rule=below(15),
    ),
    WaitClaim(
        claim="VTC: the heaviest client waits",
        metric="heaviest_s",
        scheduler="vtc",
        printed="drastic increase",
        rule=above(60),
    ),
    WaitClaim(
        claim="VTC: the second heaviest client waits",
        metric="second_s",
        scheduler="vtc",
        printed="drastic increase",
        rule=above(30),
    ),
)


def judge(results: Results) -> Sequence[Verdict]:
    """Who is delayed under which."""
    return [wait_verdict(results, claim) for claim in CLAIMS]


STUDY = Study(
    title="Response times on the real trace",
    source=f"{PAPER}, Figures 11 and 12",
    shows="what clients of the real trace ask for, and their response times under FCFS and VTC",
    takes="quick 3 s; full 10 s",
    cases=cases,
    measures={**TABLE, **RESPONSES},
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

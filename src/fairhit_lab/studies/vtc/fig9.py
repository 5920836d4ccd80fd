"""VTC Figure 9: a client below its share, beside one whose requests grow past it."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import above, below, judged, within
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Generated, Study, Verdict
from fairhit_lab.studies.vtc.shared import (
    CHOICES,
    PAPER,
    both,
    curve,
    ours,
    quotient,
    rates_and_responses,
    theirs,
    told,
    under,
)
from fairhit_lab.studies.vtc_artifact.measures import TABLE, longest_response, rate, response


def cases(_: bool) -> Sequence[Case]:
    """FCFS and VTC; 10 minutes of requests."""
    return both(Generated(workload="increase"), "increase")


RESPONSES = {
    "response_c0_s": "in the mean",
    "late_response_c0_s": "in the last third",
    "longest_c0_s": "at most",
}


def judge(results: Results) -> Sequence[Verdict]:
    """Unchanged or not."""
    responses = f"client 1 waits {told(results, 'vtc', RESPONSES, ' s')}"
    return [
        judged(
            claim="VTC: client 1's response time stays as it was (mean of the last third, by all)",
            paper=f"roughly unchanged; mean {theirs(results, 'response_c0_s', 'vtc', ' s')}",
            ours=quotient(results, "late_response_c0_s", "response_c0_s", "vtc"),
            rule=within(0, 2),
            too_high=responses,
            unit="x",
        ),
        judged(
            claim="VTC: client 1's longest response time",
            paper=f"roughly unchanged; {theirs(results, 'longest_c0_s', 'vtc', ' s')}",
            ours=ours(results, "longest_c0_s", "vtc"),
            rule=below(2),
            too_high=responses,
            unit=" s",
        ),
        judged(
            claim="FCFS: client 1 waits behind the other (mean of the last third, by that under VTC)",
            paper=f"not shown; {theirs(results, 'late_response_c0_s', 'fcfs', ' s')},"
            f" VTC {theirs(results, 'late_response_c0_s', 'vtc', ' s')}",
            ours=results.ratio(
                "late_response_c0_s",
                {"scheduler": "fcfs", "origin": "simulated"},
                {"scheduler": "vtc", "origin": "simulated"},
            ),
            rule=above(10),
            too_low=under(results, "late_response_c0_s", " s", "fcfs", "vtc"),
            unit="x",
        ),
    ]


STUDY = Study(
    title="A client below its share beside one that grows",
    source=f"{PAPER}, Figure 9",
    shows="service rates and response times of a client that asks for less than its share, beside one"
    " whose requests grow past it",
    takes="quick 1 s; full 6 s",
    cases=cases,
    measures={
        **TABLE,
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        "response_c0_s": response("c0"),
        "late_response_c0_s": response("c0", begin_s=400),
        "longest_c0_s": longest_response("c0"),
    },
    panels=[
        *rates_and_responses(),
        curve("Response time (FCFS)", "response_time", scheduler="fcfs"),
    ],
    judge=judge,
    choices=f"{CHOICES} The caption gives client 2 a rate of 120 a minute; the rows rise from 12 to 120.",
)

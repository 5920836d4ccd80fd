"""VTC Figure 5: a client that is on and off and below its share, beside one far above it."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import above, below, judged
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Generated, Study, Verdict
from fairhit_lab.studies.vtc.shared import (
    CHOICES,
    PAPER,
    both,
    ours,
    rates_and_responses,
    theirs,
    under,
)
from fairhit_lab.studies.vtc_artifact.measures import (
    TABLE,
    longest_response,
    rate,
    response,
    total_least,
)


def cases(quick: bool) -> Sequence[Case]:
    """FCFS and VTC; 10 minutes of requests, quick 5."""
    source = Generated(workload="on_off_less", settings={"duration": 300 if quick else 600})
    return both(source, "on_off_less")


def judge(results: Results) -> Sequence[Verdict]:
    """Nothing is left idle, and who stays below its share does not wait."""
    return [
        judged(
            claim="total service stays the same while client 1 is on and off (least by most window)",
            paper=f"the same; {theirs(results, 'total_least', 'vtc')}",
            ours=ours(results, "total_least", "vtc"),
            rule=above(0.85),
            too_low=under(results, "total_least", "", "fcfs"),
        ),
        judged(
            claim="client 1's requests are served before it is off: it never waits for long",
            paper=f"flat; at most {theirs(results, 'longest_c0_s', 'vtc', ' s')}",
            ours=ours(results, "longest_c0_s", "vtc"),
            rule=below(15),
            too_high=f"in the mean {under(results, 'response_c0_s', ' s', 'vtc', 'fcfs')}",
            unit=" s",
        ),
        judged(
            claim="under FCFS client 1 waits more than three times as long (mean, by VTC's)",
            paper=f"not printed; {theirs(results, 'response_c0_s', 'fcfs', ' s')},"
            f" VTC {theirs(results, 'response_c0_s', 'vtc', ' s')}",
            ours=results.ratio(
                "response_c0_s",
                {"scheduler": "fcfs", "origin": "simulated"},
                {"scheduler": "vtc", "origin": "simulated"},
            ),
            rule=above(3),
            too_low=under(results, "response_c0_s", " s", "fcfs", "vtc"),
            unit="x",
        ),
    ]


STUDY = Study(
    title="A client on and off, below its share",
    source=f"{PAPER}, Figure 5",
    shows="service rates and response times of a client that is on and off and asks for less than its"
    " share, and of one that asks for more",
    takes="quick 2 s; full 8 s",
    cases=cases,
    measures={
        **TABLE,
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        "total_least": total_least,
        "response_c0_s": response("c0"),
        "longest_c0_s": longest_response("c0"),
    },
    panels=rates_and_responses(),
    judge=judge,
    choices=CHOICES,
)

"""VTC Figure 4: two clients below their share, one far above it."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import above, judged, within
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Generated, Study, Verdict
from fairhit_lab.studies.vtc.shared import (
    CHOICES,
    PAPER,
    both,
    curve,
    quotient,
    rates_and_responses,
    theirs,
    told,
    under,
)
from fairhit_lab.studies.vtc_artifact.measures import TABLE, rate, rate_of_all, response


def cases(quick: bool) -> Sequence[Case]:
    """FCFS and VTC; 10 minutes of requests, quick 5. This figure has 20 points."""
    source = Generated(workload="proportional", settings={"duration": 300 if quick else 600})
    return both(source, "proportional", pieces=20)


RATES = {"rate_c0": "client 1", "rate_c1": "client 2", "rate_c2": "client 3", "rate_all": "all"}


def judge(results: Results) -> Sequence[Verdict]:
    """Served at once, in proportion, and nothing left idle."""
    rates = told(results, "vtc", RATES, " tokens/s")
    return [
        judged(
            claim="clients 1 and 2 are served at once under VTC (mean response time, by FCFS's)",
            paper=f"at once; {theirs(results, 'light_response_s', 'vtc', ' s')},"
            f" FCFS {theirs(results, 'light_response_s', 'fcfs', ' s')}",
            ours=results.ratio(
                "light_response_s",
                {"scheduler": "vtc", "origin": "simulated"},
                {"scheduler": "fcfs", "origin": "simulated"},
            ),
            rule=within(0, 0.2),
            too_high=under(results, "light_response_s", " s", "vtc", "fcfs"),
            unit="x",
        ),
        judged(
            claim="the service of clients 1 and 2 is as 1 to 2",
            paper="2x",
            ours=quotient(results, "rate_c1", "rate_c0", "vtc"),
            rule=within(1.9, 2.1),
            too_low=rates,
            too_high=rates,
            unit="x",
        ),
        judged(
            claim="client 3 takes what is left: more than a third of all service",
            paper="more than 1/3, of 7/13 = 0.54 asked for",
            ours=quotient(results, "rate_c2", "rate_all", "vtc"),
            rule=above(1 / 3),
            too_low=rates,
        ),
        judged(
            claim="VTC is work-conserving: it serves as much as FCFS",
            paper=f"{theirs(results, 'tokens_per_s', 'vtc', ' tokens/s')},"
            f" FCFS {theirs(results, 'tokens_per_s', 'fcfs')}",
            ours=results.ratio(
                "tokens_per_s",
                {"scheduler": "vtc", "origin": "simulated"},
                {"scheduler": "fcfs", "origin": "simulated"},
            ),
            rule=above(0.98),
            too_low=under(results, "tokens_per_s", " tokens/s", "vtc", "fcfs"),
            unit="x",
        ),
    ]


STUDY = Study(
    title="Two clients below their share, one above it",
    source=f"{PAPER}, Figure 4",
    shows="service rates and response times of two clients that ask for less than a share and of one"
    " that asks for more",
    takes="quick 2 s; full 8 s",
    cases=cases,
    measures={
        **TABLE,
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        "rate_c2": rate("c2"),
        "rate_all": rate_of_all,
        "light_response_s": response("c0", "c1"),
    },
    panels=[
        *rates_and_responses(),
        curve("Response time (FCFS)", "response_time", scheduler="fcfs"),
    ],
    judge=judge,
    choices=CHOICES,
)

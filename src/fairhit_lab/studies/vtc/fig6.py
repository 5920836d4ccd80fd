"""VTC Figure 6: a client that is on and off and above its share, beside another one above it."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import judged, within
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Generated, Study, Verdict
from fairhit_lab.studies.vtc.shared import (
    CHOICES,
    PAPER,
    both,
    ours,
    quotient,
    rates_and_responses,
    told,
)
from fairhit_lab.studies.vtc_artifact.measures import TABLE, least_share, rate


def cases(quick: bool) -> Sequence[Case]:
    """FCFS and VTC; 10 minutes of requests, quick 5. No rows were shipped."""
    source = Generated(workload="on_off_overload", settings={"duration": 300 if quick else 600})
    return both(source)


RATES = {"rate_c0": "client 1", "rate_c1": "client 2"}


def judge(results: Results) -> Sequence[Verdict]:
    """Equal, whether it is on or off: it always has requests waiting."""
    rates = {
        name: told(results, name, RATES, " tokens/s over the whole run") for name in ("vtc", "fcfs")
    }
    return [
        judged(
            claim="VTC: both get the same service, on or off (client 1's by client 2's)",
            paper="1x",
            ours=quotient(results, "rate_c0", "rate_c1", "vtc"),
            rule=within(0.95, 1.05),
            too_low=rates["vtc"],
            too_high=rates["vtc"],
            unit="x",
        ),
        judged(
            claim="VTC: the same in every window of 60 s (least by most served)",
            paper="1 (no number printed)",
            ours=ours(results, "least_share", "vtc"),
            rule=within(0.9, 1),
            too_low=rates["vtc"],
        ),
        judged(
            claim="FCFS serves them as they ask: client 1 a third of what client 2 gets (0.25 to 0.45)",
            paper="not shown; 60 to 180 requests a minute: 0.33x",
            ours=quotient(results, "rate_c0", "rate_c1", "fcfs"),
            rule=within(0.25, 0.45),
            too_low=rates["fcfs"],
            too_high=rates["fcfs"],
            unit="x",
        ),
    ]


STUDY = Study(
    title="A client on and off, above its share",
    source=f"{PAPER}, Figure 6",
    shows="service rates and response times of a client that is on and off, and of another; both ask for"
    " more than their share",
    takes="quick 2 s; full 10 s",
    cases=cases,
    measures={
        **TABLE,
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        "least_share": least_share("c0", "c1", begin_s=60),
    },
    panels=rates_and_responses(),
    judge=judge,
    choices=CHOICES,
)

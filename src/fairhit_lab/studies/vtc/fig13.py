"""VTC Figure 13: response times on the real trace behind limits of requests a minute."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import above, below, judged
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Study, Verdict
from fairhit_lab.studies.vtc.responses import (
    RESPONSES,
    WaitClaim,
    on_real_trace,
    wait_verdict,
)
from fairhit_lab.studies.vtc.shared import CHOICES, PAPER, curve, under
from fairhit_lab.studies.vtc_artifact.measures import TABLE, share_served

LIMITS = (5, 15, 20, 30)
RPM_5 = {"scheduler": "rpm-5", "origin": "simulated"}
RPM_30 = {"scheduler": "rpm-30", "origin": "simulated"}
FCFS = {"scheduler": "fcfs", "origin": "simulated"}
RPM_5_WAITS = WaitClaim(
    claim="RPM 5: all clients have a short response time (the longest mean of any)",
    metric="longest_s",
    scheduler="rpm-5",
    printed="similar for all",
    rule=below(5),
)
RPM_30_WAITS = WaitClaim(
    claim="RPM 30 protects nobody (mean response time of the 13th and 14th client)",
    metric="middling_s",
    scheduler="rpm-30",
    printed="the response time for all requests grows up",
    rule=above(10),
)


def cases(_: bool) -> Sequence[Case]:
    """The limits of the figure, and FCFS, which has none."""
    limits = [f"rpm-{limit}" for limit in LIMITS]
    return on_real_trace([*limits, "fcfs"], ("rpm-5", "rpm-20", "fcfs"), everybody={"rpm-5"})


def judge(results: Results) -> Sequence[Verdict]:
    """Either fair or busy."""
    return [
        wait_verdict(results, RPM_5_WAITS),
        judged(
            claim="RPM 5 rejects more than it has to (tokens/s, by FCFS's)",
            paper="340 of 777: 0.44x",
            ours=results.ratio("tokens_per_s", RPM_5, FCFS),
            rule=below(0.5),
            too_high=under(results, "share_served", " of the requests served", "rpm-5"),
            unit="x",
        ),
        wait_verdict(results, RPM_30_WAITS),
        judged(
            claim="RPM 30 is close to FCFS (mean response time of the 13th and 14th client, by FCFS's)",
            paper="converges to FCFS (no number printed)",
            ours=results.ratio("middling_s", RPM_30, FCFS),
            rule=above(0.5),
            too_low=f"{under(results, 'middling_s', ' s', 'rpm-30', 'fcfs')};"
            f" {under(results, 'share_served', ' of the requests served', 'rpm-30')}",
            unit="x",
        ),
    ]


STUDY = Study(
    title="Response times behind limits of requests a minute",
    source=f"{PAPER}, Figure 13",
    shows="response times of clients of the real trace behind limits of 5 to 30 requests a minute",
    takes="quick 4 s; full 20 s",
    cases=cases,
    measures={**TABLE, **RESPONSES, "share_served": share_served},
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

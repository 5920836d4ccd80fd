"""VTC Figure 10: the load changes its shape twice; VTC forgets, least counter first does not."""

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
    told,
    under,
)
from fairhit_lab.studies.vtc_artifact.measures import TABLE, rate, response, total_least

# The three phases, in seconds: client 1 on and off; both above their share; client 1 below it.
PHASES = {"first": (0.0, 300.0), "second": (300.0, 600.0), "third": (600.0, 900.0)}


def cases(_: bool) -> Sequence[Case]:
    """VTC and LCF; 15 minutes of requests. No rows were shipped."""
    return both(Generated(workload="dist_shift"), "", "vtc", "lcf")


SECOND = {"second_c0": "client 1", "second_c1": "client 2"}


def judge(results: Results) -> Sequence[Verdict]:
    """Who gets what in the second phase, and in the third."""
    second = {name: told(results, name, SECOND, " tokens/s") for name in ("vtc", "lcf")}
    third = under(results, "third_c0", " tokens/s", "vtc", "lcf")
    return [
        judged(
            claim="VTC: in the second phase both get the same (client 1's service by client 2's)",
            paper="1x",
            ours=quotient(results, "second_c0", "second_c1", "vtc"),
            rule=within(0.9, 1.1),
            too_low=second["vtc"],
            too_high=second["vtc"],
            unit="x",
        ),
        judged(
            claim="LCF: in the second phase client 1 gets more: it makes up for the first",
            paper="disproportionately more",
            ours=quotient(results, "second_c0", "second_c1", "lcf"),
            rule=above(1.2),
            too_low=second["lcf"],
            unit="x",
        ),
        judged(
            claim="in the third phase both serve client 1 alike (VTC by LCF)",
            paper="similar",
            ours=results.ratio(
                "third_c0",
                {"scheduler": "vtc", "origin": "simulated"},
                {"scheduler": "lcf", "origin": "simulated"},
            ),
            rule=within(0.85, 1.15),
            too_low=third,
            too_high=third,
            unit="x",
            elsewhere={
                "in the last three minutes": results.ratio(
                    "end_c0",
                    {"scheduler": "vtc", "origin": "simulated"},
                    {"scheduler": "lcf", "origin": "simulated"},
                )
            },
        ),
    ]


STUDY = Study(
    title="The load changes its shape twice",
    source=f"{PAPER}, Figure 10",
    shows="service rates under VTC and under LCF, which lifts no counter: a client is on and off, then both"
    " ask for more than their share, then one for less",
    takes="quick 1 s; full 8 s",
    cases=cases,
    measures={
        **TABLE,
        **{
            f"{phase}_{client}": rate(client, *times)
            for phase, times in PHASES.items()
            for client in ("c0", "c1")
        },
        "end_c0": rate("c0", 720.0, 900.0),
        "total_least": total_least,
        "response_c0_s": response("c0"),
    },
    panels=[
        curve("(a) Received service rate (VTC)", "service_rate", scheduler="vtc"),
        curve("(b) Received service rate (LCF)", "service_rate", scheduler="lcf"),
    ],
    judge=judge,
    choices=CHOICES,
)

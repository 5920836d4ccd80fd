"""VTC Figure 14: throughput on the real trace over the limit of requests a minute, beside VTC's."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import above, judged, within
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Study, Verdict
from fairhit_lab.studies.vtc.shared import (
    CHOICES,
    PAPER,
    REAL,
    measured,
    ours,
    simulated,
    theirs,
)
from fairhit_lab.studies.vtc_artifact.measures import TABLE, share_served

# Tokens/s as printed: in the text, in Table 2, and read from the figure.
PRINTED = {5: 340, 15: 626, 20: 694, 30: 747}


def cases(_: bool) -> Sequence[Case]:
    """The limits, and VTC, which has none."""
    return [
        *(simulated(f"rpm-{limit}", REAL, shown=()) for limit in PRINTED),
        simulated("vtc", REAL, shown=()),
        *(measured(name, "real", shown=()) for name in ("rpm-5", "rpm-20", "vtc")),
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """Each throughput, and that none reaches VTC's."""
    return [
        *(
            judged(
                claim=f"throughput with at most {limit} requests a minute",
                paper=f"{PRINTED[limit]}; {theirs(results, 'tokens_per_s', f'rpm-{limit}')}",
                ours=ours(results, "tokens_per_s", f"rpm-{limit}"),
                rule=within(0.98 * PRINTED[limit], 1.02 * PRINTED[limit]),
                why=f"served: {_served(results, f'rpm-{limit}')} of the requests",
                unit=" tokens/s",
            )
            for limit in PRINTED
        ),
        judged(
            claim="VTC serves more than with any limit (by that of 30)",
            paper="779 and 747: 1.04x",
            ours=results.ratio(
                "tokens_per_s",
                {"scheduler": "vtc", "origin": "simulated"},
                {"scheduler": "rpm-30", "origin": "simulated"},
            ),
            rule=above(1),
            too_low=f"served with a limit of 30: {_served(results, 'rpm-30')} of the requests",
            unit="x",
        ),
    ]


def _served(results: Results, scheduler: str) -> str:
    return (
        f"{ours(results, 'share_served', scheduler)} ({theirs(results, 'share_served', scheduler)})"
    )


STUDY = Study(
    title="Throughput over the limit of requests a minute",
    source=f"{PAPER}, Figure 14",
    shows="throughput on the real trace behind limits of requests a minute, and under VTC",
    takes="quick 4 s; full 20 s",
    cases=cases,
    measures={**TABLE, "share_served": share_served},
    panels=[
        Panel(
            title="Throughput",
            form="bars",
            x="scheduler",
            y="tokens_per_s",
            hue="origin",
            x_label="VTC, and RPM with so many requests a minute and client",
            y_label="tokens/s, input and output",
        )
    ],
    judge=judge,
    choices=CHOICES,
)

"""VTC Figure 19: the difference of service among two and eight clients, by how well outputs are foreseen."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import below, judged
from fairhit_lab.studies.shared.results import Label, Results
from fairhit_lab.studies.shared.study import Case, Generated, Study, Verdict
from fairhit_lab.studies.vtc.shared import (
    BOUND,
    CHOICES,
    MEASURED,
    PAPER,
    curve,
    measured,
    ours,
    simulated,
    theirs,
    told,
)
from fairhit_lab.studies.vtc_artifact.measures import (
    TABLE,
    difference_at,
    mean_difference,
    most_difference,
    spread_of_difference,
)

NAMES = ("vtc", "vtc-noisy", "vtc-oracle")
WORKLOADS = {2: "overload", 8: "overload-multi"}

CURVE = {
    "mean_difference": "mean",
    "spread": "standard deviation",
    "last_difference": "at the end",
}


def cases(_: bool) -> Sequence[Case]:
    """VTC and both predictors, with two clients and with eight; and as measured with two."""
    return [
        *(
            simulated(name, Generated(workload=workload), labels={"clients": clients})
            for clients, workload in WORKLOADS.items()
            for name in NAMES
        ),
        *(measured(name, "overload", labels={"clients": 2}) for name in NAMES),
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """Bounded without a predictor, much less with one."""
    verdicts = []
    for clients in WORKLOADS:
        verdicts.append(
            judged(
                claim=f"{clients} clients, VTC: the difference stays within Theorem 4.4's bound",
                paper=f"bounded (by {BOUND:,})",
                ours=ours(results, "most_difference", "vtc", clients=clients),
                rule=below(BOUND),
                too_high=told(results, "vtc", CURVE, " tokens", clients=clients),
            )
        )
        for name in NAMES[1:]:
            verdicts += [
                _lower(results, clients, name, "spread", "the difference swings less than VTC's"),
                _lower(
                    results, clients, name, "mean_difference", "it is lower than VTC's in the mean"
                ),
            ]
    return verdicts


def _lower(results: Results, clients: int, name: str, metric: str, claim: str) -> Verdict:
    place: dict[str, Label] = {"origin": "simulated", "clients": clients}
    rows = (
        f"; {theirs(results, metric, name, clients=clients)},"
        f" VTC {theirs(results, metric, 'vtc', clients=clients)}"
    )
    return judged(
        claim=f"{clients} clients, {name}: {claim}",
        paper=f"significantly lower{rows if clients == 2 else ''}",
        ours=results.ratio(metric, {"scheduler": name, **place}, {"scheduler": "vtc", **place}),
        rule=below(0.6),
        too_high="; ".join(
            f"{each}: {told(results, each, CURVE, ' tokens', clients=clients)}"
            for each in (name, "vtc")
        ),
        unit="x",
    )


STUDY = Study(
    title="What foreseeing outputs is good for",
    source=f"{PAPER}, Figure 19",
    shows="the difference of accumulated service under VTC that does not foresee outputs, foresees them to"
    " within a half, and exactly",
    takes="quick 3 s; full 20 s",
    cases=cases,
    measures={
        **TABLE,
        "most_difference": most_difference,
        "mean_difference": mean_difference,
        "spread": spread_of_difference,
        "last_difference": difference_at(1.0),
    },
    panels=[
        curve("Two clients", "difference", "scheduler", clients=2),
        curve("Eight clients", "difference", "scheduler", clients=8),
        curve(
            "Two clients, as the authors measured it", "difference", "scheduler", origin=MEASURED
        ),
    ],
    judge=judge,
    choices=CHOICES,
)

"""VTC Figure 16: four clients over capacity, with equal weights and with 1:2:3:4."""

from collections.abc import Sequence

from fairhit_lab.studies.shared.claims import above, judged
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Case, Generated, Outcome, Study, Verdict
from fairhit_lab.studies.vtc.shared import (
    CHOICES,
    PAPER,
    curve,
    measured,
    ours,
    simulated,
    theirs,
    told,
)
from fairhit_lab.studies.vtc_artifact.measures import TABLE, evenness, rate, response

CLIENTS = ("c0", "c1", "c2", "c3")
WEIGHTS = {"c0": 1, "c1": 2, "c2": 3, "c3": 4}
RATES = {f"rate_{client}": client for client in CLIENTS}
RESPONSES = {f"response_{client}_s": client for client in CLIENTS}


def cases(quick: bool) -> Sequence[Case]:
    """VTC with equal weights and with 1:2:3:4; 6 minutes of requests, quick 4."""
    settings = {"duration": 240} if quick else {}
    equal, weighted = {"weights": "equal"}, {"weights": "1:2:3:4"}
    return [
        simulated(
            "vtc", Generated(workload="overload-weighted-plain", settings=settings), labels=equal
        ),
        simulated(
            "vtc", Generated(workload="overload-weighted", settings=settings), labels=weighted
        ),
        measured("vtc", "overload_weighted", labels=equal),
        measured("vtc", "overload_weighted", run="WVTC", labels=weighted),
    ]


def judge(results: Results) -> Sequence[Verdict]:
    """As the weights say."""
    rates = {
        weights: told(results, "vtc", RATES, " tokens/s", weights=weights)
        for weights in ("equal", "1:2:3:4")
    }
    return [
        judged(
            claim="equal weights: all four get the same service (least by most served)",
            paper=f"comparable; {theirs(results, 'even', 'vtc', weights='equal')}",
            ours=ours(results, "even", "vtc", weights="equal"),
            rule=above(0.9),
            too_low=rates["equal"],
        ),
        judged(
            claim="weights 1:2:3:4: service by weight is the same for all four (least by most)",
            paper=f"closely 1:2:3:4; {theirs(results, 'even_by_weight', 'vtc', weights='1:2:3:4')}",
            ours=ours(results, "even_by_weight", "vtc", weights="1:2:3:4"),
            rule=above(0.85),
            too_low=rates["1:2:3:4"],
        ),
        judged(
            claim="weights in the proportion of the requests: all four wait alike (least by most)",
            paper=f"not printed; {theirs(results, 'even_response', 'vtc', weights='1:2:3:4')},"
            f" mean {theirs(results, 'response_s', 'vtc', ' s', weights='1:2:3:4')}",
            ours=ours(results, "even_response", "vtc", weights="1:2:3:4"),
            rule=above(0.8),
            too_low=told(results, "vtc", RESPONSES, " s", weights="1:2:3:4"),
        ),
    ]


def _even_response(outcome: Outcome) -> float | None:
    waits = [wait for client in CLIENTS if (wait := response(client)(outcome)) is not None]
    return min(waits) / max(waits) if waits else None


STUDY = Study(
    title="Weights",
    source=f"{PAPER}, Figure 16",
    shows="service rates of four clients over capacity, with equal weights and with 1:2:3:4",
    takes="quick 1 s; full 8 s",
    cases=cases,
    measures={
        **TABLE,
        **{f"rate_{client}": rate(client) for client in CLIENTS},
        "even": evenness(dict.fromkeys(CLIENTS, 1)),
        "even_by_weight": evenness(WEIGHTS),
        "even_response": _even_response,
        "response_s": response(*CLIENTS),
        **{f"response_{client}_s": response(client) for client in CLIENTS},
    },
    panels=[
        curve("(a) VTC", "service_rate", scheduler="vtc", weights="equal"),
        curve("(b) Weighted VTC, 1:2:3:4", "service_rate", scheduler="vtc", weights="1:2:3:4"),
    ],
    judge=judge,
    choices=CHOICES,
)

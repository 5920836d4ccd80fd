"""VTC's Figures 4 to 6, 9, 10 and 16: service rates and response times over shares, phases and weights."""

from collections.abc import Mapping, Sequence

from fairhit_lab.studies.shared.claims import SHARE, Claim, above, below, within, words
from fairhit_lab.studies.shared.study import Case, Generated, Outcome, Study
from fairhit_lab.studies.vtc.shared import (
    ANY,
    LATE,
    LATE_START,
    RATES_AND_RESPONSES,
    Text,
    curve,
    figure,
    late,
    measured,
    ours,
    quotient,
    ratio,
    ratio_up_to,
    several,
    simulated,
    theirs,
    under,
    under_each,
    up_to_most,
)
from fairhit_lab.studies.vtc_artifact.measures import (
    evenness,
    least_share,
    longest_response,
    rate,
    rate_of_all,
    response,
    total_least,
)

FIG4_RATES = several(
    "vtc",
    {"rate_c0": "client 1", "rate_c1": "client 2", "rate_c2": "client 3", "rate_all": "all"},
    " tokens/s",
)
FIG4 = figure(
    "Figure 4",
    "Two clients below their share, one above it",
    shows="service rates and response times of two clients that ask for less than a share and of one"
    " that asks for more",
    takes="quick 2 s; full 2 s",
    # This figure has 20 points.
    cases=under_each("proportional", lasts=(600, 300), rows="proportional", pieces=20),
    measures={
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        "rate_c2": rate("c2"),
        "rate_all": rate_of_all,
        "light_response_s": response("c0", "c1"),
    },
    panels=[
        *RATES_AND_RESPONSES,
        curve("Response time (FCFS)", "response_time", scheduler="fcfs"),
    ],
    claims=[
        Claim(
            claim="clients 1 and 2 are served at once under VTC (mean response time, by FCFS's)",
            paper=words(
                "at once; ",
                theirs("light_response_s", "vtc", " s"),
                ", FCFS ",
                theirs("light_response_s", "fcfs", " s"),
            ),
            value=ratio("light_response_s", "vtc", "fcfs"),
            reach=ratio_up_to("lasts_s", "vtc", "light_response_s", "fcfs"),
            rule=within(0, 0.2),
            why=under("light_response_s", " s", "vtc", "fcfs"),
            unit="x",
        ),
        Claim(
            claim="the service of clients 1 and 2 is as 1 to 2",
            paper="2x",
            value=quotient("rate_c1", "rate_c0", "vtc"),
            reach=ANY,
            rule=within(1.9, 2.1),
            why=FIG4_RATES,
            unit="x",
        ),
        Claim(
            claim="client 3 takes what is left: more than a third of all service",
            paper="more than 1/3, of 7/13 = 0.54 asked for",
            value=quotient("rate_c2", "rate_all", "vtc"),
            reach=SHARE,
            rule=above(1 / 3),
            why=FIG4_RATES,
        ),
        Claim(
            claim="VTC is work-conserving: it serves as much as FCFS",
            paper=words(
                theirs("tokens_per_s", "vtc", " tokens/s"),
                ", FCFS ",
                theirs("tokens_per_s", "fcfs"),
            ),
            value=ratio("tokens_per_s", "vtc", "fcfs"),
            reach=ratio_up_to("asked_per_s", "vtc", "tokens_per_s", "fcfs"),
            rule=above(0.98),
            why=under("tokens_per_s", " tokens/s", "vtc", "fcfs"),
            unit="x",
        ),
    ],
)

FIG5 = figure(
    "Figure 5",
    "A client on and off, below its share",
    shows="service rates and response times of a client that is on and off and asks for less than its"
    " share, and of one that asks for more",
    takes="quick 2 s; full 2 s",
    cases=under_each("on_off_less", lasts=(600, 300), rows="on_off_less"),
    measures={
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        "total_least": total_least,
        "response_c0_s": response("c0"),
        "longest_c0_s": longest_response("c0"),
    },
    panels=RATES_AND_RESPONSES,
    claims=[
        Claim(
            claim="total service stays the same while client 1 is on and off (least by most window)",
            paper=words("the same; ", theirs("total_least", "vtc")),
            value=ours("total_least", "vtc"),
            reach=SHARE,
            rule=above(0.85),
            why=under("total_least", "", "fcfs"),
        ),
        Claim(
            claim="client 1's requests are served before it is off: it never waits for long",
            paper=words("flat; at most ", theirs("longest_c0_s", "vtc", " s")),
            value=ours("longest_c0_s", "vtc"),
            reach=up_to_most("lasts_s", "vtc"),
            rule=below(15),
            why=words("in the mean ", under("response_c0_s", " s", "vtc", "fcfs")),
            unit=" s",
        ),
        Claim(
            whose="ours",
            claim="under FCFS client 1 waits more than three times as long (mean, by VTC's)",
            paper=words(
                "not printed; ",
                theirs("response_c0_s", "fcfs", " s"),
                ", VTC ",
                theirs("response_c0_s", "vtc", " s"),
            ),
            value=ratio("response_c0_s", "fcfs", "vtc"),
            reach=ratio_up_to("lasts_s", "fcfs", "response_c0_s", "vtc"),
            rule=above(3),
            why=under("response_c0_s", " s", "fcfs", "vtc"),
            unit="x",
        ),
    ],
)

FIG6_RATES = {
    name: several(
        name, {"rate_c0": "client 1", "rate_c1": "client 2"}, " tokens/s over the whole run"
    )
    for name in ("vtc", "fcfs")
}
FIG6 = figure(
    "Figure 6",
    "A client on and off, above its share",
    shows="service rates and response times of a client that is on and off, and of another; both ask for"
    " more than their share",
    takes="quick 2 s; full 3 s",
    cases=lambda quick: [  # no rows were shipped
        *under_each("on_off_overload", lasts=(600, 300))(quick),
        late("on_off_overload", 300 if quick else 600),
    ],
    measures={
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        "least_share": least_share("c0", "c1", begin_s=60),
    },
    panels=RATES_AND_RESPONSES,
    claims=[
        Claim(
            claim="VTC: both get the same service, on or off (client 1's by client 2's)",
            paper="1x",
            value=quotient("rate_c0", "rate_c1", "vtc"),
            reach=ANY,
            rule=within(0.95, 1.05),
            why=FIG6_RATES["vtc"],
            unit="x",
        ),
        Claim(
            claim="VTC: the same in every window of 60 s (least by most served)",
            paper="1 (no number printed)",
            value=ours("least_share", "vtc"),
            reach=SHARE,
            rule=within(0.9, 1),
            why=FIG6_RATES["vtc"],
            elsewhere={LATE_START: ours("least_share", LATE)},
        ),
        Claim(
            whose="ours",
            claim="FCFS serves them as they ask: client 1 a third of what client 2 gets (0.25 to 0.45)",
            paper="not shown; 60 to 180 requests a minute: 0.33x",
            value=quotient("rate_c0", "rate_c1", "fcfs"),
            reach=ANY,
            rule=within(0.25, 0.45),
            why=FIG6_RATES["fcfs"],
            unit="x",
        ),
    ],
)

FIG9_RESPONSES = words(
    "client 1 waits ",
    several(
        "vtc",
        {
            "response_c0_s": "in the mean",
            "late_response_c0_s": "in the last third",
            "longest_c0_s": "at most",
        },
        " s",
    ),
)
FIG9 = figure(
    "Figure 9",
    "A client below its share beside one that grows",
    shows="service rates and response times of a client that asks for less than its share, beside one"
    " whose requests grow past it",
    takes="quick 1 s; full 2 s",
    cases=under_each("increase", rows="increase"),
    measures={
        "rate_c0": rate("c0"),
        "rate_c1": rate("c1"),
        "response_c0_s": response("c0"),
        "late_response_c0_s": response("c0", begin_s=400),
        "longest_c0_s": longest_response("c0"),
    },
    panels=[
        *RATES_AND_RESPONSES,
        curve("Response time (FCFS)", "response_time", scheduler="fcfs"),
    ],
    claims=[
        Claim(
            claim="VTC: client 1's response time stays as it was (mean of the last third, by all)",
            paper=words("roughly unchanged; mean ", theirs("response_c0_s", "vtc", " s")),
            value=quotient("late_response_c0_s", "response_c0_s", "vtc"),
            reach=ratio_up_to("lasts_s", "vtc", "response_c0_s", "vtc"),
            rule=within(0, 2),
            why=FIG9_RESPONSES,
            unit="x",
        ),
        Claim(
            claim="VTC: client 1's longest response time",
            paper=words("roughly unchanged; ", theirs("longest_c0_s", "vtc", " s")),
            value=ours("longest_c0_s", "vtc"),
            reach=up_to_most("lasts_s", "vtc"),
            rule=below(2),
            why=FIG9_RESPONSES,
            unit=" s",
        ),
        Claim(
            whose="ours",
            claim="FCFS: client 1 waits behind the other (mean of the last third, by that under VTC)",
            paper=words(
                "not shown; ",
                theirs("late_response_c0_s", "fcfs", " s"),
                ", VTC ",
                theirs("late_response_c0_s", "vtc", " s"),
            ),
            value=ratio("late_response_c0_s", "fcfs", "vtc"),
            reach=ratio_up_to("lasts_s", "fcfs", "late_response_c0_s", "vtc"),
            rule=above(10),
            why=under("late_response_c0_s", " s", "fcfs", "vtc"),
            unit="x",
        ),
    ],
    choices="The caption gives client 2 a rate of 120 a minute; the rows rise from 12 to 120.",
)

# The three phases of Figure 10, in seconds: client 1 on and off; both above their share; client 1 below it.
PHASES = {"first": (0.0, 300.0), "second": (300.0, 600.0), "third": (600.0, 900.0)}
SECOND = {"second_c0": "client 1", "second_c1": "client 2"}
FIG10 = figure(
    "Figure 10",
    "The load changes its shape twice",
    shows="service rates under VTC and under LCF, which lifts no counter: a client is on and off, then both"
    " ask for more than their share, then one for less",
    takes="quick 1 s; full 2 s",
    cases=under_each("dist_shift", schedulers=("vtc", "lcf")),  # no rows were shipped
    measures={
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
    claims=[
        Claim(
            claim="VTC: in the second phase both get the same (client 1's service by client 2's)",
            paper="1x",
            value=quotient("second_c0", "second_c1", "vtc"),
            reach=ANY,
            rule=within(0.9, 1.1),
            why=several("vtc", SECOND, " tokens/s"),
            unit="x",
        ),
        Claim(
            claim="LCF: in the second phase client 1 gets more: it makes up for the first",
            paper="disproportionately more",
            value=quotient("second_c0", "second_c1", "lcf"),
            reach=ANY,
            rule=above(1.2),
            why=several("lcf", SECOND, " tokens/s"),
            unit="x",
        ),
        Claim(
            claim="in the third phase both serve client 1 alike (VTC by LCF)",
            paper="similar",
            value=ratio("third_c0", "vtc", "lcf"),
            reach=ANY,
            rule=within(0.85, 1.15),
            why=under("third_c0", " tokens/s", "vtc", "lcf"),
            unit="x",
            elsewhere={"in the last three minutes": ratio("end_c0", "vtc", "lcf")},
        ),
    ],
)

# ---- Figure 16: four clients with equal weights, and with these

WEIGHTS = {"c0": 1, "c1": 2, "c2": 3, "c3": 4}
EQUAL, WEIGHTED = {"weights": "equal"}, {"weights": "1:2:3:4"}


def _fig16_cases(quick: bool) -> Sequence[Case]:
    """VTC with equal weights and with WEIGHTS; 6 minutes of requests, quick 4."""
    settings = {"duration": 240} if quick else {}
    equal, weighted = (
        Generated(workload=name, settings=settings)
        for name in ("overload-weighted-plain", "overload-weighted")
    )
    return [
        simulated("vtc", equal, labels=EQUAL),
        simulated("vtc", weighted, labels=WEIGHTED),
        measured("vtc", "overload_weighted", labels=EQUAL),
        measured("vtc", "overload_weighted", run="WVTC", labels=WEIGHTED),
    ]


def _even_response(outcome: Outcome) -> float | None:
    """The shortest mean response time of a client by the longest."""
    waits = [wait for client in WEIGHTS if (wait := response(client)(outcome)) is not None]
    return min(waits) / max(waits) if waits else None


def _rates(labels: Mapping[str, str]) -> Text:
    return several("vtc", {f"rate_{client}": client for client in WEIGHTS}, " tokens/s", **labels)


FIG16 = figure(
    "Figure 16",
    "Weights",
    shows="service rates of four clients over capacity, with equal weights and with 1:2:3:4",
    takes="quick 1 s; full 2 s",
    cases=_fig16_cases,
    measures={
        **{f"rate_{client}": rate(client) for client in WEIGHTS},
        "even": evenness(dict.fromkeys(WEIGHTS, 1)),
        "even_by_weight": evenness(WEIGHTS),
        "even_response": _even_response,
        "response_s": response(*WEIGHTS),
        **{f"response_{client}_s": response(client) for client in WEIGHTS},
    },
    panels=[
        curve("(a) VTC", "service_rate", scheduler="vtc", **EQUAL),
        curve("(b) Weighted VTC, 1:2:3:4", "service_rate", scheduler="vtc", **WEIGHTED),
    ],
    claims=[
        Claim(
            claim="equal weights: all four get the same service (least by most served)",
            paper=words("comparable; ", theirs("even", "vtc", **EQUAL)),
            value=ours("even", "vtc", **EQUAL),
            reach=SHARE,
            rule=above(0.9),
            why=_rates(EQUAL),
        ),
        Claim(
            claim="weights 1:2:3:4: service by weight is the same for all four (least by most)",
            paper=words("closely 1:2:3:4; ", theirs("even_by_weight", "vtc", **WEIGHTED)),
            value=ours("even_by_weight", "vtc", **WEIGHTED),
            reach=SHARE,
            rule=above(0.85),
            why=_rates(WEIGHTED),
        ),
        Claim(
            whose="ours",
            claim="weights in the proportion of the requests: all four wait alike (least by most)",
            paper=words(
                "not printed; ",
                theirs("even_response", "vtc", **WEIGHTED),
                ", mean ",
                theirs("response_s", "vtc", " s", **WEIGHTED),
            ),
            value=ours("even_response", "vtc", **WEIGHTED),
            reach=SHARE,
            rule=above(0.8),
            why=several(
                "vtc", {f"response_{client}_s": client for client in WEIGHTS}, " s", **WEIGHTED
            ),
        ),
    ],
)

STUDIES: Mapping[str, Study] = {
    "vtc-fig4": FIG4,
    "vtc-fig5": FIG5,
    "vtc-fig6": FIG6,
    "vtc-fig9": FIG9,
    "vtc-fig10": FIG10,
    "vtc-fig16": FIG16,
}

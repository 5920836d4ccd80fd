"""VTC's Figures 11 to 14 and 18: response times and throughput on the real trace of 27 clients."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise

from fairhit_lab.studies.shared.claims import Claim, Rule, above, below, could_show, within, words
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Results, interval_of
from fairhit_lab.studies.shared.study import Case, Measure, Study
from fairhit_lab.studies.vtc.shared import (
    HEAVIEST,
    MIDDLING,
    REAL,
    SHOWN,
    SIMULATED,
    THIRD,
    Number,
    curve,
    figure,
    measured,
    ours,
    ratio,
    ratio_up_to,
    several,
    simulated,
    theirs,
    under,
    up_to_most,
)
from fairhit_lab.studies.vtc_artifact.measures import longest_mean_response, response, share_served

# In seconds, all of them.
RESPONSES: Mapping[str, Measure] = {
    "middling_s": response(*MIDDLING),
    "second_s": response(HEAVIEST[0]),
    "heaviest_s": response(HEAVIEST[1]),
    "others_s": longest_mean_response(*HEAVIEST),
    "longest_s": longest_mean_response(),
}
# Their names in a reason.
NAMES = {
    "middling_s": "the 13th and 14th client",
    "second_s": "the second heaviest",
    "heaviest_s": "the heaviest",
    "others_s": "the slowest but for these two",
    "longest_s": "the slowest of all",
}


def _cases(
    schedulers: Sequence[str],
    rows: Sequence[str],
    shown: tuple[str, ...] = SHOWN,
    all_clients: Collection[str] = (),
) -> Callable[[bool], Sequence[Case]]:
    """Cases of each scheduler, and the authors' rows of some.

    Curves are kept of the clients in `shown`, and of all clients for the schedulers in `all_clients`.
    """
    made: list[Case] = [
        *(
            simulated(name, REAL, shown=None if name in all_clients else shown)
            for name in schedulers
        ),
        *(measured(name, "real", shown=shown) for name in rows),
    ]
    return lambda _: made


def _waits(claim: str, metric: str, scheduler: str, printed: str, rule: Rule) -> Claim:
    """A claim on one of RESPONSES; its reason has the others."""
    beside = {other: name for other, name in NAMES.items() if other != metric}
    return Claim(
        claim=claim,
        paper=words(f"{printed}; ", theirs(metric, scheduler, " s")),
        value=ours(metric, scheduler),
        rule=rule,
        reach=up_to_most("lasts_s", scheduler),
        why=words("beside that ", several(scheduler, beside, " s")),
        unit=" s",
    )


FIG12 = figure(
    "Figures 11 and 12",
    "Response times on the real trace",
    shows="what clients of the real trace ask for, and their response times under FCFS and VTC",
    takes="quick 2 s; full 2 s",
    cases=_cases(("fcfs", "vtc"), ("fcfs", "vtc")),
    measures=RESPONSES,
    panels=[
        curve("Figure 11: requested (of these four)", "request_rate", scheduler="fcfs"),
        curve("Figure 11: requested by all 27", "total_request_rate", scheduler="fcfs"),
        curve("Figure 12: response time (FCFS)", "response_time", scheduler="fcfs"),
        curve("Figure 12: response time (VTC)", "response_time", scheduler="vtc"),
    ],
    claims=[
        _waits(
            "FCFS: everybody waits (mean response time of the 13th and 14th client)",
            "middling_s",
            "fcfs",
            "increases drastically for all",
            above(30),
        ),
        _waits(
            "VTC: clients that ask for little are isolated (the 13th and 14th)",
            "middling_s",
            "vtc",
            "flat",
            below(10),
        ),
        _waits(
            "VTC: of all clients but the two heaviest, the one with the longest mean response time",
            "others_s",
            "vtc",
            "flat",
            below(15),
        ),
        _waits(
            "VTC: the heaviest client waits", "heaviest_s", "vtc", "drastic increase", above(60)
        ),
        _waits(
            "VTC: the second heaviest client waits",
            "second_s",
            "vtc",
            "drastic increase",
            above(30),
        ),
    ],
    choices="Shown are the 13th, 14th, 26th and 27th of 27 clients by requests sent. The paper"
    " says 210 requests a minute; the trace that it ships, and ran, has 150.",
)

LIMITS = (5, 15, 20, 30)  # the paper's
HIGHER = (45, 60, 120)  # "higher and higher"


def _by_fcfs(limit: int) -> Number:
    """The mean response time of the 13th and 14th client behind a limit, by that under FCFS."""
    return ratio("middling_s", f"rpm-{limit}", "fcfs")


def _least_step(results: Results) -> Interval:
    """The least change of that ratio from one limit to the next higher one, by seed."""
    by_limit = [
        results.values("middling_s", scheduler=f"rpm-{limit}", origin=SIMULATED)
        for limit in (*LIMITS, *HIGHER)
    ]
    fcfs = results.values("middling_s", scheduler="fcfs", origin=SIMULATED)
    return interval_of(
        min((higher[seed] - lower[seed]) / fcfs[seed] for lower, higher in pairwise(by_limit))
        for seed in fcfs
        if all(seed in of for of in by_limit)
    )


def _step_limits(results: Results) -> Rule | None:
    """Return the range of the least change: a response may become shorter or longer by all of a run."""
    longest = ratio_up_to("lasts_s", f"rpm-{HIGHER[-1]}", "middling_s", "fcfs")(results)
    return could_show(-longest.high, longest.high) if longest else None


FIG13 = figure(
    "Figure 13",
    "Response times behind limits of requests a minute",
    shows="response times of clients of the real trace behind limits of 5 to 30 requests a minute",
    takes="quick 4 s; full 4 s",
    cases=_cases(
        [*(f"rpm-{limit}" for limit in (*LIMITS, *HIGHER)), "fcfs"],
        ("rpm-5", "rpm-20", "fcfs"),
        all_clients={"rpm-5"},
    ),
    measures={**RESPONSES, "share_served": share_served},
    panels=[
        curve(
            f"RPM {limit}" + (" (all clients)" if limit == 5 else ""),
            "response_time",
            scheduler=f"rpm-{limit}",
        )
        for limit in LIMITS
    ],
    claims=[
        _waits(
            "RPM 5: all clients have a short response time (the longest mean of any)",
            "longest_s",
            "rpm-5",
            "similar for all",
            below(5),
        ),
        Claim(
            claim="RPM 5 rejects more than it has to (tokens/s, by FCFS's)",
            paper="340 of 777: 0.44x",
            value=ratio("tokens_per_s", "rpm-5", "fcfs"),
            rule=below(0.5),
            reach=ratio_up_to("asked_per_s", "fcfs", "tokens_per_s", "fcfs"),
            why=under("share_served", " of the requests served", "rpm-5"),
            unit="x",
        ),
        _waits(
            "RPM 30 protects no client (mean response time of the 13th and 14th client)",
            "middling_s",
            "rpm-30",
            "the response time for all requests grows up",
            above(10),
        ),
        Claim(
            claim="the response time grows with the limit (mean of the 13th and 14th client by FCFS's, the "
            f"least step from 5 to {HIGHER[-1]})",
            paper="the response time for all requests grows up",
            value=_least_step,
            rule=above(0),
            reach=_step_limits,
            why=words(
                *(
                    part
                    for limit in (*LIMITS, *HIGHER)
                    for part in (f"{limit}: ", _by_fcfs(limit), "; ")
                )
            ),
        ),
        Claim(
            claim="it converges to that under FCFS: at the highest limit, "
            f"{HIGHER[-1]} requests a minute, it is 0.9x to 1.1x of FCFS's",
            paper="converges to FCFS (no number printed)",
            value=_by_fcfs(HIGHER[-1]),
            rule=within(0.9, 1.1),
            reach=ratio_up_to("lasts_s", f"rpm-{HIGHER[-1]}", "middling_s", "fcfs"),
            why=words(
                *(part for limit in HIGHER for part in (f"{limit}: ", _by_fcfs(limit), "; ")),
                under("share_served", " of the requests served", f"rpm-{HIGHER[-1]}"),
            ),
            unit="x",
        ),
    ],
)

# Tokens/s as printed: in the text, in Table 2, and read from the figure.
THROUGHPUTS = {5: 340, 15: 626, 20: 694, 30: 747}


def _served(name: str) -> Callable[..., str]:
    return words(ours("share_served", name), " (", theirs("share_served", name), ")")


FIG14 = figure(
    "Figure 14",
    "Throughput over the limit of requests a minute",
    shows="throughput on the real trace behind limits of requests a minute, and under VTC",
    takes="quick 3 s; full 3 s",
    cases=_cases(
        [*(f"rpm-{limit}" for limit in THROUGHPUTS), "vtc"], ("rpm-5", "rpm-20", "vtc"), shown=()
    ),
    measures={"share_served": share_served},
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
    claims=[
        *(
            Claim(
                claim=f"throughput with at most {limit} requests a minute",
                paper=words(f"{tokens_per_s}; ", theirs("tokens_per_s", f"rpm-{limit}")),
                value=ours("tokens_per_s", f"rpm-{limit}"),
                reach=up_to_most("asked_per_s", "vtc"),
                rule=within(0.98 * tokens_per_s, 1.02 * tokens_per_s),
                why=words("served: ", _served(f"rpm-{limit}"), " of the requests"),
                unit=" tokens/s",
            )
            for limit, tokens_per_s in THROUGHPUTS.items()
        ),
        Claim(
            claim="VTC serves more than with any limit (by that of 30)",
            paper="779 and 747: 1.04x",
            value=ratio("tokens_per_s", "vtc", "rpm-30"),
            reach=ratio_up_to("asked_per_s", "vtc", "tokens_per_s", "rpm-30"),
            rule=above(1),
            why=words("served with a limit of 30: ", _served("rpm-30"), " of the requests"),
            unit="x",
        ),
    ],
)

# The schedulers of Table 3.
ALL = ("fcfs", "lcf", "vtc", "vtc-predict", "vtc-oracle", "rpm-5", "rpm-20", "rpm-30")
FIG18 = figure(
    "Figure 18",
    "Response times of all clients, profiled cost",
    shows="response times of all clients of the real trace, under the schedulers of Table 3",
    takes="quick 6 s; full 6 s",
    cases=lambda _: [simulated(name, REAL, worth="profiled") for name in ALL],
    measures={
        "heaviest_s": response(THIRD, *HEAVIEST),
        "third_s": response(THIRD),
        "second_s": response(HEAVIEST[0]),
        "first_s": response(HEAVIEST[1]),
        "others_s": longest_mean_response(THIRD, *HEAVIEST),
    },
    panels=[curve(name, "response_time", scheduler=name) for name in ALL],
    claims=[
        *(
            Claim(
                claim=f"{name}: clients that ask for little wait little"
                " (the longest mean response time but for the three heaviest, by FCFS's)",
                paper="low response times",
                value=ratio("others_s", name, "fcfs"),
                reach=ratio_up_to("lasts_s", name, "others_s", "fcfs"),
                rule=below(0.25),
                why=under("others_s", " s", name, "fcfs"),
                unit="x",
            )
            for name in ("vtc", "vtc-predict", "vtc-oracle", "lcf")
        ),
        Claim(
            claim="FCFS: the others do not keep them low (the same, in seconds)",
            paper="not matched by other baselines",
            value=ours("others_s", "fcfs"),
            reach=up_to_most("lasts_s", "fcfs"),
            rule=above(30),
            why=under("others_s", " s", "fcfs", "vtc"),
            unit=" s",
        ),
        Claim(
            claim="LCF: clients with constantly high rates pay for it"
            " (mean response time of the three heaviest, by VTC's)",
            paper="excessively high response times",
            value=ratio("heaviest_s", "lcf", "vtc"),
            reach=ratio_up_to("lasts_s", "lcf", "heaviest_s", "vtc"),
            rule=above(1.2),
            why=under("heaviest_s", " s", "lcf", "vtc"),
            unit="x",
            elsewhere={
                "for the third heaviest": ratio("third_s", "lcf", "vtc"),
                "for the second heaviest": ratio("second_s", "lcf", "vtc"),
                "for the heaviest": ratio("first_s", "lcf", "vtc"),
            },
        ),
    ],
    choices="The VTC family charges the profiled cost here, as in Table 3.",
)

STUDIES: Mapping[str, Study] = {
    "vtc-fig12": FIG12,
    "vtc-fig13": FIG13,
    "vtc-fig14": FIG14,
    "vtc-fig18": FIG18,
}

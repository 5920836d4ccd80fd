"""VTC's Figures 3, 7, 8, 15 and 19: the difference of clients' accumulated service, bounded or not."""

from collections.abc import Mapping, Sequence

from fairhit_lab.studies.shared.claims import SHARE, Claim, Value, above, below, ran, within, words
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of
from fairhit_lab.studies.shared.study import Case, Generated, Measure, Study
from fairhit_lab.studies.vtc.shared import (
    BOUND,
    LATE,
    LATE_START,
    MEASURED,
    SIMULATED,
    Limit,
    Text,
    curve,
    figure,
    grown,
    lasting,
    late,
    measured,
    ours,
    quotient,
    ratio,
    ratio_up_to,
    several,
    simulated,
    theirs,
    under_each,
    up_to_most,
)
from fairhit_lab.studies.vtc_artifact.measures import (
    difference_at,
    evenness,
    later_swing,
    least_share,
    mean_difference,
    most_difference,
    rate,
    spread_of_difference,
)

# The difference of two clients' accumulated service, in tokens: Figures 3, 7 and 8.
DIFFERENCES: Mapping[str, Measure] = {
    "most_difference": most_difference,
    "later_swing": later_swing,
    "half_difference": difference_at(0.5),
    "last_difference": difference_at(1.0),
}


def _if_ran(value: Value, **labels: Label) -> Value:
    """The value, or None where no case has these labels."""

    def number(results: Results) -> Interval | None:
        return value(results) if ran(results, **labels) else None

    return number


def _bounded(printed: str, lengths: Sequence[str] = ()) -> Claim:
    """The claim on VTC's difference over the whole run.

    `lengths` are the labels of Figure 8, the judged one first.
    """
    place = {"lengths": lengths[0]} if lengths else {}
    return Claim(
        claim="VTC: accumulated service of both differs by no more than Theorem 4.4 allows",
        paper=words(f"{printed}; ", theirs("most_difference", "vtc", **place)),
        value=ours("most_difference", "vtc", **place),
        rule=below(BOUND),
        reach=up_to_most("most_asked", "vtc", **place),
        why=words(
            grown("vtc", **place),
            ", and in the second half it moves by ",
            ours("later_swing", "vtc", **place),
        ),
        elsewhere=_with_lengths(lengths, "most_difference"),
    )


def _later_bounded(printed: str, lengths: Sequence[str] = ()) -> Claim:
    """The claim on VTC's difference in the second half: Theorem 4.4 is about any interval."""
    place = {"lengths": lengths[0]} if lengths else {}
    return Claim(
        claim="VTC: in the second half of the run the difference moves by no more than that",
        paper=words(f"{printed}; ", theirs("later_swing", "vtc", **place)),
        value=ours("later_swing", "vtc", **place),
        rule=below(BOUND),
        reach=up_to_most("most_asked", "vtc", **place),
        why=grown("vtc", **place),
        elsewhere=_with_lengths(lengths, "later_swing"),
    )


def _with_lengths(lengths: Sequence[str], metric: str) -> dict[str, Value]:
    return {
        f"with the {name}'s lengths": _if_ran(ours(metric, "vtc", lengths=name), lengths=name)
        for name in lengths[1:]
    }


def _unbounded(printed: str, at_least: float, lengths: Sequence[str] = ()) -> Claim:
    """The claim that FCFS's difference at the end is more than `at_least` times that at half-time."""
    place = {"lengths": lengths[0]} if lengths else {}
    ends = ("last_difference", "half_difference", "fcfs")
    return Claim(
        claim="FCFS: the difference goes on growing (at the end, by that at half-time)",
        paper=words(f"{printed}; ", theirs("last_difference", "fcfs", **place)),
        value=quotient(*ends, **place),
        rule=above(at_least),
        reach=ratio_up_to("most_asked", "fcfs", "half_difference", "fcfs", of=place),
        why=grown("fcfs", **place),
        unit="x",
        elsewhere={
            f"with the {name}'s lengths": _if_ran(quotient(*ends, lengths=name), lengths=name)
            for name in lengths[1:]
        },
    )


def _fig3_cases(quick: bool) -> Sequence[Case]:
    """FCFS and VTC, simulated, and the authors' runs, which have names of their own."""
    source = lasting("overload", 600, 300, quick)
    return [
        simulated("fcfs", source),
        simulated("vtc", source),
        measured("fcfs", "overload"),
        measured("vtc", "overload_600s"),
        late("overload", 300 if quick else 600),
    ]


FIG3 = figure(
    "Figure 3",
    "Two clients over capacity",
    shows="the difference of two clients' accumulated service over time, and each one's service rate",
    takes="quick 2 s; full 3 s",
    cases=_fig3_cases,
    measures={
        **DIFFERENCES,
        "least_share": least_share("c0", "c1"),
        "even": evenness({"c0": 1, "c1": 1}),
    },
    panels=[
        curve("(a) Difference of service", "difference", "scheduler"),
        curve("(a) as the authors measured it", "difference", "scheduler", origin=MEASURED),
        curve("(b) Received service rate (VTC)", "service_rate", scheduler="vtc"),
        curve("(b) as the authors measured it", "service_rate", origin=MEASURED, scheduler="vtc"),
    ],
    choices="Late start: nothing is served in the first 6 s, as in the authors' run of 600 s, in which the"
    " first token takes 3.4 s and the next 5.5 s (1.2 s in their run of 360 s, whose batches are of one"
    " client in turns, as here).",
    claims=[
        _bounded(f"at most {BOUND:,} tokens"),
        _unbounded("without bound", 1.8),
        Claim(
            claim="VTC: both get the same service at any time (over windows of 60 s, least by most)",
            paper=words("1 (no number printed); ", theirs("least_share", "vtc")),
            value=ours("least_share", "vtc"),
            reach=SHARE,
            rule=above(0.9),
            why=words("over the whole run it is ", ours("even", "vtc")),
            elsewhere={LATE_START: ours("least_share", LATE)},
        ),
    ],
)

FIG7 = figure(
    "Figure 7",
    "Many short requests against few long ones",
    shows="the difference of accumulated service of two clients with Poisson arrivals, one with many short"
    " requests, one with few long ones",
    takes="quick 3 s; full 3 s",
    cases=under_each("poisson_short_long", lasts=(600, 240), rows="poisson_short_long"),
    measures={"rate_c0": rate("c0"), "rate_c1": rate("c1"), **DIFFERENCES},
    panels=[
        curve("(a) Received service rate (VTC)", "service_rate", scheduler="vtc"),
        curve("(b) Difference of service", "difference", "scheduler"),
    ],
    claims=[
        _bounded(f"bounded (by {BOUND:,})"),
        _later_bounded(f"at most {BOUND:,}"),
        _unbounded("not fair", 1.5),
    ],
)

# Inputs and outputs of both clients: as the code and its rows have them, and as the caption says.
LENGTHS = {
    "code": {"input_len": (512, 32), "output_len": (32, 512)},
    "caption": {"input_len": (64, 512), "output_len": (512, 64)},
}


def _fig8_cases(quick: bool) -> Sequence[Case]:
    """FCFS and VTC with both sets of lengths; quick with the code's alone."""
    return [
        simulated(
            name,
            lasting("poisson_short_long_2", 600, 240, quick, **LENGTHS[variant]),
            labels={"lengths": variant},
        )
        for variant in (("code",) if quick else LENGTHS)
        for name in ("fcfs", "vtc")
    ]


FIG8 = figure(
    "Figure 8",
    "Long inputs against long outputs",
    shows="the difference of accumulated service of two clients with Poisson arrivals, one with long inputs,"
    " one with long outputs",
    takes="quick 2 s; full 12 s",
    cases=_fig8_cases,
    measures={"rate_c0": rate("c0"), "rate_c1": rate("c1"), **DIFFERENCES},
    panels=[
        curve("(a) Received service rate (VTC)", "service_rate", scheduler="vtc", lengths="code"),
        curve("(b) Difference of service", "difference", "scheduler", lengths="code"),
    ],
    claims=[
        _bounded(f"bounded (by {BOUND:,})", tuple(LENGTHS)),
        _later_bounded(f"at most {BOUND:,}", tuple(LENGTHS)),
        _unbounded("not fair", 1.5, tuple(LENGTHS)),
    ],
    choices="The caption has 64/512 and 512/64 tokens (in/out); the code and its own rows have"
    " 512/32 and 32/512: those are drawn, and both are judged.",
)

# ---- Figure 15: by pool and length of input and of output, in tokens

Setting = tuple[int, int]
# The workload, and the authors' run of it.
SETTINGS: Mapping[Setting, tuple[str, str]] = {
    (35_000, 256): ("overload-s4-35000-256", "llama13b_a100_35000_256"),
    (65_000, 256): ("overload-s4", "llama13b_a100_65000_256"),
    (35_000, 512): ("overload-s4-35000-512", "llama13b_a100_35000_512"),
    (35_000, 768): ("overload-s4-35000-768", ""),
}


def _fig15_cases(quick: bool) -> Sequence[Case]:
    """VTC in each setting; a quick run leaves the longest requests out."""
    found: list[Case] = []
    for (pool, length), (workload, run) in SETTINGS.items():
        if quick and length == 768:
            continue
        labels = {"pool": pool, "length": length}
        gpu = {"step_time": "a100-2024:llama-2-13b", "kv_tokens": pool}
        source = lasting(workload, 600, 240, quick)
        found.append(simulated("vtc", source, labels=labels, settings=gpu))
        if run:
            found.append(measured("vtc", run, labels=labels))
    return found


def _place(setting: Setting) -> dict[str, int]:
    return {"pool": setting[0], "length": setting[1]}


def _most(results: Results, setting: Setting) -> dict[int, float]:
    return results.values("most_difference", origin=SIMULATED, **_place(setting))


def _over(over: Setting, under: Setting) -> Value:
    """The largest difference in one setting over that in another; None unless the first was run."""

    def number(results: Results) -> Interval | None:
        if not ran(results, **_place(over)):
            return None
        tops, bottoms = _most(results, over), _most(results, under)
        return interval_of(tops[seed] / bottoms[seed] for seed in tops)

    return number


def _worst(over: Setting, under: Setting) -> Value:
    """The same ratio between the worst seeds; None for a single seed."""

    def number(results: Results) -> Interval | None:
        tops, bottoms = _most(results, over), _most(results, under)
        if len(tops) < 2:
            return None
        return interval_of([max(tops.values()) / max(bottoms.values())])

    return number


def _spreads(*settings: Setting) -> Text:
    """Standard deviations of the curves, which differ between seeds whose maxima are close."""
    parts = [
        words(
            ours("spread", "vtc", **_place(setting)),
            " tokens with {:,} and {}/{}".format(*setting, setting[1]),
        )
        for setting in settings
    ]
    return lambda results: (
        "standard deviation of the curve: " + ", ".join(part(results) for part in parts)
    )


def _within_bound(setting: Setting) -> Claim:
    """The claim on Theorem 4.4's bound, 2 w_q M."""
    pool, length = setting
    most = ours("most_difference", "vtc", **_place(setting))
    return Claim(
        claim=f"pool {pool:,}, {length}/{length}: the difference is within Theorem 4.4's bound",
        paper=words(
            f"at most {4 * pool:,}; ", theirs("most_difference", "vtc", "", **_place(setting))
        ),
        value=lambda results: most(results) if ran(results, **_place(setting)) else None,
        rule=within(0, 4 * pool),
        reach=up_to_most("most_asked", "vtc", **_place(setting)),
        why=words("at the end it is ", ours("last_difference", "vtc", **_place(setting))),
    )


def _limits(over: Setting, under: Setting) -> Limit:
    """Return the range of the ratio of the largest differences, given the one below the line."""
    return ratio_up_to(
        "most_asked",
        "vtc",
        "most_difference",
        "vtc",
        of=_place(over),
        under_of=_place(under),
    )


def _further(claim: str, over: Setting, under: Setting) -> Claim:
    return Claim(
        claim=claim,
        paper=words(
            "greater variation (no number printed); ",
            theirs("most_difference", "vtc", "", **_place(over)),
            " and ",
            theirs("most_difference", "vtc", "", **_place(under)),
        ),
        value=_over(over, under),
        rule=above(1.2),
        reach=_limits(over, under),
        why=_spreads(over, under),
        unit="x",
        elsewhere={"between the worst seeds": _worst(over, under)},
    )


FIG15 = figure(
    "Figure 15",
    "How far service swings",
    shows="the difference of two clients' accumulated service under VTC, over the size of the pool and the"
    " length of requests",
    takes="quick 5 s; full 6 s",
    cases=_fig15_cases,
    measures={
        "most_difference": most_difference,
        "spread": spread_of_difference,
        "last_difference": difference_at(1.0),
    },
    panels=[
        curve("(a) By pool, in tokens (256/256)", "difference", "pool", length=256),
        curve("(b) By length (pool of 35,000)", "difference", "length", pool=35_000),
        Panel(
            title="Difference of service: largest, and standard deviation, tokens; throughput, tokens/s",
            form="table",
            x="pool",
            hue="length",
            where={"origin": "simulated"},
            columns=["most_difference", "spread", "tokens_per_s"],
        ),
    ],
    claims=[
        *map(_within_bound, SETTINGS),
        _further(
            "a pool of 65,000 lets it swing further than one of 35,000 (256/256)",
            (65_000, 256),
            (35_000, 256),
        ),
        _further(
            "512/512 swings further than 256/256 (pool of 35,000)", (35_000, 512), (35_000, 256)
        ),
        Claim(
            claim="768/768 swings as far as 512/512: the bound is reached",
            paper="the same variance",
            value=_over((35_000, 768), (35_000, 512)),
            rule=within(0.8, 1.25),
            reach=_limits((35_000, 768), (35_000, 512)),
            why=_spreads((35_000, 768), (35_000, 512)),
            unit="x",
        ),
    ],
    choices="Here it is Llama-2-13b on an A100 (80 GB), with rates above its capacity as in the"
    " artifact: 180 and 360 requests a minute at 256/256 (240 and 480 with 65,000 tokens of KV).",
)

# ---- Figure 19: two and eight clients, by how well VTC foresees the outputs

PREDICTORS = ("vtc-noisy", "vtc-oracle")
WORKLOADS = {2: "overload", 8: "overload-multi"}


def _fig19_cases(_: bool) -> Sequence[Case]:
    """VTC and both predictors, with two clients and with eight; and as measured with two."""
    return [
        *(
            simulated(name, Generated(workload=workload), labels={"clients": clients})
            for clients, workload in WORKLOADS.items()
            for name in ("vtc", *PREDICTORS)
        ),
        *(measured(name, "overload", labels={"clients": 2}) for name in ("vtc", *PREDICTORS)),
    ]


def _curve_of(name: str, clients: int) -> Text:
    """Mean, standard deviation and end of the difference's curve."""
    numbers = {
        "mean_difference": "mean",
        "spread": "standard deviation",
        "last_difference": "at the end",
    }
    return several(name, numbers, " tokens", clients=clients)


def _lower(clients: int, name: str, metric: str, claim: str) -> Claim:
    rows = words(
        "; ",
        theirs(metric, name, clients=clients),
        ", VTC ",
        theirs(metric, "vtc", clients=clients),
    )
    return Claim(
        claim=f"{clients} clients, {name}: {claim}",
        paper=words("significantly lower", rows if clients == 2 else ""),
        value=ratio(metric, name, "vtc", clients=clients),
        rule=below(0.6),
        reach=ratio_up_to("most_asked", name, metric, "vtc", of={"clients": clients}),
        why=words(f"{name}: ", _curve_of(name, clients), "; vtc: ", _curve_of("vtc", clients)),
        unit="x",
    )


def _fig19_claims(clients: int) -> list[Claim]:
    """The claims for so many clients: bounded without a predictor, much lower with one."""
    bounded = Claim(
        claim=f"{clients} clients, VTC: the difference stays within Theorem 4.4's bound",
        paper=f"bounded (by {BOUND:,})",
        value=ours("most_difference", "vtc", clients=clients),
        rule=below(BOUND),
        reach=up_to_most("most_asked", "vtc", clients=clients),
        why=_curve_of("vtc", clients),
    )
    return [bounded] + [
        _lower(clients, name, metric, claim)
        for name in PREDICTORS
        for metric, claim in (
            ("spread", "the difference swings less than VTC's"),
            ("mean_difference", "it is lower than VTC's in the mean"),
        )
    ]


FIG19 = figure(
    "Figure 19",
    "What foreseeing outputs is good for",
    shows="the difference of accumulated service under VTC that does not foresee outputs, foresees them to"
    " within a half, and exactly",
    takes="quick 3 s; full 3 s",
    cases=_fig19_cases,
    measures={
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
    claims=[claim for clients in WORKLOADS for claim in _fig19_claims(clients)],
)

STUDIES: Mapping[str, Study] = {
    "vtc-fig3": FIG3,
    "vtc-fig7": FIG7,
    "vtc-fig8": FIG8,
    "vtc-fig15": FIG15,
    "vtc-fig19": FIG19,
}

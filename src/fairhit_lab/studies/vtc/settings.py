"""VTC's Figures 15, 16 and 19: VTC over the pool's size, requests' lengths, weights and predictors."""

from collections.abc import Mapping, Sequence

from fairhit_lab.studies.shared.claims import Claim, Value, above, below, ran, within, words
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Results, interval_of
from fairhit_lab.studies.shared.study import Case, Generated, Outcome, Study
from fairhit_lab.studies.vtc.shared import (
    BOUND,
    MEASURED,
    SIMULATED,
    Text,
    curve,
    figure,
    lasting,
    measured,
    ours,
    ratio,
    several,
    simulated,
    theirs,
)
from fairhit_lab.studies.vtc_artifact.measures import (
    difference_at,
    evenness,
    mean_difference,
    most_difference,
    rate,
    response,
    spread_of_difference,
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
        why=words("at the end it is ", ours("last_difference", "vtc", **_place(setting))),
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
        why=_spreads(over, under),
        unit="x",
        elsewhere={"between the worst seeds": _worst(over, under)},
    )


FIG15 = figure(
    "Figure 15",
    "How far service swings",
    shows="the difference of two clients' accumulated service under VTC, over the size of the pool and the"
    " length of requests",
    takes="quick 5 s; full 40 s",
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
            why=_spreads((35_000, 768), (35_000, 512)),
            unit="x",
        ),
    ],
    choices="Here it is Llama-2-13b on an A100 (80 GB), with rates above its capacity as in the"
    " artifact: 180 and 360 requests a minute at 256/256 (240 and 480 with 65,000 tokens of KV).",
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
    takes="quick 1 s; full 8 s",
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
            rule=above(0.9),
            why=_rates(EQUAL),
        ),
        Claim(
            claim="weights 1:2:3:4: service by weight is the same for all four (least by most)",
            paper=words("closely 1:2:3:4; ", theirs("even_by_weight", "vtc", **WEIGHTED)),
            value=ours("even_by_weight", "vtc", **WEIGHTED),
            rule=above(0.85),
            why=_rates(WEIGHTED),
        ),
        Claim(
            claim="weights in the proportion of the requests: all four wait alike (least by most)",
            paper=words(
                "not printed; ",
                theirs("even_response", "vtc", **WEIGHTED),
                ", mean ",
                theirs("response_s", "vtc", " s", **WEIGHTED),
            ),
            value=ours("even_response", "vtc", **WEIGHTED),
            rule=above(0.8),
            why=several(
                "vtc", {f"response_{client}_s": client for client in WEIGHTS}, " s", **WEIGHTED
            ),
        ),
    ],
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
    takes="quick 3 s; full 20 s",
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

STUDIES: Mapping[str, Study] = {"vtc-fig15": FIG15, "vtc-fig16": FIG16, "vtc-fig19": FIG19}

"""DLPM Figure 1: throughput against fairness on one GPU, of VTC, LPM and DLPM with several quanta."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fairhit_lab.studies.dlpm.shared import BESIDE_ONE, ON_A10G, ON_A10G_8B, jain_ratio, spelled
from fairhit_lab.studies.shared.claims import SHARE, Rule, above, below, judged
from fairhit_lab.studies.shared.limits import throughput_ratio
from fairhit_lab.studies.shared.measures import in_summary, program_wait
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of
from fairhit_lab.studies.shared.study import Case, Generated, Simulated, Study, Verdict

QUANTA = (256, 1_024, 4_096, 16_384, 65_536, 262_144)
QUICK_QUANTA = (1_024, 16_384, 65_536)
KV_TOKENS = 40_000
STATED = "40,000 KV tokens"
# Trees a second and client, of 30 requests each; requests_per_s has what is served.
RATE = 0.065
# Settings of the simulator, rate, settings of the workload.
Setting = tuple[Mapping[str, Any], float, Mapping[str, Any]]
OTHERS: Mapping[str, Setting] = {
    "129,000 KV tokens": ({}, RATE, {}),
    "Llama-3.1-8B": (ON_A10G_8B, 0.035, {}),
    "ideal engine": ({"kv_tokens": KV_TOKENS, "host": "ideal", "max_misfits": 32}, RATE, {}),
    "cv 4": ({"kv_tokens": KV_TOKENS}, RATE, {"cv": 4}),
    "siblings say the same": ({"kv_tokens": KV_TOKENS}, RATE, {"collapse": True}),
    "90 % of their shares": ({"kv_tokens": KV_TOKENS}, 0.08, {}),
    "deep queues": ({"kv_tokens": KV_TOKENS}, 0.2, {}),
}


def cases(quick: bool) -> Sequence[Case]:
    """VTC, LPM, and DLPM with each quantum, on trees of thought; client 0 sends too many."""
    duration_s = 150 if quick else 300

    def case(variant: str, policy: str, quantum: int, setting: Setting) -> Case:
        gpu, rate, workload = setting
        settings = {"clients": 3, "rates": (rate,), "duration": duration_s, **workload}
        own: dict[str, Any] = {"quantum": quantum} if quantum else {}
        if policy != "dlpm":  # their passes stop at the first request that does not fit
            gpu = {name: value for name, value in gpu.items() if name != "max_misfits"}
        return Simulated(
            labels={"variant": variant, "policy": policy, "quantum": quantum},
            source=Generated(workload="tot-s1", settings=settings),
            settings={**ON_A10G, "host": "sglang", "scheduler": policy, **own, **gpu},
            stop_s=duration_s,
        )

    quanta = QUICK_QUANTA if quick else QUANTA
    policies = [("vtc", 0), ("lpm", 0), ("fair", 0), *(("dlpm", quantum) for quantum in quanta)]
    made = [case(STATED, *each, ({"kv_tokens": KV_TOKENS}, RATE, {})) for each in policies]
    if not quick:
        few = [each for each in policies if each[1] in (0, 4_096, 65_536)]
        made += [
            case(variant, *each, setting) for variant, setting in OTHERS.items() for each in few
        ]
        falls_back: Setting = ({"kv_tokens": KV_TOKENS, "fallback": 128}, RATE, {})
        made.append(case("LPM falls back", "lpm", 0, falls_back))
    return made


def _of(policy: str, variant: str = STATED, quantum: Label = 0) -> dict[str, Label]:
    return {"policy": policy, "variant": variant, "quantum": quantum}


def _quanta(results: Results, variant: str) -> list[Label]:
    """The quanta of DLPM in that setting."""
    rows = (row for row in results.rows if (row["variant"], row["policy"]) == (variant, "dlpm"))
    return [quantum for quantum in dict.fromkeys(row["quantum"] for row in rows) if quantum]


def _most(results: Results, variant: str, under: str) -> Interval:
    """DLPM's throughput over another policy's, at the best quantum."""
    ratios = (
        results.ratio("throughput", _of("dlpm", variant, quantum), _of(under, variant))
        for quantum in _quanta(results, variant)
    )
    return max(ratios, key=lambda ratio: ratio.median)


def _best(results: Results) -> Label:
    """The quantum with the highest median throughput, as stated."""
    return max(
        _quanta(results, STATED),
        key=lambda quantum: results.interval("throughput", **_of("dlpm", quantum=quantum)).median,
    )


def _small(results: Results, variant: str) -> Label:
    """The default quantum, or the smallest that was run."""
    quanta = _quanta(results, variant)
    return 4_096 if 4_096 in quanta else quanta[0]


def _fairness(results: Results, variant: str, under: str) -> Interval:
    """DLPM's Jain's index at the small quantum, over another policy's."""
    quantum = _small(results, variant)
    return results.ratio("jain_system", _of("dlpm", variant, quantum), _of(under, variant))


def _beyond(results: Results, variant: str) -> Interval:
    """The share of DLPM's points beyond the line from VTC to LPM, by seed."""
    quanta = _quanta(results, variant)
    points = {
        key: [
            results.values(metric, variant=variant, policy=key[0], quantum=key[1])
            for metric in ("throughput", "jain_system")
        ]
        for key in [("vtc", 0), ("lpm", 0), *(("dlpm", q) for q in quanta)]
    }
    (vtc_x, vtc_y), (lpm_x, lpm_y) = points["vtc", 0], points["lpm", 0]
    shares = []
    for seed in vtc_x:
        across, down = lpm_x[seed] - vtc_x[seed], lpm_y[seed] - vtc_y[seed]
        far = 0
        for quantum in quanta:
            x, y = (values[seed] for values in points["dlpm", quantum])
            # Above the line as seen from the origin: the cross product's sign.
            far += across * (y - vtc_y[seed]) - down * (x - vtc_x[seed]) > 0
        shares.append(far / len(quanta))
    return interval_of(shares)


# Claim, paper's words, number in a setting, its unit, the rule, the metrics that explain it, what the run
# could show, and whether the number is the best of all quanta.
Limits = Callable[[Results], Rule | None]
Claim = tuple[
    str, str, Callable[[Results, str], Interval], str, Rule, tuple[str, ...], Limits, bool
]
CLAIMS: Sequence[Claim] = (
    (
        "some quantum gives DLPM more throughput than VTC, by the factor",
        "above 1x",
        lambda results, variant: _most(results, variant, "vtc"),
        "x",
        above(1),
        ("throughput", "hit_rate"),
        lambda results: throughput_ratio(results, _of("dlpm", quantum=_best(results)), _of("vtc")),
        True,
    ),
    (
        "some quantum brings DLPM to LPM's throughput (95 % of it or more)",
        "comparable to LPM's",
        lambda results, variant: _most(results, variant, "lpm"),
        "x",
        Rule(low=0.95),
        ("throughput", "hit_rate"),
        lambda results: throughput_ratio(results, _of("dlpm", quantum=_best(results)), _of("lpm")),
        True,
    ),
    (
        "DLPM with a small Q^u (4,096) is nearly as fair as VTC (95 % of its Jain's index, system view)",
        "close to VTC's",
        lambda results, variant: _fairness(results, variant, "vtc"),
        "x",
        Rule(low=0.95),
        ("jain_system",),
        lambda results: jain_ratio(results, "jain_system", _of("vtc"), 3),
        False,
    ),
    (
        "DLPM with a small Q^u (4,096) is fairer than LPM, by the factor of Jain's index, system view",
        "LPM far below",
        lambda results, variant: _fairness(results, variant, "lpm"),
        "x",
        above(1),
        ("jain_system",),
        lambda results: jain_ratio(results, "jain_system", _of("lpm"), 3),
        False,
    ),
    (
        "DLPM's points lie beyond the line from VTC to LPM: the share of its quanta",
        "all (a new Pareto frontier)",
        _beyond,
        "",
        Rule(low=1),
        ("throughput", "jain_system"),
        lambda _: SHARE,
        False,
    ),
)


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on DLPM's points beside VTC's and LPM's, and on the effect of the quantum."""
    others = [name for name in OTHERS if name in results.labels("variant")]
    all_quanta = len(_quanta(results, STATED))
    made = []
    for claim, paper, number, unit, rule, metrics, limits, is_best in CLAIMS:
        found = {name: number(results, name) for name in others}
        few = {
            name: of
            for name, of in found.items()
            if is_best and len(_quanta(results, name)) < all_quanta
        }
        why = _numbers(results, metrics)
        if few:  # a maximum of fewer quanta is not compared
            best = ", ".join(f"{name} {of.median:.3g}{unit}" for name, of in few.items())
            why += f"; the best of fewer quanta, not judged: {best}"
        made.append(
            judged(
                claim=claim,
                paper=paper,
                ours=number(results, STATED),
                unit=unit,
                rule=rule,
                why=why,
                elsewhere={name: of for name, of in found.items() if name not in few},
                reach=limits(results),
            )
        )
    return [*made, *_by_quantum(results)]


NAMED = {"throughput": "throughput", "hit_rate": "hit rate", "jain_system": "Jain's index"}


def _numbers(results: Results, metrics: Sequence[str]) -> str:
    """The measures of each policy as stated, DLPM with the smallest, a small and the largest quantum."""
    quanta = _quanta(results, STATED)
    shown = dict.fromkeys((quanta[0], _small(results, STATED), quanta[-1]))
    runs = {"VTC": _of("vtc"), "LPM": _of("lpm")} | {
        f"DLPM (Q^u {quantum:,})": _of("dlpm", quantum=quantum) for quantum in shown
    }
    return "; ".join(f"{NAMED[metric]} {spelled(results, metric, runs)}" for metric in metrics)


def _by_quantum(results: Results) -> list[Verdict]:
    """Verdicts on the largest quantum over the smallest, as stated."""
    quanta = _quanta(results, STATED)
    low, high = _of("dlpm", quantum=quanta[0]), _of("dlpm", quantum=quanta[-1])
    return [
        judged(
            claim=f"a larger quantum gives {way} {name}: the largest over the smallest",
            paper=f"{way} with each step",
            ours=results.ratio(metric, high, low),
            unit="x",
            rule=rule,
            why=_numbers(results, (metric, "hit_rate")),
            reach=throughput_ratio(results, high, low)
            if metric == "throughput"
            else jain_ratio(results, metric, low, 3),
        )
        for metric, name, rule, way in (
            ("throughput", "throughput", above(1), "more"),
            ("jain_system", "of Jain's index", below(1), "less"),
        )
    ]


STUDY = Study(
    title="Throughput against fairness, trees of thought (S1) on one A10G",
    source="DLPM (arXiv:2501.14312v1), Figure 1",
    shows="throughput and Jain's index of VTC, LPM and DLPM with quanta from 256 to 262,144",
    takes="quick 10 s; full 80 s",
    cases=cases,
    measures={
        **in_summary("throughput", "requests_per_s", "jain_client", "jain_system", "hit_rate"),
        "p99_good_s": program_wait("p99_s", without=("c0",)),
    },
    panels=[
        Panel(
            title=variant,
            form="path",
            x="throughput",
            y=y,
            hue="policy",
            where={"variant": variant},
            x_label="throughput, service tokens/s",
            y_label=label,
            zero=False,
        )
        for variant in (STATED, *OTHERS)
        for y, label in (
            ("jain_client", "Jain's index, client view"),
            ("jain_system", "Jain's index, system view"),
        )[: 2 if variant == STATED else 1]
    ],
    judge=judge,
    choices="Workload, rates and quanta are not printed: trees of thought (S1), 0.065 a second and client. "
    "With 40,000 KV tokens an A10G serves 7.4 to 8.1 requests/s by the policy: the good clients ask "
    "for 72 to 79 % of their shares, client 0 for 8 to 9 times its share; with 90 % for the good ones "
    "as a variant, and 0.2 a second, at which all clients wait (deep queues). What the run can show: more is "
    "asked for than is served, so that throughput differs by what hit rates make of it, and one client asks "
    "for most of the service, so that a policy that does not protect the others shows it in Jain's index. "
    "Claims of more than 1x ask for the direction alone and can hardly fail where one of six quanta may meet "
    "them; those with a share ask for the size. The run stops with the "
    "arrivals; an unfinished program counts with the time so far. 129,000 KV tokens hold every tree in "
    "flight and leave nothing to win by locality, so memory is 40,000, what an A10G has for "
    "Llama-3.1-8B. At a request that does not fit every policy's pass ends, as SGLang's does; with the "
    "ideal engine DLPM's skips up to 32 of them, VTC's and LPM's end there. Quanta by factors of 4; "
    f"where 4,096 was not run (quick) the small one is 1,024. {BESIDE_ONE}",
)

"""DLPM Figure 8: short chats of four clients on two GPUs, of whom two send far too much for a while."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.experiments.studies.dlpm.systems import DLPM_SYSTEMS, ON_A10G
from fairlead.experiments.study.claims import above, below, judged
from fairlead.experiments.study.measures import hit_rate, throughput, ttft
from fairlead.experiments.study.panel import Panel
from fairlead.experiments.study.results import Interval, Results
from fairlead.experiments.study.study import Case, Generated, Simulated, Study, Verdict

GOOD, SURGING = ("c0", "c1"), ("c2", "c3")
RATE = 3.0  # conversations a second and good client; two A10Gs serve about 19 requests/s
# Who returns to normal midway: both (the earlier text), or client 2 alone (arXiv).
BOTH, ALONE = "2 and 3 return", "2 returns"
READINGS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    BOTH: ("arena-surge", (RATE,)),
    ALONE: ("arena-surge-one", (RATE, RATE, RATE, 5 * RATE)),
}
STATED = "stated"
OTHERS: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any]]] = {
    "SGLang's admission": (("d2lpm", "rr+lpm", "vtc"), {"host": "sglang"}),
    "LPM falls back above 128": (("rr+lpm",), {"fallback": 128}),
    "40,000 KV tokens": (("d2lpm", "rr+lpm", "vtc"), {"kv_tokens": 40_000}),
}


def cases(quick: bool) -> Sequence[Case]:
    """D2LPM, RR+LPM, VTC and Preble, to the end of what was sent; both readings of the text."""
    duration_s = 80 if quick else 160

    def case(reading: str, system: str, variant: str, settings: Mapping[str, Any]) -> Case:
        workload, rates = READINGS[reading]
        own: dict[str, Any] = {"replicas": 2, "host": "ideal", **DLPM_SYSTEMS[system], **settings}
        if own["host"] == "ideal" and system in {"d2lpm", "preble"}:
            own["max_misfits"] = 32
        return Simulated(
            labels={"reading": reading, "system": system, "variant": variant},
            source=Generated(workload=workload, settings={"rates": rates, "duration": duration_s}),
            settings={**ON_A10G, **own},
            series=variant == STATED,
        )

    made = [
        case(reading, system, STATED, {})
        for reading in ((ALONE,) if quick else READINGS)
        for system in DLPM_SYSTEMS
    ]
    if not quick:
        made += [
            case(ALONE, system, variant, settings)
            for variant, (systems, settings) in OTHERS.items()
            for system in systems
        ]
    return made


def _waits(results: Results, metric: str, over: str, under: str = "d2lpm") -> dict[str, Interval]:
    """By setting; a system that was not varied is as stated."""
    settings = [(str(reading), STATED) for reading in results.labels("reading")]
    settings += [(ALONE, name) for name in OTHERS if name in results.labels("variant")]
    found = {}
    for reading, variant in settings:
        sides = [
            {"reading": reading, "system": system, "variant": _run(results, system, variant)}
            for system in (over, under)
        ]
        if variant in {side["variant"] for side in sides}:
            name = reading if variant == STATED else variant
            found[name] = results.ratio(metric, sides[0], sides[1])
    return found


def _run(results: Results, system: str, variant: str) -> str:
    """The setting in which it was run: this one, or as stated."""
    has = any((row["system"], row["variant"]) == (system, variant) for row in results.rows)
    return variant if has else STATED


def _above(claim: str, paper: str, why: str, found: dict[str, Interval]) -> Verdict:
    """By 1 % at least."""
    ours = found.pop(ALONE)
    return judged(
        claim=claim, paper=paper, ours=ours, unit="x", rule=above(1.01), why=why, elsewhere=found
    )


def judge(results: Results) -> Sequence[Verdict]:
    """Who waits, under whom; by D2LPM's own wait."""
    longest = results.interval("surging_max_s", reading=ALONE, system="vtc", variant=STATED)
    return [
        _above(
            "RR+LPM makes clients 0 and 1 wait longer than D2LPM does: P99 to the first token",
            "high response times for clients 0 and 1",
            "prompts of 16 shared tokens match alike, so LPM serves in order of arrival",
            _waits(results, "good_p99_s", "rr+lpm"),
        ),
        _above(
            "VTC makes clients 2 and 3 wait longer than D2LPM does: their mean to the first token",
            "up to 80 s under VTC, low under D2LPM",
            f"VTC's longest wait is {longest} s; with few tokens to share D2LPM has no more capacity to give",
            _waits(results, "surging_mean_s", "vtc"),
        ),
        judged(
            claim="D2LPM keeps clients 0 and 1 from waiting: P99 to the first token is below 5 s",
            paper="consistently low",
            ours=results.interval("good_p99_s", reading=ALONE, system="d2lpm", variant=STATED),
            unit=" s",
            rule=below(5),
            why="a good client waits for the debt that the surging ones may run up",
        ),
        _above(
            "D2LPM gives more service a second than VTC",
            "improves overall system performance",
            "a fifth of the tokens can be cached at most, and every chat ends in the same time",
            _waits(results, "throughput", "d2lpm", "vtc"),
        ),
        judged(
            claim="VTC serves clients 0 and 1 at once: P99 to the first token is below 5 s",
            paper="relatively low response times",
            ours=results.interval("good_p99_s", reading=ALONE, system="vtc", variant=STATED),
            unit=" s",
            rule=below(5),
        ),
    ]


STUDY = Study(
    title="Short chats with a surge, on two GPUs",
    source="DLPM (arXiv:2501.14312v1), Figure 8",
    shows="clients 2 and 3 send five times as much until half-time: response times and service over time",
    takes="quick 10 s; full 4 min",
    cases=cases,
    measures={
        "good_p99_s": ttft("p99_s", without=SURGING),
        "good_mean_s": ttft("mean_s", without=SURGING),
        "surging_mean_s": ttft("mean_s", without=GOOD),
        "surging_p99_s": ttft("p99_s", without=GOOD),
        "surging_max_s": ttft("max_s", without=GOOD),
        "throughput": throughput,
        "hit_rate": hit_rate,
    },
    panels=[
        Panel(
            title=f"{title}: {system}",
            form="lines",
            of="series",
            x="time_s",
            y=metric,
            hue="client",
            where={"reading": ALONE, "variant": STATED, "system": system},
            x_label="time, s",
            y_label=label,
        )
        for metric, title, label in (
            ("response_time", "Response time", "seconds to the first token"),
            ("service_client", "Service", "input + 2 x output, tokens/s"),
        )
        for system in DLPM_SYSTEMS
    ],
    judge=judge,
    choices="The conversations are not public here: lengths of Chatbot Arena from the VTC trace, 1.2 "
    "turns, 16 tokens of system prompt, 3 conversations a second from a good client and 15 from a "
    "surging one, twice what two A10Gs serve. The texts differ on who returns to normal: client 2 "
    "(arXiv, the figure here) or both. Ideal engine; SGLang's admission, LPM's fallback and "
    "scarce memory are varied.",
)

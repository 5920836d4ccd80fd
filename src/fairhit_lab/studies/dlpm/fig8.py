"""DLPM Figure 8: short chats of four clients on two GPUs; two of them surge to five times the rate."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairhit_lab.studies.dlpm.shared import (
    BESIDE,
    DLPM_SYSTEMS,
    NAMES,
    ON_A10G,
    STATED,
    SYSTEMS,
    on_ideal,
    over_time,
    ratios,
    spelled,
    within_run,
)
from fairhit_lab.studies.shared.claims import Rule, above, below, could_show, judged, up_to
from fairhit_lab.studies.shared.limits import waits_ratio
from fairhit_lab.studies.shared.measures import (
    in_summary,
    late_ttft,
    longest_ttft,
    ttft,
    while_arriving,
)
from fairhit_lab.studies.shared.results import Interval, Label, Results
from fairhit_lab.studies.shared.study import Case, Generated, Simulated, Study, Verdict

GOOD, SURGING = ("c0", "c1"), ("c2", "c3")
RATE = 4.5  # conversations a second and good client; requests_per_s has what is served
ANSWER = 142  # tokens in the mean (Table 2)
SURGE_S = 80  # half of the arrivals' time
LAST = 0.1  # of client 2's requests: all of these come after its return
# Of all requests: later turns arrive long after the last conversation has begun.
ARRIVED = 0.9
# Who returns to normal midway: both (the earlier text), or client 2 alone (arXiv).
BOTH, ALONE = "2 and 3 return", "2 returns"
READINGS: Mapping[str, tuple[str, tuple[float, ...]]] = {
    BOTH: ("arena-surge", (RATE,)),
    ALONE: ("arena-surge-one", (RATE, RATE, RATE, 5 * RATE)),
}
LOW_S = 5  # a choice of ours: no number is printed
# Systems, settings, and what differs in the workload.
COMPARED = ("d2lpm", "rr+lpm", "vtc")
OTHERS: Mapping[str, tuple[tuple[str, ...], Mapping[str, Any], Mapping[str, Any]]] = {
    "SGLang's admission": (COMPARED, {"host": "sglang"}, {}),
    "LPM falls back above 128": (("rr+lpm",), {"fallback": 128}, {}),
    "40,000 KV tokens": (COMPARED, {"kv_tokens": 40_000}, {}),
    "answers of 256 tokens": (COMPARED, {}, {"answer": 256, "rates": (3.0, 3.0, 3.0, 15.0)}),
    "a surge of 40 s": (COMPARED, {}, {"duration": SURGE_S}),
    "a surge of 160 s": (COMPARED, {}, {"duration": 4 * SURGE_S}),
}


def cases(quick: bool) -> Sequence[Case]:
    """D2LPM, RR+LPM, VTC and Preble until all requests are served; both readings of the text."""

    def case(
        reading: str,
        system: str,
        variant: str,
        settings: Mapping[str, Any],
        of_workload: Mapping[str, Any],
    ) -> Case:
        workload, rates = READINGS[reading]
        own = {"replicas": 2, **SYSTEMS[system], **settings}
        return Simulated(
            labels={"reading": reading, "system": system, "variant": variant},
            source=Generated(
                workload=workload,
                settings={
                    "rates": rates,
                    "answer": ANSWER,
                    "duration": SURGE_S if quick else 2 * SURGE_S,
                    **of_workload,
                },
            ),
            settings={**ON_A10G, **on_ideal(own, skips=system in {"d2lpm", "preble"})},
            series=variant == STATED,
            requests=True,
        )

    made = [
        case(reading, system, STATED, {}, {})
        for reading in ((ALONE,) if quick else READINGS)
        for system in SYSTEMS
    ]
    if not quick:
        made += [
            case(ALONE, system, variant, settings, of_workload)
            for variant, (systems, settings, of_workload) in OTHERS.items()
            for system in systems
        ]
    return made


def _by_setting(
    results: Results, metric: str, over: str, under: str = "d2lpm"
) -> dict[str, Interval]:
    """Ratios of two systems' metric, as stated under each reading, then varied."""
    found: dict[str, Interval] = {}
    for reading in results.labels("reading"):
        sides = [{"reading": reading, "system": system} for system in (over, under)]
        by = ratios(results, metric, sides[0], sides[1], (STATED, *OTHERS))
        found |= {str(reading) if name == STATED else name: ratio for name, ratio in by.items()}
    return found


def _of_one(results: Results, metric: str, system: str) -> dict[str, Interval]:
    """The metric of a system in every setting in which it was run."""
    found = {}
    for row in results.rows:
        if row["system"] == system:
            reading, variant = str(row["reading"]), str(row["variant"])
            found[reading if variant == STATED else variant] = results.interval(
                metric, reading=reading, system=system, variant=variant
            )
    return found


def _judged(
    claim: str,
    paper: str,
    found: dict[str, Interval],
    rule: Rule,
    *,
    unit: str,
    why: str,
    reach: Rule | None = None,
) -> Verdict:
    """The verdict as stated under arXiv's reading, and in all other settings."""
    ours = found.pop(ALONE)
    return judged(
        claim=claim,
        paper=paper,
        ours=ours,
        rule=rule,
        elsewhere=found,
        unit=unit,
        why=why,
        reach=reach,
    )


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on waits under each system; "more" means by 1 % at least."""
    made = [*_compared(results), *_low(results)]
    if set(OTHERS) <= set(results.labels("variant")):  # the surge of quick runs lasts half as long
        made += [_both_return(results), _longest(results)]
    return made


def _runs(*systems: str) -> dict[str, dict[str, Label]]:
    """Return the runs of the figure, by the names of the systems."""
    return {
        NAMES[system]: {"reading": ALONE, "system": system, "variant": STATED} for system in systems
    }


def _compared(results: Results) -> list[Verdict]:
    """Verdicts on directions; the paper prints no size for them."""
    printed = (
        (
            "RR+LPM makes clients 0 and 1 wait longer than D2LPM does: P99 to the first token",
            "high response times for clients 0 and 1",
            ("good_p99_s", "rr+lpm", "d2lpm", " s"),
        ),
        (
            "VTC makes clients 2 and 3 wait longer than D2LPM does: their mean to the first token",
            "substantial delays under VTC, low ones under D2LPM",
            ("surging_mean_s", "vtc", "d2lpm", " s"),
        ),
        (
            f"D2LPM gives more service a second than VTC until {ARRIVED:.0%} of the requests have arrived",
            "improves overall system performance",
            ("arriving_throughput", "d2lpm", "vtc", " a second"),
        ),
    )
    return [
        _judged(
            claim,
            paper,
            _by_setting(results, metric, over, under),
            above(1.01),
            unit="x",
            why=f"as stated {spelled(results, metric, _runs(over, under), unit)}; "
            f"hit rates {spelled(results, 'hit_rate', _runs(over, under))}; "
            f"all is served after {spelled(results, 'makespan_s', _runs(over, under), ' s')}",
            reach=_limits(results, metric, over, under),
        )
        for claim, paper, (metric, over, under, unit) in printed
    ]


def _limits(results: Results, metric: str, over: str, under: str) -> Rule | None:
    """Return the range of the ratio, given VTC's service or D2LPM's waits as stated."""
    top, base = (_runs(system)[NAMES[system]] for system in (over, under))
    if metric != "arriving_throughput":
        return waits_ratio(results, metric, top, base)
    asked, served = results.interval("arriving_asked", **top), results.interval(metric, **base)
    return could_show(0, asked.high / served.low)


def _low(results: Results) -> list[Verdict]:
    """Verdicts on clients whose waits stay short under D2LPM and VTC."""
    printed = (
        ("d2lpm", "good_p99_s", "clients 0 and 1", "consistently low"),
        ("d2lpm", "c2_late_p99_s", "client 2 after its return", "consistently low"),
        ("vtc", "good_p99_s", "clients 0 and 1", "relatively low response times"),
    )
    return [
        _judged(
            f"{NAMES[system]} keeps {who} from waiting: P99 to the first token is below {LOW_S} s",
            paper,
            _of_one(results, metric, system),
            below(LOW_S),
            unit=" s",
            why=f"of the others as stated {spelled(results, metric, _runs(*others), ' s')}",
            reach=within_run(results, _runs(system)[NAMES[system]]),
        )
        for system, metric, who, paper in printed
        for others in [[name for name in DLPM_SYSTEMS if name != system]]
    ]


def _both_return(results: Results) -> Verdict:
    """The verdict on client 3, which returns in the earlier text alone."""
    own: dict[str, Label] = {"reading": BOTH, "system": "d2lpm", "variant": STATED}
    return judged(
        claim="D2LPM keeps client 3 after its return (the earlier text, where clients 2 and 3 return) from "
        f"waiting: P99 to the first token is below {LOW_S} s",
        paper="consistently low for the previously misbehaving",
        ours=results.interval("c3_late_p99_s", **own),
        rule=below(LOW_S),
        unit=" s",
        why=f"client 2 {results.interval('c2_late_p99_s', **own)} s",
        reach=within_run(results, own),
    )


def _longest(results: Results) -> Verdict:
    """The verdict on a printed size."""
    return _judged(
        "under VTC client 2 or 3 waits for up to 80 s (60 to 107 s): the longest time to the first token",
        "up to 80 s",
        _of_one(results, "longest_s", "vtc"),
        up_to(80),
        unit=" s",
        why=f"all is served after {spelled(results, 'makespan_s', _runs('vtc'), ' s')}",
        reach=within_run(results, _runs("vtc")[NAMES["vtc"]]),
    )


STUDY = Study(
    title="Short chats with a surge, on two GPUs",
    source="DLPM (arXiv:2501.14312v1), Figure 8",
    shows="four clients, two of which send five times as much for a while: their waits and service over time",
    takes="quick 10 s; full 2 min",
    cases=cases,
    measures={
        "good_p99_s": ttft("p99_s", without=SURGING),
        "good_mean_s": ttft("mean_s", without=SURGING),
        "surging_mean_s": ttft("mean_s", without=GOOD),
        "c2_p99_s": ttft("p99_s", without=(*GOOD, "c3")),
        "c2_late_p99_s": late_ttft("c2", LAST),
        "c3_p99_s": ttft("p99_s", without=(*GOOD, "c2")),
        "c3_late_p99_s": late_ttft("c3", LAST),
        "longest_s": longest_ttft(*SURGING),
        "arriving_throughput": while_arriving(ARRIVED),
        "arriving_asked": while_arriving(ARRIVED, served=False),
        **in_summary("makespan_s", "throughput", "requests_per_s", "hit_rate"),
    },
    panels=over_time(
        ("response_time", "service_client"),
        {system: {"reading": ALONE, "variant": STATED, "system": system} for system in SYSTEMS},
    ),
    judge=judge,
    choices="The conversations are not public here: questions as long as those of Chatbot Arena in the VTC "
    "trace, answers of 142 tokens in the mean (Table 2; the trace's 256 are varied), 1.2 turns, 16 "
    "tokens of system prompt, 4.5 conversations a second from a good client and 22.5 from a surging "
    "one, twice what two A10Gs serve. The surge lasts 80 s, half of the arrivals' time; 40 and 160 s "
    "are varied. What the run can show: clients send more than is served for 80 s, so that waits of 80 s "
    "are possible, and each run goes on until all is served, so that no wait is cut. Its end is the last "
    "turn of the longest conversation (20 s of thought between turns), which no system can change; service "
    "is therefore compared until 90 % of the requests have arrived, where a system that kept up would have a "
    "fifth more than VTC has. Client 2 after its return: the last tenth of its requests. The texts differ on "
    "who returns to normal: client 2 (arXiv, the figure here) or both. Low is P99 below 5 s, as no number "
    "is printed. Ideal engine; SGLang's admission, LPM's fallback and scarce memory are varied. At a "
    "request that does not fit, passes of D2LPM and Preble skip up to 32 of them (max_misfits), a "
    "bound for the sake of speed; those of VTC and LPM end there, as theirs do; with SGLang's "
    f"admission all end. {BESIDE}",
)

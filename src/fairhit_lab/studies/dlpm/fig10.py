"""DLPM Figure 10: D2LPM's worker quantum Q^w against throughput and fairness, on four GPUs."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairhit_lab.studies.dlpm.shared import (
    BESIDE,
    FLEET,
    NAMES,
    ON_A10G,
    PREBLE_BY_RATIO,
    PREBLE_BY_THRESHOLD,
    SYSTEMS,
    jain_ratio,
    spelled,
)
from fairhit_lab.studies.shared.claims import Rule, above, below, jain_of, judged, within
from fairhit_lab.studies.shared.limits import throughput_ratio
from fairhit_lab.studies.shared.measures import in_summary
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of
from fairhit_lab.studies.shared.study import Case, Generated, Simulated, Study, Verdict

QUANTA = (2_000, 5_000, 10_000, 20_000, 40_000)
BAD, GOOD, PREFIX, EXTEND = "one bad", "all good", "one bad, one prefix", "one bad, extend charged"
FAST, POISSON = "one bad, at 0.5 trees a second", "all good, Poisson"
# Name of the workload, its settings, D2LPM's.
WORKLOADS: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    BAD: ("tot-s2", {}, {}),
    GOOD: ("tot-even", {"cv": 0.1}, {}),  # as many programs of each client
    PREFIX: ("tot", {"branches": (3,), "preface": (531, 0)}, {}),
    EXTEND: ("tot-s2", {}, {"worker_charge": "extend"}),
    FAST: ("tot-s2", {"rates": (0.5, 0.15)}, {}),
    POISSON: ("tot-even", {}, {}),
}
RATE = 0.15  # trees a second and client
OTHERS = ("rr+lpm", "preble", "vtc")
# Preble as this paper describes it: by a ratio of the prompt (section 6.1), by a threshold (section 7.1).
RATIO, THRESHOLD = "preble (ratio)", "threshold"
DESCRIBED: Mapping[str, Mapping[str, Any]] = {
    RATIO: PREBLE_BY_RATIO,
    THRESHOLD: PREBLE_BY_THRESHOLD,
}
RUN = {**SYSTEMS, **DESCRIBED}


def cases(quick: bool) -> Sequence[Case]:
    """D2LPM with each quantum, and the other systems."""
    duration_s = 120 if quick else 180
    quanta = (2_000, 20_000, 40_000) if quick else QUANTA
    made: list[Case] = []
    for workload in (BAD, GOOD) if quick else WORKLOADS:
        generator, given, settings = WORKLOADS[workload]
        source = Generated(
            workload=generator,
            settings={
                "clients": 3,
                "rates": (RATE,),
                "duration": duration_s,
                **({"programs_each": round(RATE * duration_s) - 1} if workload == GOOD else {}),
                **given,
            },
        )
        ends = workload in {PREFIX, EXTEND, POISSON}  # only the ends of the range
        systems: list[tuple[str, int]] = [
            ("d2lpm", quantum) for quantum in (quanta[0], quanta[-1]) if ends
        ] + [("d2lpm", quantum) for quantum in quanta if not ends]
        if workload != EXTEND:
            systems += [(name, 0) for name in (*OTHERS, FLEET)]
        if workload in {BAD, PREFIX, FAST} and not quick:
            systems += [(name, 0) for name in DESCRIBED]
        for system, quantum in systems:
            own: dict[str, Any] = {"replicas": 4, "host": "ideal", **RUN[system]}
            if quantum:
                own |= {"worker_quantum": quantum, "max_misfits": 32, **settings}
            made.append(
                Simulated(
                    labels={"workload": workload, "system": system, "worker_quantum": quantum},
                    source=source,
                    settings={**ON_A10G, **own},
                    stop_s=duration_s,
                )
            )
    return made


def _at(workload: str, quantum: Label, system: str = "d2lpm") -> dict[str, Label]:
    return {"workload": workload, "system": system, "worker_quantum": quantum}


def _quanta(results: Results) -> list[Label]:
    return [quantum for quantum in results.labels("worker_quantum") if quantum]


def _rise(results: Results, metric: str, workload: str) -> Interval:
    """A metric at the largest quantum, over the smallest."""
    quanta = _quanta(results)
    return results.ratio(metric, _at(workload, quanta[-1]), _at(workload, quanta[0]))


def _last_step(results: Results, workload: str) -> Interval:
    """The throughput at the largest quantum, over the second largest."""
    before, last = _quanta(results)[-2:]
    return results.ratio("throughput", _at(workload, last), _at(workload, before))


def _best(results: Results, workload: str) -> str:
    """The other system with the highest median throughput."""
    return max(
        OTHERS, key=lambda name: results.interval("throughput", **_at(workload, 0, name)).median
    )


def _over_best(results: Results, workload: str) -> Interval:
    """D2LPM's throughput with the largest quantum over the best of the other systems, by seed."""
    ours = results.values("throughput", **_at(workload, _quanta(results)[-1]))
    theirs = [results.values("throughput", **_at(workload, 0, name)) for name in OTHERS]
    return interval_of(
        ours[seed] / max(of[seed] for of in theirs)
        for seed in ours
        if all(of.get(seed) for of in theirs)
    )


def _least(results: Results, metric: str, workload: str = GOOD) -> Interval:
    """The lowest index over all quanta that were run, by seed, where no client misbehaves."""
    of = [results.values(metric, **_at(workload, quantum)) for quantum in _quanta(results)]
    of = [values for values in of if values]
    return interval_of(
        min(values[seed] for values in of) for seed in of[0] if all(seed in each for each in of)
    )


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on throughput and Jain's index over the quantum, and beside the other systems."""
    return [*_throughput(results), _preble(results), *_jain(results), _even(results)]


def _throughput(results: Results) -> list[Verdict]:
    varied = [name for name in (PREFIX, EXTEND, FAST) if name in results.labels("workload")]
    made: list[Verdict] = []
    for workload, figure in ((BAD, "10a"), (GOOD, "10b")):
        others = varied if workload == BAD else _poisson(results)
        best, (first, *_, before, last) = _best(results, workload), _quanta(results)
        ends = {f"Q^w {each:,}": _at(workload, each) for each in _quanta(results)}
        hits = {
            f"D2LPM at {list(ends)[-1]}": _at(workload, _quanta(results)[-1]),
            NAMES[best]: _at(workload, 0, best),
        }
        made += [
            judged(
                claim=f"{figure}: throughput rises with Q^w: 40,000 over 2,000",
                paper="rises",
                ours=_rise(results, "throughput", workload),
                unit="x",
                rule=above(1.01),
                why=f"hit rates {spelled(results, 'hit_rate', ends)}",
                elsewhere={name: _rise(results, "throughput", name) for name in others},
                reach=throughput_ratio(results, _at(workload, last), _at(workload, first)),
            ),
            judged(
                claim=f"{figure}: it levels off: Q^w = 40,000 over 20,000 is 0.97x to 1.03x",
                paper="stabilises",
                ours=_last_step(results, workload),
                unit="x",
                rule=within(0.97, 1.03),
                why=f"hit rates {spelled(results, 'hit_rate', ends)}",
                elsewhere={FAST: _last_step(results, FAST)} if FAST in others else {},
                reach=throughput_ratio(results, _at(workload, last), _at(workload, before)),
            ),
            judged(
                claim=f"{figure}: with 40,000 D2LPM surpasses all other systems: over the best of them",
                paper="above all",
                ours=_over_best(results, workload),
                unit="x",
                rule=above(1.01),
                why=f"hit rates {spelled(results, 'hit_rate', hits)}",
                elsewhere={name: _over_best(results, name) for name in others if name != EXTEND},
                reach=throughput_ratio(results, _at(workload, last), _at(workload, 0, best)),
            ),
        ]
    return made


def _poisson(results: Results) -> list[str]:
    return [POISSON] if POISSON in results.labels("workload") else []


def _preble(results: Results) -> Verdict:
    """The verdict on Preble's throughput, E2's and that of the two routers that the paper describes."""
    last = _quanta(results)[-1]

    def against(workload: str, system: str = "preble") -> Interval:
        return results.ratio("throughput", _at(workload, 0, system), _at(workload, last))

    workloads = [name for name in (PREFIX, FAST) if name in results.labels("workload")]
    elsewhere = {f"E2, {name}": against(name) for name in workloads} | {
        f"{system}, {workload}": against(workload, system)
        for system in DESCRIBED
        for workload in (BAD, *workloads)
        if results.values("throughput", **_at(workload, 0, system))
    }
    hits = {"Preble": _at(BAD, 0, "preble"), f"D2LPM at {last:,}": _at(BAD, last)}
    return judged(
        claim="10a: Preble's throughput is low: below 0.95 of D2LPM's with 40,000",
        paper="low, as one GPU has all of client 0's requests",
        ours=against(BAD),
        unit="x",
        rule=below(0.95),
        why=f"hit rates {spelled(results, 'hit_rate', hits)}",
        elsewhere=elsewhere,
        reach=throughput_ratio(results, _at(BAD, 0, "preble"), _at(BAD, last)),
    )


def _jain(results: Results) -> list[Verdict]:
    """Verdicts on Jain's index with a misbehaving client: the printed values, and the direction."""
    first, *_, last = _quanta(results)
    varied = [name for name in (PREFIX, EXTEND, FAST) if name in results.labels("workload")]
    system = {f"Q^w {each:,}": _at(BAD, each) for each in (first, last)}
    others = {NAMES[name]: _at(BAD, 0, name) for name in OTHERS}
    why = (
        f"the other systems {spelled(results, 'jain_client', others)}; in the system view "
        f"{spelled(results, 'jain_system', system)}"
    )
    unknown = "; the paper's rates, lengths and burstiness are not printed"
    sizes = [
        judged(
            claim=f"10a: Jain's index (client view) is about {value} at Q^w = {quantum:,} ({low} to {high})",
            paper=str(value),
            ours=results.interval("jain_client", **_at(BAD, quantum)),
            rule=within(low, high),
            why=why + unknown,
            elsewhere={
                name: results.interval("jain_client", **_at(name, quantum)) for name in varied
            },
            reach=jain_of(3),
        )
        for quantum, value, low, high in ((first, 0.855, 0.83, 0.88), (last, 0.83, 0.8, 0.86))
    ]
    falls = [
        judged(
            claim=f"10a: Jain's index (client view) {claim}, Q^w = 40,000 over 2,000",
            paper="0.855 to 0.83",
            ours=_rise(results, "jain_client", BAD),
            unit="x",
            rule=rule,
            why=why,
            elsewhere={name: _rise(results, "jain_client", name) for name in varied},
            reach=jain_ratio(results, "jain_client", _at(BAD, first), 3),
        )
        for claim, rule in (
            ("falls", below(1)),
            ("falls by 3 % (to 0.95 to 0.99 of itself)", within(0.95, 0.99)),
        )
    ]
    return [*sizes, *falls]


def _even(results: Results) -> Verdict:
    """The verdict on Jain's index where no client misbehaves."""
    others = {NAMES[name]: _at(GOOD, 0, name) for name in OTHERS}
    return judged(
        claim="10b: Jain's index is 1 (0.99 or more) at every Q^w",
        paper="1 throughout",
        ours=_least(results, "jain_client"),
        rule=Rule(low=0.99),
        why=f"in the system view {_least(results, 'jain_system')}; the other systems "
        f"{spelled(results, 'jain_client', others)}",
        elsewhere={name: _least(results, "jain_client", name) for name in _poisson(results)},
        reach=jain_of(3),
    )


def _panel(workload: str, metric: str, label: str) -> Panel:
    return Panel(
        title=f"{label.partition(',')[0].capitalize()}, {workload}",
        form="lines",
        x="worker_quantum",
        y=metric,
        hue="system",
        where={"workload": workload},
        x_label="Q^w, tokens (dashed: has none)",
        log_x=True,
        y_label=label,
        zero=False,
    )


STUDY = Study(
    title="Worker quantum on four GPUs",
    source="DLPM (arXiv:2501.14312v1), Figure 10",
    shows="D2LPM's Q^w from 2,000 to 40,000: throughput and Jain's index, with and without a bad client",
    takes="quick 12 s; full 100 s",
    cases=cases,
    measures={
        **in_summary("throughput", "requests_per_s", "hit_rate", "jain_client", "jain_system"),
    },
    panels=[
        _panel(workload, metric, label)
        for workload in (BAD, FAST, GOOD)
        for metric, label in (
            ("throughput", "throughput, service tokens/s"),
            ("jain_client", "Jain's index, client view"),
        )
    ],
    judge=judge,
    choices="Rates are not printed: 0.15 trees (b = 3) a second and client, 1.6 times what four A10Gs serve; "
    "the run stops with the arrivals after 180 s. Figure 10a is of the client with the longer prefix that "
    "section 7.1 describes, where all send at the same rate; whether it also sends more here is not said, so "
    "that 0.5 trees a second from it are varied: with equal rates Jain's index of what clients see can "
    "hardly fall to 0.855. Where no client misbehaves (10b) each has the same number of trees, at nearly "
    "even times; Poisson arrivals are varied, whose counts differ by chance. More is asked for than any "
    "system serves, so that throughput may differ by as much as hit rates make of it: what is asked for is "
    "the limit that is stored. 129,000 KV tokens a GPU; ideal engine. At a request that "
    "does not fit, passes of D2LPM skip up to 32 of them (max_misfits), a bound for the sake of speed; "
    "Preble's skip all of them, those of VTC and LPM end there, as theirs do. Varied, too: one prefix for "
    "all of client 0's trees, and what of a prompt is charged to Q^w. Preble is E2 as published, and in 10a "
    "also what this paper describes: by a ratio of the prompt (section 6.1), by a threshold (7.1). More "
    f"throughput means by more than 1 %. {BESIDE}",
)

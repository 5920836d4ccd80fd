"""DLPM's Figure 9: three clients' trees of thought on four GPUs, one of them with ten times the prefix."""

from collections.abc import Mapping, Sequence
from typing import Any

from fairhit_lab.studies.dlpm.shared import (
    BESIDE,
    NAMES,
    ON_A10G,
    PREBLE_BY_RATIO,
    PREBLE_BY_THRESHOLD,
    STATED,
    SYSTEMS,
    over_time,
    spelled,
    within_run,
)
from fairhit_lab.studies.shared.claims import (
    ANY,
    Rule,
    above,
    below,
    could_show,
    jain_of,
    judged,
    up_to,
)
from fairhit_lab.studies.shared.limits import ends_ratio, waits_ratio
from fairhit_lab.studies.shared.measures import in_summary, lead_of, response_peak, slow_share, ttft
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results, interval_of
from fairhit_lab.studies.shared.study import Case, Generated, Simulated, Study, Verdict

# Preble as this paper describes it (sections 7.1 and 6.1), beside E2 as published.
THRESHOLD, RATIO = "threshold", "preble (ratio)"
DESCRIBED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    THRESHOLD: ("by a threshold", PREBLE_BY_THRESHOLD),
    RATIO: ("by a ratio of the prompt", PREBLE_BY_RATIO),
}
SHORT = "16 trees"
APART = f"{SHORT}, no in-batch sharing"
EQUAL = 0.98  # Jain's index of an equal share, a choice of ours
PEAK = "the highest mean wait of a minute"


def judge(results: Results) -> Sequence[Verdict]:
    """Verdicts on the last finish, on shares of service, on waits and on idle capacity."""
    made = [*_ends_first(results), *_shares(results), *_waits(results)]
    if APART in results.labels("variant"):  # quick runs are over before queues grow
        made += [_twice(results), *_seconds(results), *_collapse(results)]
    return made


def _run(system: str, variant: str = STATED) -> dict[str, Label]:
    return {"system": system, "variant": variant}


def _runs(*systems: str) -> dict[str, dict[str, Label]]:
    """Return the runs of the figure, by the names of the systems."""
    return {NAMES[system]: _run(system) for system in systems}


def _over_d2lpm(results: Results, metric: str, system: str, variant: str = STATED) -> Interval:
    return results.ratio(metric, _run(system, variant), _run("d2lpm", variant))


def _varied(results: Results, metric: str, system: str) -> dict[str, Interval]:
    """The same ratio in the other settings in which the system was run; Preble also as described here."""
    found = {
        name: _over_d2lpm(results, metric, system, name) for name in _variants(results, system)
    }
    if system == "preble":
        found |= {
            how: _over_d2lpm(results, metric, name)
            for name, (how, _) in DESCRIBED.items()
            if results.values(metric, **_run(name))
        }
    return found


def _variants(results: Results, system: str) -> list[str]:
    """The settings other than the stated one in which the system was run."""
    return [
        name
        for name in map(str, results.labels("variant"))
        if name != STATED and results.values("makespan_s", **_run(system, name))
    ]


def _as_described(results: Results, metric: str) -> dict[str, Interval]:
    """A metric of Preble as this paper describes it."""
    return {
        how: results.interval(metric, **_run(name))
        for name, (how, _) in DESCRIBED.items()
        if results.values(metric, **_run(name))
    }


def _ends_first(results: Results) -> list[Verdict]:
    """Verdicts on the order of the last finishes."""
    return [
        judged(
            claim=f"D2LPM ends first: {NAMES[system]}'s time from end to end in D2LPM's is above 1",
            paper="first of all",
            ours=_over_d2lpm(results, "makespan_s", system),
            unit="x",
            rule=above(1),
            why=_hit_rates(results, system),
            elsewhere=_varied(results, "makespan_s", system),
            reach=ends_ratio(results, _run(system), _run("d2lpm")),
        )
        for system in ("vtc", "preble", "rr+lpm")
    ]


def _hit_rates(results: Results, system: str) -> str:
    """Hit rates as stated, and without in-batch sharing, which helps siblings under every policy."""
    text = f"hit rates {spelled(results, 'hit_rate', _runs('d2lpm', system))}"
    apart = {name: {**of, "variant": APART} for name, of in _runs("d2lpm", system).items()}
    if all(results.values("hit_rate", **of) for of in apart.values()):
        text += f"; with {APART} {spelled(results, 'hit_rate', apart)}"
    return text


def _twice(results: Results) -> Verdict:
    """The verdict on the size: the longer of VTC's and Preble's times."""
    by_setting = [
        {STATED: _over_d2lpm(results, "makespan_s", system)}
        | _varied(results, "makespan_s", system)
        for system in ("vtc", "preble")
    ]
    # The longer of two, wherever both were run.
    longest = {
        name: max((of[name] for of in by_setting), key=lambda ratio: ratio.median)
        for name in by_setting[0]
        if name in by_setting[1]
    }
    return judged(
        claim="D2LPM is up to twice as fast as VTC and Preble: the longer of their times in D2LPM's is 1.5x "
        "to 2.67x",
        paper="up to 2x",
        ours=longest.pop(STATED),
        unit="x",
        rule=up_to(2),
        why=f"from end to end {spelled(results, 'makespan_s', _runs('d2lpm', 'vtc', 'preble'), ' s')}",
        elsewhere=longest,
        reach=ends_ratio(results, _run("vtc"), _run("d2lpm")),
    )


def _shares(results: Results) -> list[Verdict]:
    """Verdicts on shares of actual service while all clients are active, and on client 0's lead."""
    beside = {
        system: {
            name: results.interval("jain_system", **_run(system, name))
            for name in _variants(results, system)
        }
        for system in ("preble", "rr+lpm")
    }
    beside["preble"] |= _as_described(results, "jain_system")
    made = [
        judged(
            claim=f"{NAMES[system]} shares actual service {how} {EQUAL}",
            paper=paper,
            ours=results.interval("jain_system", **_run(system)),
            rule=rule,
            why="Jain's index of what clients see: "
            + spelled(results, "jain_client", _runs("vtc", "d2lpm", "preble", "rr+lpm")),
            elsewhere=beside.get(system),
            reach=jain_of(3),
        )
        for systems, how, paper, rule in (
            (
                ("vtc", "d2lpm"),
                "equally: Jain's index, system view, is at least",
                "ideal sharing",
                Rule(low=EQUAL),
            ),
            (
                ("preble", "rr+lpm"),
                "unequally: Jain's index, system view, is below",
                "significant unfairness",
                below(EQUAL),
            ),
        )
        for system in systems
    ]
    lead = results.interval("lead_system", **_run("d2lpm"))
    made.append(
        judged(
            claim="under D2LPM client 0's client-view service is above the others' in the first half of the "
            "run, by the factor",
            paper="above 1: its longer prefix makes its tokens cheaper",
            ours=results.interval("lead_client", **_run("d2lpm")),
            unit="x",
            rule=above(1),
            reach=ANY,
            why=f"its actual service in that half is {lead} of theirs",
        )
    )
    return made


def _waits(results: Results) -> list[Verdict]:
    """Verdicts on directions. The mean is over the clients, the peak over clients 1 and 2."""
    printed = (
        (
            "under VTC requests wait longer for their first token than under D2LPM, in the mean",
            "D2LPM's response times are lower throughout",
            ("ttft_mean_s", "vtc"),
        ),
        *(
            (
                f"{NAMES[system]} makes clients 1 and 2 wait longer than D2LPM does: {PEAK}",
                "excessively high, as client 0 goes first",
                ("peak_response_s", system),
            )
            for system in ("preble", "rr+lpm")
        ),
    )
    return [
        judged(
            claim=claim,
            paper=paper,
            ours=_over_d2lpm(results, metric, system),
            unit="x",
            rule=above(1),
            why=f"as stated {spelled(results, metric, _runs(system, 'd2lpm'), ' s')}",
            elsewhere=_varied(results, metric, system),
            reach=waits_ratio(results, metric, _run(system), _run("d2lpm")),
        )
        for claim, paper, (metric, system) in printed
    ]


def _seconds(results: Results) -> list[Verdict]:
    """Verdicts on sizes: three quarters of the printed one, and what still counts as tens of seconds."""
    runs = {**_runs("preble"), "by a threshold": _run(THRESHOLD)}
    lasts = spelled(results, "makespan_s", runs, " s")
    return [
        judged(
            claim=f"under Preble clients 1 and 2 wait for up to 600 s: {PEAK} is 450 s to 800 s",
            paper="up to 600 s",
            ours=results.interval("peak_response_s", **_run("preble")),
            unit=" s",
            rule=up_to(600),
            why=f"the whole run takes {lasts}",
            elsewhere=_as_described(results, "peak_response_s"),
            reach=within_run(results, _run("preble")),
        ),
        judged(
            claim=f"under D2LPM they wait for tens of seconds: {PEAK} is below 100 s",
            paper="far below that; no number is printed",
            whose="ours",
            ours=results.interval("peak_response_s", **_run("d2lpm")),
            unit=" s",
            rule=below(100),
            reach=within_run(results, _run("d2lpm")),
        ),
    ]


def _collapse(results: Results) -> list[Verdict]:
    """Verdicts on the share of minutes at less than 40 % of the best one."""
    excess = {
        SHORT: _excess(results, "preble", SHORT),
        **{how: _excess(results, name, STATED) for name, (how, _) in DESCRIBED.items()},
    }
    runs = {**_runs("preble"), "by a threshold": _run(THRESHOLD)}
    return [
        judged(
            claim=f"Preble {claim}: the share of its minutes below 40 % of the best one, less D2LPM's",
            paper="1/4 of the capacity from 300 to 600 s, of a run of 700 s or more",
            ours=_excess(results, "preble", STATED),
            rule=rule,
            why=f"hit rates {spelled(results, 'hit_rate', runs)}",
            elsewhere=excess,
            reach=could_show(-1, 1),
        )
        for claim, rule in (
            ("falls to 1/4 of the capacity for a quarter of the run or more", Rule(low=0.25)),
            ("leaves capacity idle for longer than D2LPM", above(0)),
        )
    ]


def _excess(results: Results, system: str, variant: str) -> Interval:
    theirs = results.values("slow_share", **_run(system, variant))
    own = results.values("slow_share", **_run("d2lpm", variant))
    return interval_of(theirs[seed] - own[seed] for seed in theirs if seed in own)


# Client 0's ten times 59 tokens: a question of its own each time, or one text before all of them.
OWN = {"question": (590, 59)}
SHARED = {"preface": (531, 0)}
RUN = {**SYSTEMS, **{name: settings for name, (_, settings) in DESCRIBED.items()}}
LONG_LIST, SHORT_LIST = 40, 16  # trees of each client
# What the paper leaves open, for those systems that a claim compares: workload, then settings. The short
# list, with a question of its own for each tree, on the engine as stated and with one more setting varied.
OTHERS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    SHORT: (OWN, {"host": "sglang"}),
    f"{SHORT}, ideal engine": (OWN, {"host": "ideal"}),
    f"{SHORT}, 40,000 KV tokens": (OWN, {"host": "ideal", "kv_tokens": 40_000}),
    APART: (OWN, {"host": "ideal", "inbatch": "compute"}),
    f"{SHORT}, siblings say the same": ({**OWN, "collapse": True}, {"host": "ideal"}),
}


def cases(quick: bool) -> Sequence[Case]:
    """A closed list of programs, run to its end: first as stated, then with unstated settings varied."""

    def case(
        system: str,
        variant: str,
        trees: int,
        workload: Mapping[str, Any],
        settings: Mapping[str, Any],
    ) -> Case:
        list_of = {"branches": (3,), "rates": (0.4,), "programs_each": trees}
        return Simulated(
            labels={"system": system, "variant": variant},
            source=Generated(workload="tot", settings={**list_of, **workload}),
            settings={**ON_A10G, **RUN[system], "replicas": 4, **settings},
            series=True,
        )

    trees = 8 if quick else LONG_LIST
    made = [
        case(system, STATED, trees, SHARED, {"host": "sglang"})
        for system in RUN
        if system != RATIO or not quick
    ]
    if not quick:
        made += [
            case(system, variant, SHORT_LIST, workload, settings)
            for variant, (workload, settings) in OTHERS.items()
            for system in (
                ("d2lpm", "preble", "vtc", "rr+lpm")
                if variant == SHORT
                else ("d2lpm", "preble", "vtc")
            )
        ]
    return made


STUDY = Study(
    title="Case study on four GPUs",
    source="DLPM (arXiv:2501.14312v1), Figure 9",
    shows="response time, actual service and service as clients see it, to the end of a list of programs",
    takes="quick 15 s; full 3 min",
    cases=cases,
    measures={
        **in_summary("makespan_s", "throughput", "hit_rate", "jain_client", "jain_system"),
        "lead_client": lead_of("c0", "service_client"),
        "lead_system": lead_of("c0", "service_system"),
        "ttft_mean_s": ttft("mean_s"),
        "peak_response_s": response_peak(without=("c0",)),
        "slow_share": slow_share,
    },
    panels=[
        *over_time(
            ("response_time", "service_system", "service_client"),
            {system: {"system": system, "variant": STATED} for system in (*SYSTEMS, THRESHOLD)},
        ),
        Panel(
            title="End to end",
            form="bars",
            x="variant",
            y="makespan_s",
            hue="system",
            y_label="seconds to the last finish",
        ),
    ],
    judge=judge,
    choices="Rates, lengths and the number of programs are unstated: 40 trees each (quick: 8) at 0.4 a "
    "second, so that the last comes after about 100 s and the run takes 7 to 13 minutes, the paper's being "
    "700 s or more under Preble. What the run can show: queues grow to the end of the list, so that a wait "
    "of hundreds of seconds is possible, up to the length of the run, which is the limit stated; nothing is "
    "cut, so that a system may end at any time after the last arrival. SGLang's rules of admission (host "
    "sglang), 129,000 KV tokens a GPU. Client 0's longer prefix is one text before all of its trees, by "
    "which Preble can send all of them to one GPU. Varied: a list of 16 trees, with a longer question each "
    "time instead of one prefix; with this list the ideal engine, scarce memory, in-batch sharing, and "
    "siblings that say the same, too. With SGLang's rules every pass ends at a request that does not fit; on "
    "the ideal engine passes of D2LPM and Preble skip it, without a limit (max_misfits is not set: queues "
    "are short), and VTC's end. Preble: E2 as published, and as this paper describes it: to the longest "
    "match above a threshold (threshold, section 7.1), or if the match is half of the prompt (preble "
    f"(ratio), section 6.1). {BESIDE}",
)

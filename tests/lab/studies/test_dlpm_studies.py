"""The DLPM paper's studies: sizes are judged near what is printed, directions apart from them."""

import pytest

from fairhit_lab.studies.dlpm import fig8, fig9, fig10
from fairhit_lab.studies.dlpm.fig7_points import Fig7Point, by_workload
from fairhit_lab.studies.dlpm.shared import STATED, ratios, spelled
from fairhit_lab.studies.shared.measures import longest_ttft
from fairhit_lab.studies.shared.results import Results
from fairhit_lab.studies.shared.study import Outcome


def test_what_a_setting_does_not_concern_stands_as_stated():
    """
    The fallback is LPM's alone: it is compared with DLPM as stated, and DLPM with VTC not again.
    """
    speeds = {
        ("dlpm", STATED): 2.0,
        ("lpm", STATED): 4.0,
        ("vtc", STATED): 1.0,
        ("lpm", "fallback"): 3.0,
    }
    results = Results(
        [
            {"policy": policy, "variant": variant, "seed": 0, "speed": speed}
            for (policy, variant), speed in speeds.items()
        ]
    )

    def of(over, under):
        found = ratios(
            results, "speed", {"policy": over}, {"policy": under}, (STATED, "fallback", "cv 4")
        )
        return {name: ratio.median for name, ratio in found.items()}

    assert of("lpm", "dlpm") == {STATED: 2.0, "fallback": 1.5}
    assert of("dlpm", "vtc") == {STATED: 2.0}


def test_numbers_stand_behind_their_names():
    rows = [{"policy": name, "seed": 0, "speed": 0.5} for name in ("dlpm", "vtc")]

    text = spelled(
        Results(rows), "speed", {"DLPM": {"policy": "dlpm"}, "VTC": {"policy": "vtc"}}, " s"
    )

    assert text == "DLPM 0.5 s, VTC 0.5 s"


def test_the_longest_wait_is_of_the_named_clients_that_have_one():
    clients = {
        name: {"ttft": {"max_s": longest}}
        for name, longest in {"c0": 90.0, "c1": 50.0, "c2": 60.0, "c3": None}.items()
    }
    outcome = Outcome(summary={"clients": clients})

    assert longest_ttft("c1", "c2", "c3")(outcome) == 60
    assert longest_ttft("c3")(outcome) is None


def test_a_workloads_number_is_of_its_own_points():
    """
    Seed 1 has no judge: a median over the seeds that have some.
    """
    points = [Fig7Point(STATED, workload, "s1", 4) for workload in ("tot", "judge")]

    found = by_workload({0: dict(zip(points, (1.0, 3.0), strict=True)), 1: {points[0]: 2.0}}, max)

    assert found == "tot 1.5 (1 to 2)x, judge 3x"


def verdicts_of(judge, rows):
    return {verdict.claim: verdict.holds for verdict in judge(Results(rows))}


def held(verdicts, *words):
    """The verdict on the only claim with these words."""
    [holds] = [of for claim, of in verdicts.items() if all(word in claim for word in words)]
    return holds


def case_study(**preble):
    """Figure 9 as printed: VTC and Preble take twice as long, Preble queues for 600 s."""
    ours = {
        "makespan_s": 400.0, "throughput": 1.0, "hit_rate": 0.9, "jain_client": 1.0,
        "jain_system": 1.0, "lead_client": 1.5, "lead_system": 1.0, "ttft_mean_s": 10.0,
        "peak_response_s": 20.0, "slow_share": 0.0,
    }  # fmt: skip
    theirs = ours | {"makespan_s": 800.0, "ttft_mean_s": 50.0, "peak_response_s": 600.0}
    unfair = theirs | {"slow_share": 0.4, "jain_system": 0.7} | preble
    by_system = {
        "d2lpm": ours,
        "vtc": theirs,
        "rr+lpm": unfair,
        "preble": unfair,
        **dict.fromkeys(fig9.DESCRIBED, unfair),
    }
    return [
        {"system": system, "variant": variant, "seed": 0, **numbers}
        for variant in (STATED, fig9.SHORT, fig9.APART)
        for system, numbers in by_system.items()
    ]


def test_figure_9_holds_as_printed():
    verdicts = verdicts_of(fig9.judge, case_study())

    assert set(verdicts.values()) == {"holds"}


@pytest.mark.parametrize(("peak_s", "holds"), [(450.0, "holds"), (449.0, "does not hold")])
def test_a_wait_of_some_seconds_is_not_600(peak_s, holds):
    """
    The direction holds at either: D2LPM's clients wait for 20 s.
    """
    verdicts = verdicts_of(fig9.judge, case_study(peak_response_s=peak_s))

    assert held(verdicts, "up to 600 s") == holds
    assert held(verdicts, "Preble makes clients 1 and 2 wait longer") == "holds"


def surge(**d2lpm):
    """Figure 8 as printed, under the later reading, with every variant."""
    low = {
        "good_p99_s": 1.0, "good_mean_s": 0.5, "surging_mean_s": 1.0, "c2_late_p99_s": 2.0,
        "c3_late_p99_s": 2.0, "longest_s": 80.0, "makespan_s": 100.0, "throughput": 2.0, "hit_rate": 0.3,
        "arriving_throughput": 2.0, "arriving_asked": 3.0,
    }  # fmt: skip
    by_system = {
        "d2lpm": low | d2lpm,
        "rr+lpm": low | {"good_p99_s": 60.0},
        "preble": low,
        "vtc": low | {"surging_mean_s": 30.0, "arriving_throughput": 1.0},
    }
    return [
        {"reading": fig8.ALONE, "variant": variant, "system": system, "seed": 0, **numbers}
        for variant in (STATED, *fig8.OTHERS)
        for system, numbers in by_system.items()
    ] + [
        {
            "reading": fig8.BOTH,
            "variant": STATED,
            "system": "d2lpm",
            "seed": 0,
            **by_system["d2lpm"],
        }
    ]


def test_figure_8_holds_as_printed():
    assert set(verdicts_of(fig8.judge, surge()).values()) == {"holds"}


@pytest.mark.parametrize("client", ["c2", "c3"])
def test_low_for_all_is_low_for_the_clients_that_misbehaved_too(client):
    verdicts = verdicts_of(fig8.judge, surge(**{f"{client}_late_p99_s": 30.0}))

    number = client.removeprefix("c")
    assert held(verdicts, "D2LPM keeps client " + number) == "does not hold"
    assert held(verdicts, "D2LPM keeps clients 0 and 1") == "holds"


@pytest.mark.parametrize(
    ("first", "last", "holds"),
    [
        (0.855, 0.83, ["holds", "holds", "holds", "holds"]),
        (0.985, 0.98, ["does not hold", "does not hold", "holds", "does not hold"]),
        (0.855, 0.855, ["holds", "holds", "does not hold", "does not hold"]),
    ],
)
def test_jains_printed_values_and_their_fall_are_claims_of_their_own(first, last, holds):
    def row(workload, system, quantum, jain):
        of = {"workload": workload, "system": system, "worker_quantum": quantum, "seed": 0}
        return of | {"throughput": 1.0, "hit_rate": 0.9, "jain_client": jain, "jain_system": 1.0}

    quanta = {2_000: first, 20_000: last, 40_000: last}
    rows = [
        row(workload, "d2lpm", quantum, jain)
        for workload in (fig10.BAD, fig10.GOOD)
        for quantum, jain in quanta.items()
    ]
    rows += [
        row(workload, system, 0, 0.9)
        for workload in (fig10.BAD, fig10.GOOD)
        for system in fig10.OTHERS
    ]

    verdicts = verdicts_of(fig10.judge, rows)

    assert [of for claim, of in verdicts.items() if claim.startswith("10a: Jain")] == holds

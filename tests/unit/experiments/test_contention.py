"""Workloads under contention, and the rules by which the studies on them are judged."""

from fairlead.experiments.studies.ours import pareto
from fairlead.experiments.studies.ours.contention import (
    LOADS,
    contended,
    gap_over_bound,
    light_p99_s,
)
from fairlead.experiments.studies.ours.sensitivity import judged
from fairlead.experiments.study.results import Results
from fairlead.experiments.study.study import Outcome


def outcome(**summary):
    return Outcome(summary=summary)


def test_who_asks_for_too_much_is_not_among_the_light():
    """
    The heavy client's own 90 s are its own doing; the others waited 2 and 4 s.
    """
    found = outcome(
        heavy=["c0"],
        waits={"c0": {"p99_s": 90.0}, "c1": {"p99_s": 2.0}, "c2": {"p99_s": 4.0}},
    )

    assert light_p99_s(found) == 3.0


def test_a_gap_without_a_bound_is_no_share_of_one():
    assert gap_over_bound(outcome(gaps={"worst": None})) is None
    assert gap_over_bound(outcome(gaps={"worst": {"gap": 5.0, "bound": None}})) is None
    assert gap_over_bound(outcome(gaps={"worst": {"gap": 5.0, "bound": 20.0}})) == 0.25


def test_a_fleet_gets_as_much_more_as_it_has_engines():
    one = contended("agentic", {}, {}).source.settings
    four = contended("agentic", {}, {}, engines=4).source.settings

    assert [four[name] for name in ("rate", "sessions", "per_client")] == [
        4 * one[name] for name in ("rate", "sessions", "per_client")
    ]
    assert contended("chat", {}, {}, engines=4).source.settings["rates"] == tuple(
        4 * rate for rate in LOADS["chat"].rates
    )


def test_only_looks_that_skip_are_bounded():
    """
    The simulator refuses a limit on misfits beside a scheduler that stops at the first.
    """
    bounded = {
        name: "max_misfits" in contended("chat", {}, {"scheduler": name}).settings
        for name in ("dlpm", "dlpm-predict", "vtc", "lpm", "drr")
    }

    assert bounded == {
        "dlpm": True, "dlpm-predict": True, "vtc": False, "lpm": False, "drr": True,
    }  # fmt: skip
    stops = contended("chat", {}, {"scheduler": "dlpm", "misfit": "stop"})
    assert "max_misfits" not in stops.settings


def setting_row(quantum, tokens, jain, gap=0.5):
    return {
        "workload": "w", "quantum": quantum, "seed": 0, "throughput": tokens,
        "jain_system": jain, "gap_over_bound": gap,
    }  # fmt: skip


def test_a_value_is_good_if_it_reaches_nine_tenths_of_the_best():
    rows = [setting_row(1, 80, 1.0), setting_row(2, 95, 0.95), setting_row(4, 100, 0.5)]

    holds = {
        (verdict.claim.split(" keeps")[0], "throughput" in verdict.claim): verdict.holds
        for verdict in judged(Results(rows), "quantum", "Q", bounds=False)
    }

    assert {key for key, answer in holds.items() if answer == "holds"} == {
        ("Q = 1", False), ("Q = 2", True), ("Q = 2", False), ("Q = 4", True),
    }  # fmt: skip


def test_a_gap_above_the_bound_is_told():
    rows = [setting_row(1, 80, 1.0, gap=1.2), setting_row(2, 80, 1.0, gap=0.3)]

    bounds = [
        verdict.holds for verdict in judged(Results(rows), "quantum", "Q") if "gap" in verdict.claim
    ]

    assert bounds == ["does not hold", "holds"]


def policy_row(policy, quantum, tokens):
    return {
        "workload": "w", "policy": policy, "quantum": quantum, "seed": 0, "throughput": tokens,
        "jain_system": 0.9, "light_p99_s": 1.0,
    }  # fmt: skip


def answer(at_default, at_most):
    """What is said of DLPM's throughput beside VTC's 100."""
    rows = [
        policy_row("vtc", 0, 100), policy_row("lpm", 0, 100),
        policy_row("dlpm", pareto.DEFAULT, at_default),
        policy_row("dlpm", max(pareto.QUANTA), at_most),
    ]  # fmt: skip
    return pareto.judge(Results(rows))[0]


def test_a_claim_that_only_another_quantum_keeps_holds_only_if():
    assert answer(110, 90).holds == "holds"
    assert answer(90, 110).holds == "holds only if"
    assert "65536" in answer(90, 110).why
    assert answer(90, 90).holds == "does not hold"

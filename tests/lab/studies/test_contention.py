"""Workloads under contention, and the rules by which the studies on them are judged."""

import pytest
from tests.lab.studies.synthetic import rows_of

from fairhit_lab.studies import study_of
from fairhit_lab.studies.ours import frontiers
from fairhit_lab.studies.ours.comparing import in_words, no_worse, on_all
from fairhit_lab.studies.ours.contention import (
    LOADS,
    contended,
    gap_over_bound,
    heavy_p99_s,
    light_p99_s,
    light_share,
)
from fairhit_lab.studies.ours.sensitivity import each_value
from fairhit_lab.studies.shared.dominance import Goal
from fairhit_lab.studies.shared.results import Interval, Results, interval_of
from fairhit_lab.studies.shared.study import Outcome


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
    assert heavy_p99_s(found) == 90.0


def test_the_light_share_is_the_least_of_the_clients_that_are_not_heavy():
    shares = {"c0": 0.2, "c1": 0.9, "c2": 0.7, "c3": None}
    found = outcome(
        heavy=["c0"],
        clients={client: {"entitlement_share": share} for client, share in shares.items()},
    )

    assert light_share(found) == 0.7


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


def test_only_passes_that_skip_are_bounded():
    """
    The simulator refuses a limit on skipped requests beside a scheduler that stops at the first.
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


def setting_row(quantum, tokens, jain, *, gap=0.5, seed=0, wait=1.0):
    return {
        "workload": "w", "quantum": quantum, "seed": seed, "throughput": tokens,
        "jain_system": jain, "gap_over_bound": gap, "light_p99_s": wait,
    }  # fmt: skip


def by_value(rows):
    """(value, whether it is about throughput) -> the verdict."""
    return {
        (verdict.claim.split(" keeps")[0], "throughput" in verdict.claim): verdict
        for verdict in each_value(Results(rows), "quantum", "Q", ["w"], bounds=False)
        if "waits" not in verdict.claim
    }


def test_a_value_is_good_if_it_reaches_nine_tenths_of_the_best():
    found = by_value([setting_row(1, 80, 1.0), setting_row(2, 95, 0.95), setting_row(4, 100, 0.5)])

    assert {key for key, verdict in found.items() if verdict.holds == "holds"} == {
        ("Q = 1", False), ("Q = 2", True), ("Q = 2", False), ("Q = 4", True),
    }  # fmt: skip


def test_waits_are_compared_with_the_shortest():
    rows = [setting_row(1, 9, 1.0, wait=2.0), setting_row(2, 9, 1.0, wait=2.9)]
    rows += [setting_row(4, 9, 1.0, wait=3.1)]

    waits = [
        (verdict.holds, verdict.ours)
        for verdict in each_value(Results(rows), "quantum", "Q", ["w"], bounds=False)
        if "waits" in verdict.claim
    ]

    assert [holds for holds, _ in waits] == ["holds", "holds", "does not hold"]
    assert waits[2][1].startswith("1.55x on w")


def test_a_value_without_numbers_is_not_called_good():
    """
    A policy under which no client is served for the whole run has no throughput to compare.
    """
    found = by_value([setting_row(1, None, None), setting_row(2, 95, 0.95)])

    assert found["Q = 1", True].holds == "not comparable"
    assert found["Q = 1", True].ours == "no value"
    assert found["Q = 2", True].holds == "holds"


def test_it_is_said_how_many_seeds_had_values():
    rows = [setting_row(1, None, 1.0), setting_row(1, 99, 1.0, seed=1)]
    rows += [setting_row(2, 100, 1.0), setting_row(2, 100, 1.0, seed=1)]

    assert by_value(rows)["Q = 1", True].ours.endswith("; values in 1 of 2 seeds on w")
    assert "seeds" not in by_value(rows)["Q = 2", True].ours


def test_a_gap_above_the_bound_is_named():
    rows = [setting_row(1, 80, 1.0, gap=1.2), setting_row(2, 80, 1.0, gap=0.3)]

    bounds = [
        verdict
        for verdict in each_value(Results(rows), "quantum", "Q", ["w"])
        if "gap" in verdict.claim
    ]

    assert [verdict.holds for verdict in bounds] == ["does not hold", "holds"]
    assert bounds[0].why == "on w, seed 0"


def test_no_gap_at_all_is_no_claim():
    rows = [setting_row(1, 80, 1.0, gap=None)]

    assert each_value(Results(rows), "quantum", "Q", ["w"]) == []


def policy_row(load, policy, quantum, tokens):
    return {
        "workload": load, "policy": policy, "quantum": quantum, "seed": 0, "throughput": tokens,
        "jain_system": 0.9, "light_p99_s": 1.0, "gap": 5.0,
    }  # fmt: skip


def answer(at_default, at_most, loads=tuple(LOADS)):
    """The verdict on DLPM's throughput beside VTC's 100."""
    rows = [
        row
        for load in loads
        for row in (
            policy_row(load, "vtc", 0, 100),
            policy_row(load, "lpm", 0, 100),
            policy_row(load, "dlpm", frontiers.DEFAULT, at_default),
            policy_row(load, "dlpm", max(frontiers.QUANTA), at_most),
        )
    ]
    return study_of("pareto").judge(Results(rows))[0]


def test_a_claim_that_only_another_quantum_keeps_holds_only_if():
    assert answer(110, 90).holds == "holds"
    assert "on all 13 workloads" in answer(110, 90).claim
    assert answer(90, 110).holds == "holds under conditions only"
    assert "65536" in answer(90, 110).why
    assert answer(90, 90).holds == "does not hold"


def test_a_default_without_numbers_is_not_called_good():
    assert answer(None, 110).holds == "not comparable"
    assert answer(None, 110).ours.startswith("no value")


OVER_ALL = (
    "pareto",
    "pareto-fleet",
    "sensitivity-quantum",
    "sensitivity-worker-quantum",
    "sensitivity-min-match",
    "variants",
)


@pytest.mark.parametrize("name", OVER_ALL)
def test_claims_say_on_how_many_workloads_and_quick_runs_make_none_about_all(name):
    study, over_texts = study_of(name), name == "sensitivity-min-match"
    quick = study.judge(rows_of(study, quick=True, seeds=1))
    full = study.judge(rows_of(study, quick=False, seeds=2))

    assert not any("every workload" in verdict.claim for verdict in full)
    assert any(" all " in verdict.claim for verdict in full) or over_texts
    assert quick and not any(" all " in verdict.claim for verdict in quick)
    rests_on = "shared tokens" if over_texts else " workload"
    assert all(rests_on in verdict.claim for verdict in [*quick, *full])


@pytest.mark.parametrize("name", OVER_ALL)
@pytest.mark.parametrize("lost", ["one workload", "all"])
def test_rows_without_values_are_judged_too(name, lost):
    """
    Without served requests no claim holds, and no text shows a number.
    """
    study = study_of(name)
    results = rows_of(study, quick=False, seeds=2)
    place = "shared" if name == "sensitivity-min-match" else "workload"
    first = results.labels(place)[0]
    rows = [
        {**row, **dict.fromkeys(study.measures)} if lost == "all" or row[place] == first else row
        for row in results.rows
    ]

    for verdict in study.judge(Results(rows)):
        assert "nan" not in verdict.ours + verdict.why
        if lost == "all":
            assert verdict.holds != "holds" or "no other policy dominates" in verdict.claim


def test_ratios_in_words_leave_out_what_has_no_value():
    found = {"a": Interval(2.0, 1.0, 3.0, 2), "b": interval_of([]), "c": Interval(1.0, 1.0, 1.0, 1)}

    assert in_words(found, 2) == (
        "1.50x in the median; 1.00x on c to 2.00x on a; "
        "values in 0 of 2 seeds on b, values in 1 of 2 seeds on c"
    )
    assert in_words({"b": interval_of([])}, 2) == "no value"


def test_a_claim_about_all_needs_a_value_on_each():
    def verdict(**ratios):
        rows = [
            {"workload": load, "policy": policy, "seed": 0, "wait": wait}
            for load, ratio in ratios.items()
            for policy, wait in (("ours", next(iter(ratio), None)), ("theirs", 1.0))
        ]
        goal = Goal(metric="wait", more=False, noise=0.1)
        pair = {"policy": "ours"}, {"policy": "theirs"}
        return on_all(Results(rows), "wait", *pair, no_worse(goal), claim="it waits no longer")

    assert verdict(a=[0.5], b=[1.05]).holds == "holds"
    assert verdict(a=[0.5], b=[1.2]).holds == "holds under conditions only"
    assert verdict(a=[1.5], b=[1.2]).holds == "does not hold"
    assert verdict(a=[0.5], b=[]).holds == "not comparable"
    assert verdict(a=[0.5], b=[]).why == "no value on b"

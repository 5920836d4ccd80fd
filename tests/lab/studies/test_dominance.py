"""A policy dominates another only if nothing is worse and something is better, beyond noise."""

from fairhit_lab.studies.shared.dominance import Goal, better, dominates, dominations, worse
from fairhit_lab.studies.shared.results import Results

MORE, LESS = Goal(metric="tokens"), Goal(metric="wait", more=False, noise=0.1)


def results_of(**policies):
    """policy -> [(tokens, wait), ...], one a seed."""
    return Results(
        [
            {"policy": name, "seed": seed, "tokens": tokens, "wait": wait}
            for name, values in policies.items()
            for seed, (tokens, wait) in enumerate(values)
        ]
    )


def who(results, one, other):
    return dominates(results, [MORE, LESS], {"policy": one}, {"policy": other})


def test_better_in_one_and_alike_in_the_other_dominates():
    results = results_of(a=[(110, 10.0)], b=[(100, 10.5)])

    assert who(results, "a", "b")
    assert not who(results, "b", "a")


def test_a_trade_off_dominates_no_policy():
    """
    More throughput for a longer wait is a matter of taste.
    """
    results = results_of(a=[(110, 20.0)], b=[(100, 10.0)])

    assert not who(results, "a", "b")
    assert not who(results, "b", "a")


def test_a_lucky_seed_makes_no_longer_wait_good():
    """
    Five per cent more tokens, but three times the wait in four seeds of five.
    """
    results = results_of(a=[(105, 30.0)] * 4 + [(105, 9.9)], b=[(100, 10.0)] * 5)

    assert not who(results, "a", "b")
    assert worse({0: 30.0, 1: 30.0, 2: 9.9}, {0: 10.0, 1: 10.0, 2: 10.0}, LESS)


def test_noise_around_no_difference_prevents_no_dominance():
    results = results_of(
        a=[(105, 10.5), (106, 9.0), (110, 11.5)], b=[(100, 10.0), (100, 10.0), (100, 10.0)]
    )

    assert who(results, "a", "b")
    assert not worse({}, {0: 1.0}, MORE)


def test_equals_do_not_dominate_each_other():
    results = results_of(a=[(101, 10.0)], b=[(100, 10.0)])

    assert not who(results, "a", "b")


def test_a_gain_that_one_seed_takes_back_is_noise():
    assert not better({0: 120, 1: 120, 2: 99}, {0: 100, 1: 100, 2: 100}, MORE)
    assert better({0: 120, 1: 120, 2: 100}, {0: 100, 1: 100, 2: 100}, MORE)


def test_less_is_better_where_the_goal_says_so():
    assert better({0: 5.0}, {0: 10.0}, LESS)
    assert not better({0: 9.5}, {0: 10.0}, LESS)
    assert better({0: 0.0}, {0: 1.0}, LESS)


def test_what_neither_has_a_value_of_says_nothing():
    results = results_of(a=[(110, None)], b=[(100, None)])

    assert who(results, "a", "b")
    assert not better({}, {0: 1.0}, MORE)


def test_a_policy_that_lacks_a_value_dominates_no_other():
    """
    More tokens, but in the second seed a client is never served: no wait to compare.
    """
    results = results_of(a=[(110, 10.0), (110, None)], b=[(100, 10.0), (100, 12.0)])

    assert not who(results, "a", "b")
    assert not who(results, "b", "a")


def test_domination_is_counted_by_workload():
    loads = {
        "w": {"a": (110, 10.0), "b": (100, 10.0), "c": (120, 10.0)},
        "v": {"a": (100, 10.0), "b": (100, 10.0), "c": (120, 30.0)},
    }
    results = Results(
        [
            {"load": load, "policy": name, "seed": 0, "tokens": tokens, "wait": wait}
            for load, policies in loads.items()
            for name, (tokens, wait) in policies.items()
        ]
    )

    found = dominations(results, [MORE, LESS], "load", [{"policy": name} for name in "abc"])

    assert found == {(0, 1): ["w"], (2, 0): ["w"], (2, 1): ["w"]}

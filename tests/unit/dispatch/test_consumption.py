"""Shares of charge and engine time by client, from counters of engines that start, restart and go."""

import random

import pytest

from fairhit.dispatch.accounting.consumption import WINDOW_S, Consumed, Consumption


def test_the_first_counters_of_an_engine_are_where_counting_begins():
    """A gateway that starts beside a busy engine shows what happens from then on."""
    seen = Consumption()
    seen.report("w", {"a": Consumed(9e6, 900.0), "b": Consumed(1.0, 1.0)}, 0.0)
    assert seen.share("a") is None

    seen.report("w", {"a": Consumed(9e6 + 30, 901.0), "b": Consumed(71.0, 4.0)}, 5.0)

    assert seen.share("a") == (0.3, 0.25)
    assert seen.share("b") == (0.7, 0.75)
    assert seen.share("c") is None


def test_a_restarted_engine_begins_at_zero():
    seen = Consumption()
    for counters in (
        {"a": Consumed(100.0, 10.0)},
        {"a": Consumed(20.0, 1.0), "b": Consumed(60.0, 1.0)},
    ):
        seen.report("w", counters, 0.0)

    assert seen.share("a") == (0.25, 0.5)


def test_an_engine_that_was_down_does_not_count_twice():
    seen = Consumption()
    for charge in (0.0, 10.0):
        seen.report("w", {"a": Consumed(charge, charge)}, 0.0)
    seen.forget("w")
    seen.report("w", {"a": Consumed(10.0, 10.0)}, 1.0)
    seen.report("v", {"b": Consumed(0.0, 0.0)}, 1.0)
    seen.report("v", {"b": Consumed(30.0, 30.0)}, 2.0)

    assert seen.share("a") == (0.25, 0.25)


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_those_of_the_last_minute(seed: int):
    """Whatever the engines, intervals and clients; the shares of all clients add up to one."""
    rng, seen = random.Random(seed), Consumption()
    counters: dict[str, dict[str, Consumed]] = {"w": {}, "v": {}}
    kept: list[tuple[float, str, float, float]] = []
    now = 0.0
    for worker in counters:
        seen.report(worker, {}, now)
    for _ in range(200):
        now += rng.choice([0.5, 5.0, 20.0])
        worker = rng.choice("wv")
        for client in rng.sample("abcd", rng.randrange(4)):
            more = rng.randrange(1, 100), rng.randrange(1, 10)
            had = counters[worker].get(client, Consumed(0.0, 0.0))
            counters[worker][client] = Consumed(had.charge + more[0], had.seconds + more[1])
            kept.append((now, client, *more))
        seen.report(worker, dict(counters[worker]), now)
        seen.expire(now)
        kept = [each for each in kept if each[0] > now - WINDOW_S]
        for client in "abcd":
            own = [each for each in kept if each[1] == client]
            if own:
                expected = tuple(
                    sum(each[at] for each in own) / sum(each[at] for each in kept) for at in (2, 3)
                )
                assert seen.share(client) == pytest.approx(expected)


def test_after_a_quiet_minute_nothing_is_left():
    seen = Consumption()
    for charge in (0.0, 0.1, 0.3):
        seen.report("w", {"a": Consumed(charge, charge)}, 0.0)
    seen.expire(WINDOW_S)

    assert seen.share("a") is None

"""The fit of pass times, and the cost that follows from it."""

from random import Random

import pytest

from fairhit.core.costs import ENGINE, ContextCost
from fairhit.core.engine_time import (
    BOUNDS,
    FIT_EVERY,
    LEAST_PASSES,
    STEP,
    PassTimeFit,
    PassWork,
    PriceChanges,
    price_words,
    prices_of,
)
from fairhit.core.service import UNITS_PER_TOKEN

TRUE = (2e-3, 1e-4, 3e-9, 5e-5, 2e-7)  # fixed, extend, attention, decode, context


def work_of(rng):
    work = PassWork()
    for _ in range(rng.randrange(3)):
        work.add_chunk(rng.randrange(1, 2048), rng.randrange(30_000))
    for _ in range(rng.randrange(1, 32)):
        work.add_decode(rng.randrange(1, 60_000))
    return work


def seconds_of(work):
    features = (1, work.extend, work.attention, work.decodes, work.context)
    return sum(price * feature for price, feature in zip(TRUE, features, strict=True))


def fitted(passes=20_000, noise=0.0):
    fit, rng = PassTimeFit(), Random(1)
    cost = ENGINE
    for _ in range(passes):
        work = work_of(rng)
        fit.observe(work, seconds_of(work) * (1 + noise * (rng.random() - 0.5)))
        cost = fit.cost(cost)
    return fit, cost


def test_the_coefficients_of_a_linear_engine_are_found():
    fit, _ = fitted()

    for found, true in zip(fit.seconds, TRUE, strict=True):
        assert found == pytest.approx(true, rel=0.02)


def test_noise_in_the_durations_leaves_the_predictions_true():
    fit, _ = fitted(noise=0.2)
    rng = Random(2)

    for _ in range(100):
        work = work_of(rng)
        features = (1, work.extend, work.attention, work.decodes, work.context)
        found = sum(price * each for price, each in zip(fit.seconds, features, strict=True))
        assert found == pytest.approx(seconds_of(work), rel=0.03)


def test_the_same_passes_give_the_same_prices():
    assert fitted(3000)[1] == fitted(3000)[1]


def test_charges_are_in_proportion_to_the_time_that_requests_add():
    """A pass in which two clients do the same work is charged and divided half and half; twice is twice."""
    fit, cost = fitted()
    half = PassWork()
    half.add_decode(10_000)
    both = PassWork()
    both.add_decode(10_000)
    both.add_decode(10_000)

    shares = fit.shares({"one": half, "two": both}, 3.0)

    assert shares["one"] == pytest.approx(1.0)
    assert shares["two"] == pytest.approx(2.0)
    assert 2 * cost.decode(10_000, 0, 1) == 2 * (cost.output + 10_000 * cost.context)


def test_shares_add_up_to_the_pass_before_anything_is_known():
    work = PassWork()
    work.add_chunk(30, 0)
    other = PassWork()
    other.add_decode(500)

    shares = PassTimeFit().shares({"a": work, "b": other}, 0.31)

    assert shares == {"a": pytest.approx(0.30), "b": pytest.approx(0.01)}


def test_a_price_moves_by_a_factor_of_two_at_most_and_stays_within_its_bounds():
    fit = PassTimeFit()
    work = PassWork()
    work.add_decode(1000)
    work.add_chunk(10, 0)
    before = ContextCost(output=UNITS_PER_TOKEN, context=1000, fitted=True)
    for _ in range(LEAST_PASSES + FIT_EVERY):
        fit.observe(work, 1.0)

    after = fit.cost(before)

    for name, (low, high) in BOUNDS.items():
        units, old = getattr(after, name), getattr(before, name)
        assert low * UNITS_PER_TOKEN <= units <= high * UNITS_PER_TOKEN
        assert not old or old / STEP - 1 <= units <= old * STEP


def test_nothing_is_concluded_from_few_passes_or_without_outputs():
    fit = PassTimeFit()
    prefill = PassWork()
    prefill.add_chunk(100, 0)
    for _ in range(10 * LEAST_PASSES):
        fit.observe(prefill, 0.1)

    assert fit.cost(ENGINE) is ENGINE
    few, _ = fitted(LEAST_PASSES - 1)
    assert few.cost(ENGINE) is ENGINE


def test_a_pass_without_tokens_or_without_duration_is_left_out():
    fit = PassTimeFit()
    fit.observe(PassWork(), 1.0)
    work = PassWork()
    work.add_decode(1)
    fit.observe(work, 0.0)

    assert not fit.ready
    assert fit.seconds == [0.0] * 5


PRICES = (2.0, 0.0027, 0.0)


@pytest.mark.parametrize(
    ("prices", "is_notable"),
    [
        ((3.1, 0.0027, 0.0), True),
        ((1.3, 0.0027, 0.0), True),
        ((2.9, 0.0035, 0.0), False),
        ((2.0, 0.0041, 0.0), True),
        ((2.0, 0.0027, 0.001), True),
        ((2.0, 0.0027, 0.000001), False),  # from 0, but nothing that a request would notice
    ],
)
def test_a_price_is_logged_when_it_moved_by_half_or_more(prices, is_notable):
    changes = PriceChanges()
    assert changes.is_notable(PRICES, 0)

    assert changes.is_notable(prices, 100) is is_notable


def test_the_first_fit_is_logged_and_then_at_most_one_change_a_minute():
    """At a start prices move by a factor of 2 at each refill, several times a second."""
    changes = PriceChanges(PRICES)
    logged = [
        second
        for second in range(180)
        if changes.is_notable((2.0 * 1.5 ** (second / 10), 0, 0), second)
    ]

    assert logged == [0, 60, 120]
    assert not PriceChanges(PRICES).is_notable(PRICES, 0)  # nothing was fitted yet


def test_small_moves_add_up_until_they_are_logged():
    changes = PriceChanges(PRICES)
    logged = [
        step
        for step in range(100)
        if changes.is_notable((2.0 * 1.01**step, 0.0027, 0.0), 1000.0 * step)
    ]

    assert logged == [1, 42, 83]


def test_prices_in_words_have_three_digits():
    assert price_words(prices_of(ENGINE)) == "output 2, context 0.0027, attention 0 tokens"

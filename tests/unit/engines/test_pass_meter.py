"""PassMeter: durations divided by the work in them, and the policy's own fit notified of each pass."""

import pytest

from fairhit.core.costs import ENGINE, ContextCost
from fairhit.core.engine_time import LEAST_PASSES, PassTimeFit, PassWork
from fairhit.engines.pass_meter import PassMeter


def seconds_of(extend: int = 0, decodes: int = 0, context: int = 0) -> float:
    return 0.001 + 2e-5 * extend + 1e-4 * decodes + 1e-8 * context


def passes(meter: PassMeter, count: int) -> None:
    """Let prefills and decodes of other sizes take as long as `seconds_of` says."""
    for number in range(count):
        decodes, context = number % 7 + 1, (number * 7919) % 50_000
        if number % 3:
            works = {"a": PassWork(decodes=decodes, context=context)}
            meter.observe(works, seconds_of(decodes=decodes, context=context))
        else:
            extend = 100 + number * 13 % 900
            meter.observe({"a": PassWork(extend=extend)}, seconds_of(extend))


def test_before_anything_is_known_a_pass_is_divided_by_tokens():
    works = {"a": PassWork(extend=30), "b": PassWork(decodes=10, context=9000)}

    assert PassMeter(None).observe(works, 2.0) == {"a": 1.5, "b": 0.5}


def test_once_known_a_long_context_takes_its_part():
    """Of ten sequences each, one client's context is 200,000 tokens: 2 ms of 5 ms; the rest is equal."""
    meter = PassMeter(None)
    passes(meter, 4 * LEAST_PASSES)
    works = {"a": PassWork(decodes=10, context=200_000), "b": PassWork(decodes=10)}
    duration = seconds_of(decodes=20, context=200_000)

    parts = meter.observe(works, duration)

    assert sum(parts.values()) == pytest.approx(duration)
    assert parts["a"] - parts["b"] == pytest.approx(0.002, rel=0.05)


def test_the_prices_measured_are_those_of_the_passes_though_the_policy_s_are_pinned():
    meter = PassMeter(None)
    assert meter.measured is ENGINE

    passes(meter, 12 * LEAST_PASSES)

    assert isinstance(meter.measured, ContextCost)
    # A context token costs 1e-8 s, a prompt token 2e-5 s and its part of the fixed 1e-3 s.
    assert meter.measured.context / meter.measured.extend == pytest.approx(4.8e-4, rel=0.1)


def test_each_pass_is_reported_to_the_policy_s_fit_even_if_the_clock_stood_still():
    """The ranks of an engine take new prices after equally many passes, whatever their clocks say."""
    fit = PassTimeFit()
    meter = PassMeter(fit)
    for number in range(LEAST_PASSES):
        assert not fit.is_due
        meter.observe({"a": PassWork(extend=number % 2, decodes=1, context=number)}, 0.0)

    assert fit.is_due


def test_a_pass_without_work_counts_for_no_client():
    assert PassMeter(None).observe({}, 1.0) == {}

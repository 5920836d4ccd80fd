"""Percentiles in bounded memory: exact while few, within 1/256 after that."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit_lab.metrics.distribution import EXACT, Distribution

PERCENTS = (1, 50, 95, 99, 100)


def of(samples):
    distribution = Distribution()
    for sample in samples:
        distribution.add(sample)
    return distribution


def plain(samples, percent):
    ordered = sorted(samples)
    return ordered[max(1, -(-percent * len(ordered) // 100)) - 1]


def test_without_samples_all_is_zero():
    assert Distribution().percentiles(PERCENTS) == [0] * 5


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50))
def test_few_samples_are_exact(samples):
    got = of(samples)

    assert got.percentiles(PERCENTS) == [plain(samples, percent) for percent in PERCENTS]
    assert (got.count, got.total, got.largest) == (len(samples), sum(samples), max(samples))


def test_the_median_of_four_is_the_second():
    """Nearest rank: half of them do not exceed it. Every value shown was observed."""
    assert of([4, 1, 3, 2]).percentiles([50, 51]) == [2, 3]


@pytest.mark.parametrize("seed", range(5))
def test_many_samples_are_within_one_in_256(seed):
    rng = Random(seed)
    samples = [int(rng.lognormvariate(12, 3)) for _ in range(20 * EXACT)]

    got = of(samples)

    for value, percent in zip(got.percentiles(PERCENTS), PERCENTS, strict=True):
        assert value == pytest.approx(plain(samples, percent), rel=1 / 256)
    assert (got.count, got.total, got.largest) == (len(samples), sum(samples), max(samples))


def test_small_numbers_stay_exact_however_many():
    samples = list(range(256)) * 10

    assert of(samples).percentiles(PERCENTS) == [plain(samples, percent) for percent in PERCENTS]


@pytest.mark.parametrize("value", [256, 257, 300, 511, 512, 513, 1000, 1023, 1024, 2**40 + 1])
def test_every_size_of_number_has_buckets_of_its_own(value):
    samples = [0] * EXACT + [value] * EXACT + [10**15]

    assert of(samples).percentiles([51])[0] == pytest.approx(value, rel=1 / 256)


def test_memory_does_not_grow_with_samples():
    rng = Random(0)
    got = of(int(rng.expovariate(1e-6)) for _ in range(100_000))

    assert len(got._few) <= EXACT and len(got._buckets) < 128 * 24  # 128 a power of two


@settings(max_examples=30, deadline=None)
@given(
    few=st.lists(st.integers(0, 10**9), max_size=20),
    seed=st.integers(0, 99),
    count=st.sampled_from([0, 5, EXACT - 1, EXACT, 3 * EXACT]),
)
def test_merged_distributions_are_those_of_all_samples(few, seed, count):
    rng = Random(seed)
    many = [rng.randint(0, 10**9) for _ in range(count)]
    for first, second in ((few, many), (many, few), (many, many)):
        got = of(first)
        got.merge(of(second))
        want = of(first + second)

        assert got.percentiles(PERCENTS) == want.percentiles(PERCENTS)
        assert (got.count, got.total, got.largest) == (want.count, want.total, want.largest)

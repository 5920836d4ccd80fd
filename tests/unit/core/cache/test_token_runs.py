"""Runs: one prompt has one form, whatever it was put together from."""

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.cache.token_runs import Runs, common_len

# Segment 5 and the plain token 5 are different things; so are segment 5 and segment "5".
pieces = st.one_of(
    st.tuples(st.sampled_from([5, "5"]), st.integers(0, 2), st.integers(0, 3)),
    st.lists(st.sampled_from([5, 6]), max_size=3).map(lambda ids: (tuple(ids), 0, len(ids))),
)
run_lists = st.lists(pieces, max_size=6)


def units(runs):
    """Every token of the runs as what it is: a plain one, or (segment, index)."""
    return [
        segment[index] if isinstance(segment, tuple) else (segment, index)
        for segment, offset, length in runs
        for index in range(offset, offset + length)
    ]


def test_what_could_be_one_run_is_one():
    """
    A conversation arrives as yesterday's part and today's; the cache must not see the seam.
    """
    assert Runs([("a", 0, 3), ("a", 3, 4), ("b", 0, 0), ("a", 7, 1)]).runs == (("a", 0, 8),)
    assert Runs([((1, 2), 0, 2), ((9, 3, 4, 9), 1, 2)]).runs == (((1, 2, 3, 4), 0, 4),)
    assert len(Runs([("a", 0, 3), ("a", 4, 1)]).runs) == 2


@given(a=run_lists, b=run_lists)
@settings(max_examples=300, deadline=None)
def test_runs_are_a_sequence_of_their_tokens(a, b):
    """
    Equal tokens are equal runs and hash alike; `+`, slices and single tokens are those of a list.
    """
    one, other = Runs(a), Runs(b)
    assert list(one) == units(a)
    assert len(one) == len(units(a))
    assert (one == other) == (units(a) == units(b))
    assert one + other == Runs(a + b)
    assert hash(one) == hash(Runs(one.runs))
    assert list(one + other) == units(a) + units(b)
    for at, unit in enumerate(units(a)):
        assert one[at] == unit


@given(runs=run_lists, data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_slice_of_runs_is_the_slice_of_their_tokens(runs, data):
    """
    Cut in the middle of a run, before it, behind it: in normal form again.
    """
    end = data.draw(st.integers(0, len(units(runs))))
    start = data.draw(st.integers(0, end))
    part = Runs(runs)[start:end]
    assert list(part) == units(runs)[start:end]
    assert part.runs == Runs(part.runs).runs


@given(shared=run_lists, a=run_lists, b=run_lists, data=st.data())
@settings(max_examples=500, deadline=None)
def test_how_far_two_prompts_agree_is_counted_in_tokens(shared, a, b, data):
    """
    A run of one prompt may end where the other continues, and both may continue alike behind it.
    """
    one, other = Runs(shared + a), Runs(shared + b)
    pairs = zip(units(shared + a), units(shared + b), strict=False)
    agree = next((n for n, (x, y) in enumerate(pairs) if x != y), min(len(one), len(other)))
    end = data.draw(st.integers(0, min(len(one), len(other))))
    start = data.draw(st.integers(0, min(agree, end)))
    assert common_len(one, other, start, end) == min(agree, end)
    assert common_len(tuple(one), tuple(other), start, end) == min(agree, end)


@given(shared=run_lists, a=run_lists, b=run_lists, data=st.data())
@settings(max_examples=300, deadline=None)
def test_an_array_of_tokens_is_what_a_tuple_of_them_is(shared, a, b, data):
    """
    SGLang keeps prompts in arrays: to compare them there is many times faster than in tuples of integers.
    """
    before = repr(given := in_arrays(shared + a))
    one, other = Runs(given), Runs(in_arrays(shared + b))
    plain, plain_other = Runs(shared + a), Runs(shared + b)

    end = data.draw(st.integers(0, min(len(one), len(other))))
    assert list(one) == list(plain)
    assert list(one[end:]) == list(plain[end:])
    assert (one == other) == (plain == plain_other)
    assert list(one + other) == list(plain + plain_other)
    assert common_len(one, other, 0, end) == common_len(plain, plain_other, 0, end)
    assert repr(given) == before, "it is another's, and must not be changed"


def in_arrays(runs):
    """The same, with plain tokens as an engine has them."""
    return [
        (array("q", segment) if isinstance(segment, tuple) else segment, offset, length)
        for segment, offset, length in runs
    ]


def test_a_run_that_ended_is_not_taken_for_one_that_goes_on():
    """
    Both prompts have the same tokens of b, ten tokens apart: they part where the run of a ends in the first.
    """
    one, other = Runs([("a", 0, 10), ("b", 0, 5)]), Runs([("a", 0, 20), ("b", 10, 5)])

    assert [common_len(one, other, start, 15) for start in (0, 9, 10)] == [10, 10, 10]
    assert [common_len(other, one, start, 15) for start in (0, 9, 10)] == [10, 10, 10]


def test_plain_tokens_are_one_run_and_are_not_copied():
    """
    A prompt of 100,000 tokens is looked up many times while it waits.
    """
    tokens = tuple(range(1000))
    assert Runs.of(tokens).spans[0][0] is tokens
    assert Runs.of(Runs.of(tokens)).spans[0][0] is tokens
    assert Runs.of([1, 2]) == Runs.of((1, 2))

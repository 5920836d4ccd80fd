"""LPM with and without SGLang's fallback, and Preble's groups of hit ratios."""

import pytest

from fairhit.errors import ConfigError
from tests.unit.policies.queue import Queue

HOT = tuple(range(10))


def with_hot_prompt(name, **settings):
    queue = Queue(name, **settings)
    queue.tree.release(queue.tree.insert(queue.tree.acquire((), 0), HOT, 0))
    return queue


@pytest.mark.parametrize(("fallback", "order"), [(None, "hca"), (3, "hca"), (2, "cah")])
def test_above_the_fallback_the_oldest_goes_first(fallback, order):
    """
    Three wait: with a fallback above 2 waiting the hit is worth nothing in this pass.
    """
    queue = with_hot_prompt("lpm", fallback=fallback)
    queue.wait("ca")
    queue.wait("h", prompt=HOT)

    assert queue.admit() == order


def test_the_fallback_is_decided_pass_by_pass():
    """
    Four wait and the oldest goes; then three, and the best match goes, past one that does not fit.
    """
    queue = with_hot_prompt("lpm", fallback=3)
    queue.wait("xca")
    queue.wait("h", prompt=HOT)

    assert queue.admit(1) == "x"
    assert queue.admit(1, too_large="c") == "h"
    queue.wait("yz")
    assert queue.admit(too_large="c") == "ayz"


def test_a_fallback_is_a_number_of_requests():
    with pytest.raises(ConfigError, match="fallback: expected a whole number"):
        Queue("lpm", fallback=-1)


def test_each_pass_serves_one_group_with_a_share_by_its_rank():
    """
    Ninety percent cached is group 8, for 90 admissions a pass; cold is group 0, for 10. The cursor
    goes down and round.
    """
    queue = with_hot_prompt("preble-groups")
    queue.wait("c" * 25)
    queue.wait("h" * 100, prompt=HOT)

    assert [queue.admit() for _ in range(5)] == ["h" * 90, "c" * 10, "h" * 10, "c" * 10, "c" * 5]


@pytest.mark.parametrize(
    ("input_len", "share"), [(10, 90), (11, 100), (12, 90), (20, 50), (91, 20), (1000, 10)]
)
def test_a_group_is_a_tenth_of_the_hit_ratio(input_len, share):
    """
    Of a prompt that is all cached the last token is computed: nine of ten. Ten of 1,000 is group 0.
    """
    queue = with_hot_prompt("preble-groups")
    own = tuple(("own", at) for at in range(input_len - 10))
    queue.wait("h" * 101, input_len=input_len, prompt=HOT + own)

    assert len(queue.admit()) == share


def test_a_request_that_does_not_fit_is_skipped_and_its_group_goes_on():
    queue = with_hot_prompt("preble-groups")
    queue.wait("hgh", prompt=HOT)

    assert queue.admit(too_large="g") == "hh"
    assert queue.admit() == "g"


def test_a_request_never_changes_group():
    """
    Cold on arrival, cached since: it still waits for the cold group's turn, behind newer hits.
    """
    queue = Queue("preble-groups")
    queue.wait("c", prompt=HOT)
    queue.tree.release(queue.tree.insert(queue.tree.acquire((), 0), HOT, 0))
    queue.wait("h", prompt=HOT)

    assert [queue.admit(), queue.admit()] == ["h", "c"]

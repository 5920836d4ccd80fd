"""Adapted deficit round robin, visit by visit."""

from fairhit.core.service import Weights
from tests.unit.policies.queue import Queue


def test_a_visit_ends_with_the_request_that_exceeds_the_deficit():
    """
    A quantum of 15 and prompts of 10: two fit a visit, the second on credit, which leaves a debt of 5;
    so the next visit is worth 10, one request, and so on by turns.
    """
    queue = Queue("drr", quantum=15)
    queue.wait("aaaaa" + "bbbbb")

    assert queue.admit() == "aabb" + "ab" + "aabb"


def test_debt_of_many_quanta_waits_for_many_rounds():
    """
    a is at -(5 + 2 x 10) for its outputs: b, at -5, is refilled and visited alone until they are
    level again.
    """
    queue = Queue("drr", quantum=5)
    queue.wait("a" * 4 + "b" * 6)
    assert queue.admit(2) == "ab"
    queue.end(0, outputs=10)

    assert queue.admit(4) == "bbab"


def test_a_client_that_does_not_fit_lets_the_next_one_by_and_keeps_its_turn():
    """
    No client is refilled while a has credit; when a fits again it is first, though b was served.
    """
    queue = Queue("drr", quantum=10)
    queue.wait("aa" + "bbb")

    assert queue.admit(too_large="a") == "b"
    assert queue.credit("b") == 0
    assert queue.admit() == "abab"


def test_a_newcomer_stands_behind_the_others():
    """
    c comes while a is being served: first b, then c, then a again.
    """
    queue = Queue("drr", quantum=10)
    queue.wait("aab")
    assert queue.admit(1) == "a"
    queue.wait("c")

    assert queue.admit() == "bca"


def test_a_client_of_weight_two_gets_twice_the_quantum():
    queue = Queue("drr", quantum=10, weights=Weights({"g": 2}))
    queue.wait("gggg" + "ss")

    assert queue.admit() == "ggsggs"


def test_debt_survives_leaving():
    """
    a leaves owing 29, 20 of them for outputs; back again, it waits until b has had as much.
    """
    queue = Queue("drr", quantum=1)
    queue.wait("ab")
    queue.admit(1)
    queue.end(0, outputs=10)
    queue.wait("a" + "bbb")

    assert queue.admit() == "bbbab"


def test_cached_prompts_are_charged_in_full_by_default():
    whole, computed = Queue("drr", quantum=20), Queue("drr", quantum=20, charge="extend")
    for queue in (whole, computed):
        queue.wait("a")
        queue.admit()

    assert (whole.credit("a"), computed.credit("a")) == (10, 19)

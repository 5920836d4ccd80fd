"""Reserve by example: what fits, what stays cached behind a request, and who computes what twice."""

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Request
from fairhit_lab.sim.memory.admission import Reserve


def memory(capacity, *, shares=True):
    tree = RadixTree()
    return tree, Reserve(tree, capacity=capacity, shares=shares)


def request(*runs, max_tokens=4, order=0):
    prompt = Runs(runs)
    return Request(
        id=str(order),
        client="a",
        prompt=prompt,
        input_len=len(prompt),
        max_tokens=max_tokens,
        order=order,
    )


def test_a_request_needs_room_for_what_is_not_cached_and_all_it_may_emit():
    """
    16 tokens of memory: a prompt of 8 and 4 to come leave room for 4 more, not for 5.
    """
    tree, reserve = memory(16)
    first = reserve.admit(request(("system", 0, 8)), 0)

    assert (first.extend_len, first.reserved, tree.size) == (8, 4, 8)
    assert reserve.admit(request(("system", 0, 8), ("a", 0, 1), order=1), 1) is None
    second = reserve.admit(request(("system", 0, 8), order=2), 2)
    assert (second.extend_len, second.reserved) == (1, 4), "the last token is always computed"


def test_what_a_request_matches_does_not_give_way_to_itself():
    """
    The prompt's own 6 cached tokens are evictable, but not for its own sake.
    """
    tree, reserve = memory(10)
    reserve.release(reserve.admit(request(("a", 0, 6)), 0))
    assert tree.evictable == 6

    assert reserve.admit(request(("a", 0, 6), max_tokens=5), 1) is None
    assert tree.size == 6, "a request that does not fit evicts nothing"
    assert reserve.admit(request(("a", 0, 6), max_tokens=4), 1).extend_len == 1
    assert reserve.evicted == 0


def test_a_request_that_does_not_fit_does_not_make_its_prefix_younger():
    """
    A request that is tried again and again must not keep its prefix in memory that way.
    """
    tree, reserve = memory(12)
    old, young = request(("old", 0, 4), max_tokens=1), request(("young", 0, 4), max_tokens=1)
    for now_us, each in enumerate((old, young)):
        reserve.release(reserve.admit(each, now_us))
    assert reserve.admit(request(("old", 0, 4), max_tokens=9), 2) is None
    reserve.admit(request(("new", 0, 3), max_tokens=4), 3)

    assert (tree.match_len(old.prompt), tree.match_len(young.prompt)) == (1, 4)
    assert reserve.evicted == 3


def test_what_was_emitted_stays_cached_behind_the_prompt():
    """
    The next turn of a conversation begins with the answer; what was reserved and not used is free
    again. (DESIGN 6.1 keeps the whole output; engines compute the last token only with the next.)
    """
    tree, reserve = memory(20)
    grant = reserve.admit(request(("talk", 0, 5), max_tokens=8), 0)
    turn = Runs([("talk", 0, 5), ("answer", 0, 3)])
    grant = reserve.emitted(grant, turn, 1)
    reserve.check()
    assert (tree.size, grant.reserved) == (8, 5)
    reserve.release(grant)
    reserve.check()

    assert tree.match_len(turn) == 8
    following = reserve.admit(request(*turn.runs, ("more", 0, 2), max_tokens=10), 2)
    assert following.extend_len == 2
    assert reserve.evicted == 0


def test_two_that_compute_the_same_prompt_at_once_leave_one_copy():
    """
    Without sharing in the batch both pay for it, and the second copy's room is free after the step.
    """
    tree, reserve = memory(24, shares=False)
    pair = [request(("same", 0, 8), order=order) for order in range(2)]
    grants = [reserve.admit(each, 0) for each in pair]
    assert [grant.extend_len for grant in grants] == [8, 8]
    assert reserve.admit(request(("other", 0, 1), order=2), 0) is None, "24 tokens are reserved"

    grants = [reserve.prefilled(grant, each, 1) for grant, each in zip(grants, pair, strict=True)]
    reserve.check()
    assert tree.size == 8
    assert [grant.reserved for grant in grants] == [4, 4]
    third = reserve.admit(request(("same", 0, 8), max_tokens=8, order=3), 2)
    assert third.extend_len == 1
    for grant in (*grants, third):
        reserve.release(grant)
    reserve.check()
    assert (tree.size, tree.evictable) == (8, 8)


def test_a_request_cancelled_before_its_prefill_leaves_nothing():
    """
    The reserved memory is free at once, and the prompt was never computed.
    """
    tree, reserve = memory(12, shares=False)
    reserve.release(reserve.admit(request(("a", 0, 8)), 0))
    reserve.check()

    assert tree.size == 0
    assert reserve.admit(request(("b", 0, 8)), 1).extend_len == 8


def test_a_refused_request_fits_from_the_very_token_that_makes_it_fit():
    """
    A request that was refused is admitted once enough memory is free, and not one token earlier.
    """
    for freed, fits in ((2, False), (3, True)):
        _, reserve = memory(24)
        small = reserve.admit(request(("small", 0, freed - 1), max_tokens=1), 0)
        reserve.admit(request(("big", 0, 15 - freed), max_tokens=4, order=1), 0)
        follower = request(("next", 0, 4), max_tokens=4, order=2)
        assert reserve.admit(follower, 1) is None

        reserve.release(small)

        assert (reserve.admit(follower, 2) is not None) is fits


def test_a_finished_answer_that_stays_cached_may_make_room_for_the_next_turn():
    _, reserve = memory(16)
    first = request(("a", 0, 4), max_tokens=4)
    second = request(("b", 0, 4), max_tokens=1, order=1)
    grant = reserve.admit(first, 0)
    reserve.admit(second, 0)
    turn = Runs([("a", 0, 4), ("answer", 0, 4)])
    next_turn = request(*turn.runs, max_tokens=3, order=2)
    assert reserve.admit(next_turn, 1) is None

    reserve.release(reserve.emitted(grant, turn, 2))

    assert reserve.admit(next_turn, 2) is not None

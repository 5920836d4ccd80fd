"""The paged memory evicts last what waiting prompts want."""

from fairhit.core.request import Request
from fairhit.core.waiting.cache_listener import waiting_index
from fairhit_lab.sim.memory.block_pool import BlockPool


def pool_with(*names):
    """A pool in which each name was cached in turn, one block each, and is free."""
    pool = BlockPool(blocks=len(names), block_size=4)
    for name in names:
        (block,) = pool.take(1)
        pool.name(block, name)
        pool.leave([block])
    return pool


def test_a_block_that_a_waiting_prompt_wants_is_evicted_last():
    pool = pool_with("a", "b", "c")
    index = waiting_index(pool.cache, keeps_wanted=True)
    for order, name in enumerate(("a", "b")):
        index.add(
            Request(id=name, client="x", prompt=(name,), input_len=8, max_tokens=1, order=order)
        )

    taken = pool.take(1)
    assert [name in pool.cache for name in "abc"] == [True, True, False]
    taken += pool.take(1)
    assert [name in pool.cache for name in "abc"] == [False, True, False]
    pool.check([taken])


def test_without_a_policy_that_keeps_them_the_oldest_is_evicted():
    pool = pool_with("a", "b")
    index = waiting_index(pool.cache)
    index.add(Request(id="a", client="x", prompt=("a",), input_len=8, max_tokens=1, order=1))

    pool.take(1)

    assert [name in pool.cache for name in "ab"] == [False, True]


def test_what_the_only_waiting_prompt_wants_is_kept_too():
    """A single waiting request is outside the trie until something asks for its place."""
    pool = pool_with("a", "b")
    index = waiting_index(pool.cache, keeps_wanted=True)
    index.add(Request(id="a", client="x", prompt=("a",), input_len=8, max_tokens=1, order=1))

    pool.take(1)

    assert [name in pool.cache for name in "ab"] == [True, False]

"""WaitingIndex by example: failures that the property test once found, and what one move costs."""

import pytest

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import MOST_KEPT, RadixTree
from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import Request
from fairhit.core.waiting.cache_listener import waiting_index
from fairhit.core.waiting.sorted_snapshot import SortedSnapshot


def request(order, prompt, *, client="a", input_len=None):
    return Request(
        id=str(order),
        client=client,
        prompt=tuple(prompt),
        input_len=input_len or len(prompt),
        max_tokens=1,
        order=order,
    )


def chained(letters):
    return [letters[: end + 1] for end in range(len(letters))]


def test_a_block_cached_below_a_hole_counts_once_the_hole_is_filled():
    """
    Blocks may be cached out of order: the second block of y-x is there before the first, and a
    second request splits the edge between them.
    """
    cache = BlockCache(block_size=4)
    index = waiting_index(cache)
    cache.insert("yx")
    longer, shorter = (
        request(1, chained("yxx"), input_len=12),
        request(2, chained("yx"), input_len=8),
    )
    index.add(longer)
    index.add(shorter)
    assert (index.match_len(longer), index.match_len(shorter)) == (0, 0)

    cache.insert("y")

    assert (index.match_len(longer), index.match_len(shorter)) == (8, 4)


def test_the_oldest_of_an_evicted_branch_is_the_oldest_of_its_trunk():
    """
    Request 2 hangs two tokens deep and request 3 one; when the second token is evicted both hang at
    one, and 2 is older. Its entry at the trunk was believed to be there already.
    """
    tree = RadixTree()
    index = waiting_index(tree)
    first, second = request(1, "x"), request(2, "xxx")
    index.add(first)
    index.add(second)
    tree.release(tree.insert(tree.acquire(("x",), 1), ("x",), 1))
    path = tree.insert(tree.acquire(("x", "x"), 2), ("x", "x"), 2)
    index.open("a")
    assert index.best() is second
    index.add(request(3, "xx"))
    tree.release(path)
    tree.evict(1)
    index.remove(first)

    assert index.best() is second


def test_a_prefix_shared_by_thousands_moves_as_one(monkeypatch):
    """
    What 64 cached blocks cost does not depend on how many requests share them.
    """

    def heap_entries(waiting):
        cache = BlockCache(block_size=16)
        index = waiting_index(cache)
        shared = [f"shared-{at}" for at in range(64)]
        for order in range(waiting):
            index.add(request(order, [*shared, f"own-{order}"], input_len=66 * 16))
        index.open("a")
        index.best()
        pushes = []
        push = LazyHeap.push
        monkeypatch.setattr(LazyHeap, "push", lambda *given: (pushes.append(given), push(*given)))
        for block in shared:
            cache.insert(block)
        index.best()
        monkeypatch.undo()
        assert index.match_len(request(0, [], input_len=1)) == 64 * 16
        return len(pushes)

    assert heap_entries(10) == heap_entries(2_000) == 2


def entries(index):
    """How many entries all the heaps of an index hold."""
    heaps, nodes = index._heaps, [index.trie.root]
    for node in nodes:
        nodes.extend((node.children or {}).values())
    held = sum(len(heap) for node in nodes for heap in node.heaps.values())
    return held + len(heaps._front) + sum(len(c.anchors) for c in heaps._clients.values())


@pytest.mark.parametrize("cached", [False, True], ids=["aborted", "admitted past it"])
def test_requests_that_come_and_go_past_an_old_one_leave_nothing_behind(cached):
    """
    One old cold request stays at the top of every heap; what goes on below it must not pile up.
    """
    cache = BlockCache(block_size=1)
    index = waiting_index(cache)
    index.add(request(0, ["old"], input_len=2))
    index.open("a")
    for order in range(1, 3_000):
        blocks = [(order, at) for at in range(3)]
        younger = request(order, blocks, input_len=4)
        index.add(younger)
        for block in blocks if cached else []:
            cache.insert(block)
        assert index.best().order == (order if cached else 0)
        index.remove(younger)
        for block in reversed(blocks if cached else []):
            cache.evict(block)

    assert entries(index) < 500


def test_a_request_hidden_and_shown_in_every_pass_leaves_few_entries():
    """
    Each scheduling pass pushes a new entry; only some of the entries may remain.
    """
    index = waiting_index(BlockCache(block_size=1))
    misfit, younger = (request(order, ["same"], input_len=2) for order in (0, 1))
    index.add(misfit)
    index.add(younger)
    index.open("a")
    for _ in range(3_000):
        index.hide(misfit)
        assert index.best() is younger
        index.show(misfit)
        assert index.best() is misfit

    assert entries(index) < 500


def test_who_waits_alone_hangs_nowhere_until_a_second_one_comes():
    """
    Under moderate load most requests are admitted before another comes: their prompts need no place.
    """
    cache = BlockCache(block_size=1)
    index = waiting_index(cache)
    lone, better = request(0, ["cold"], input_len=2), request(1, ["warm"], client="b", input_len=2)
    index.add(lone)
    assert index.best() is None
    index.open("a")
    assert index.best() is lone
    assert (len(index), index.waiting("a"), index.waiting("b")) == (1, 1, 0)
    assert not index.trie.root.children

    cache.insert("warm")
    index.add(better)

    assert index.best() is lone, "open as before"
    assert index.match_len(better) == 1
    index.open("b")
    assert index.best() is better


def test_a_pass_that_keeps_admitting_sorts_the_remaining_requests_a_few_times_at_most(monkeypatch):
    """
    Of 200 requests of eight clients every second one is skipped and every other one is admitted:
    the oldest first, as all match as little. Each that is admitted was the best of its client.
    """
    sorts = []
    kept = SortedSnapshot._sort
    monkeypatch.setattr(SortedSnapshot, "_sort", lambda self: sorts.append(self) or kept(self))
    index = waiting_index(RadixTree())
    for order in range(200):
        index.add(request(order, [order, order], client=str(order % 8)))
        index.open(str(order % 8))
    passed_over, tried = [], []

    while best := index.best():
        tried.append(best.order)
        if best.order % 2:
            index.remove(best)
        else:
            index.hide(best)
            passed_over.append(best)

    assert tried == list(range(200))
    assert 0 < len(sorts) <= 4
    for each in passed_over:
        index.show(each)
    assert index.best() is passed_over[0]


def cached(tree, prompt):
    """Cache a prompt without pins."""
    tree.release(tree.insert(tree.acquire(prompt, 0), tuple(prompt), 0))


def test_within_a_step_of_matched_tokens_the_client_with_the_least_standing_is_first():
    tree, standing = RadixTree(), {"a": 2, "b": 1, "c": 0}
    index = waiting_index(tree, near=4, standing=standing.get)
    cached(tree, "aaaaaaaa")
    cached(tree, "bbbbbb")
    cached(tree, "ccc")
    for order, client in enumerate("abc"):
        index.add(request(order, client * 9, client=client))
        index.open(client)

    # Steps of 4: a matches 8, the second step; b 6 and c 3 are one and none.
    assert index.best().client == "a"
    index.close("a")
    assert index.best().client == "b"

    cached(tree, "aaaaaaaaa")
    cached(tree, "bbbbbbbbb")  # the last token is computed in any case: 8 match
    index.open("a")
    assert index.best().client == "b"  # one step now, and b stands before a
    standing["b"] = 3
    index.open("b")
    assert index.best().client == "a"


def test_a_removal_reads_the_standing_of_its_client_anew():
    tree, standing = RadixTree(), {"a": 1, "b": 2}
    index = waiting_index(tree, near=4, standing=standing.get)
    for order, client in enumerate("aab"):
        index.add(request(order, client * 9, client=client))
        index.open(client)
    assert index.best().client == "a"

    standing["a"] = 3
    index.remove(request(1, "a" * 9))  # not the client's best
    assert index.best().client == "b"


@pytest.mark.parametrize("alone", [True, False])
def test_a_client_that_is_open_for_hits_offers_its_best_request_if_it_is_cached_to_nine_tenths(
    alone,
):
    tree = RadixTree()
    index = waiting_index(tree)
    cached(tree, "x" * 9)
    index.add(request(1, "x" * 8 + "yy"))
    if not alone:
        index.add(request(2, "z" * 10, client="b"))
    index.open_for_hits("a")
    assert index.best() is None

    cached(tree, "x" * 8 + "y")
    assert index.best().order == 1

    tree.evict(2)
    assert index.best() is None
    index.open("a")
    assert index.best().order == 1


def test_a_cache_evicts_last_what_waiting_prompts_begin_with():
    tree = RadixTree()
    index = waiting_index(tree, keeps_wanted=True)
    cached(tree, "aaaa")
    cached(tree, "bbbb")
    index.add(request(1, "aab"))
    index.add(request(2, "c"))

    tree.evict(2)  # the tail of a, which is oldest
    assert (tree.match_len("aaaa"), tree.match_len("bbbb")) == (2, 4)
    tree.evict(4)  # b, though a is older
    assert (tree.match_len("aaaa"), tree.match_len("bbbb")) == (2, 0)
    tree.evict(1)  # nothing else is left
    assert tree.match_len("aaaa") == 1
    tree.check()


def test_an_eviction_examines_a_bounded_number_of_leaves():
    """The most recent leaf is wanted by none; beyond MOST_KEPT older ones it is not found."""
    tree = RadixTree()
    index = waiting_index(tree, keeps_wanted=True)
    index.add(request(0, "z"))
    for number in range(MOST_KEPT + 1):
        cached(tree, [number])
        index.add(request(number + 1, [number, number]))
    cached(tree, "q")

    tree.evict(1)

    assert (tree.match_len([0]), tree.match_len("q")) == (0, 1)


def test_without_keeping_what_is_wanted_the_oldest_is_evicted():
    tree = RadixTree()
    index = waiting_index(tree)
    cached(tree, "aaaa")
    cached(tree, "bbbb")
    index.add(request(1, "aaaa"))
    index.add(request(2, "c"))

    tree.evict(4)

    assert (tree.match_len("aaaa"), tree.match_len("bbbb")) == (0, 4)

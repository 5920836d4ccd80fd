"""WaitingIndex by example: failures that the property test once found, and what one move costs."""

from fairlead.core.block_cache import BlockCache
from fairlead.core.radix_tree import RadixTree
from fairlead.core.request import Request
from fairlead.core.watch import waiting_index


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


def test_a_prefix_shared_by_thousands_moves_as_one():
    """
    What 64 cached blocks cost does not depend on how many requests share them.
    """

    def best_changes(waiting):
        cache = BlockCache(block_size=16)
        index = waiting_index(cache)
        shared = [f"shared-{at}" for at in range(64)]
        for order in range(waiting):
            index.add(request(order, [*shared, f"own-{order}"], input_len=66 * 16))
        index.open("a")
        moved = []
        index.trie.set_held = _counted(index.trie.set_held, moved)
        for block in shared:
            cache.insert(block)
        assert index.match_len(request(0, [], input_len=1)) == 64 * 16
        return len(moved)

    assert best_changes(10) == best_changes(2_000) == 64


def _counted(method, calls):
    def counting(*arguments):
        calls.append(arguments)
        return method(*arguments)

    return counting

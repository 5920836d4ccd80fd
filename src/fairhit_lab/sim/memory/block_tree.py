"""What a block pool caches, as a radix tree of tokens: routers know prompts, not an engine's blocks.

Each cached block pins the prefix that ends with it, and what is pinned by none is dropped at once. Of
a prefix the later blocks always go before the earlier ones: a block in use keeps those before it in
use, and a request's blocks become free from the last to the first. So the tree is exact, but that it
also shows where a part of a block agrees, which is no hit.
"""

from collections.abc import Sequence

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import Path, RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Unit


class BlockTree:
    """Follows `cache`; its host says which tokens a hash stands for. `tree` is there to be followed."""

    def __init__(self, cache: BlockCache) -> None:
        self.tree = RadixTree()
        self._size = cache.block_size
        self._paths: dict[Unit, Path] = {}
        cache.listen(self)

    def named(self, tokens: Runs, known_len: int, hashes: Sequence[Unit], start: int) -> None:
        """`hashes` name the first blocks of `tokens`; those from the `start`-th on are cached now.

        Nobody can want what is behind `known_len`, so that is left out. O(new blocks * depth).
        """
        end = min(len(hashes), known_len // self._size)
        if end <= start:
            return
        tree, paths = self.tree, self._paths
        above = paths[hashes[start - 1]] if start else tree.acquire(Runs(()), 0)
        # All at once, so that it is one piece of news; then a pin for each block.
        whole = tree.insert(tree.pin((above, above.length), 0), tokens, 0, end * self._size)
        if not start:
            tree.release(above)
        for at in range(end - 1, start - 1, -1):
            if hashes[at] not in paths:
                at_end = tree.match(tokens[: (at + 1) * self._size])
                paths[hashes[at]] = tree.pin(at_end, 0)
        tree.release(whole)
        assert not tree.evictable

    def inserted(self, block_hash: Unit) -> None:
        """Its host says so, too, and with its tokens."""

    def evicted(self, block_hash: Unit) -> None:
        """The last block with this hash is gone."""
        path = self._paths.pop(block_hash, None)
        if path is not None:
            self.tree.release(path)
            self.tree.evict(self.tree.evictable)

"""Content of a block pool as a radix tree of tokens: routers know prompts, not an engine's blocks.

Each cached block pins the prefix that ends with it; a prefix without pins is evicted at once. Of a prefix
the later blocks are evicted before the earlier ones: a block in use keeps those before it in use, and a
request's blocks become free from the last to the first. So the tree is exact, except that a match may end
within a block, which is no hit.
"""

from collections.abc import Sequence

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import Path, RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Unit


class BlockTree:
    """Mirrors `cache` as `tree`; the engine gives the tokens of each hash."""

    def __init__(self, cache: BlockCache) -> None:
        self.tree = RadixTree()
        self._size = cache.block_size
        self._paths: dict[Unit, Path] = {}
        cache.listen(self)

    def named(self, tokens: Runs, known_len: int, hashes: Sequence[Unit], start: int) -> None:
        """Add the blocks of `tokens` with these `hashes`, of which those from the `start`-th on are new.

        Tokens beyond `known_len` can be in no other prompt and are left out. O(new blocks * depth).
        """
        end = min(len(hashes), known_len // self._size)
        if end <= start:
            return
        tree, paths = self.tree, self._paths
        above = paths[hashes[start - 1]] if start else tree.acquire(Runs(()), 0)
        # One insertion, so that listeners are called once; then a pin for each block.
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
        """Ignored: the engine calls `named`, with the tokens."""

    def evicted(self, block_hash: Unit) -> None:
        """Receive an eviction: the last block with this hash was evicted."""
        path = self._paths.pop(block_hash, None)
        if path is not None:
            self.tree.release(path)
            self.tree.evict(self.tree.evictable)

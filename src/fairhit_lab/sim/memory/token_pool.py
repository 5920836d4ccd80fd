"""A KV memory of single tokens (SGLang, page size 1): those in the radix tree and running requests' own.

A computed token belongs to its request until it is inserted in the tree, where other requests match it. New
tokens take free memory, then that of the tree's least recently used unpinned tokens.
"""

from fairhit.core.cache.radix_tree import RadixTree


class TokenPool:
    """Memory for `capacity` tokens, those in `tree` and those of requests."""

    def __init__(self, tree: RadixTree, *, capacity: int) -> None:
        assert capacity >= 1 and not tree.size
        self.tree = tree
        self.capacity = capacity
        self.own = 0  # tokens of requests that are not in the tree
        self.evicted = 0  # tokens evicted from the tree, since the start

    @property
    def free(self) -> int:
        """Unused memory, in tokens. O(1)."""
        return self.capacity - self.tree.size - self.own

    @property
    def available(self) -> int:
        """Unused and evictable memory, in tokens. O(1)."""
        return self.capacity - self.tree.pinned - self.own

    def take(self, tokens: int) -> None:
        """Take memory for `tokens` own tokens, at most `available`. O(log leaves) for each leaf evicted."""
        assert 0 <= tokens <= self.available, (tokens, self.available)
        missing = tokens - self.free
        if missing > 0:
            evicted = self.tree.evict(missing)
            assert evicted == missing, (evicted, missing)
            self.evicted += evicted
        self.own += tokens

    def give(self, tokens: int) -> None:
        """Return the memory of `tokens` own tokens, which are free or in the tree from now on. O(1)."""
        assert 0 <= tokens <= self.own, (tokens, self.own)
        self.own -= tokens

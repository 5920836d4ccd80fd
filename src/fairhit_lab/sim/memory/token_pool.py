"""A KV memory of single tokens: what the radix tree holds, and what running requests hold besides.

What a request computes is its own until it is handed to the tree, where others find it. Memory for
new tokens comes from what is free, then from the tree's oldest unpinned ones (SGLang, page size 1).
"""

from fairhit.core.cache.radix_tree import RadixTree


class TokenPool:
    """`capacity` tokens, shared by `tree` and the requests' own tokens."""

    def __init__(self, tree: RadixTree, *, capacity: int) -> None:
        assert capacity >= 1 and not tree.size
        self.tree = tree
        self.capacity = capacity
        self.own = 0  # tokens in memory that are not in the tree
        self.evicted = 0  # tokens of the tree that gave way, since the start

    @property
    def free(self) -> int:
        """Tokens that hold nothing. O(1)."""
        return self.capacity - self.tree.size - self.own

    @property
    def room(self) -> int:
        """Tokens that are free or evictable. O(1)."""
        return self.capacity - self.tree.pinned - self.own

    def take(self, tokens: int) -> None:
        """Memory for `tokens`, which must be within `room`. O(log leaves) for each leaf that goes."""
        assert 0 <= tokens <= self.room, (tokens, self.room)
        missing = tokens - self.free
        if missing > 0:
            evicted = self.tree.evict(missing)
            assert evicted == missing, (evicted, missing)
            self.evicted += evicted
        self.own += tokens

    def give(self, tokens: int) -> None:
        """So many own tokens are free again, or the tree's from now on. O(1)."""
        assert 0 <= tokens <= self.own, (tokens, self.own)
        self.own -= tokens

"""A paged KV memory with a prefix cache, with vLLM 0.32's order of reuse.

A block without users is free; its content can be found by hash until the block is taken again. Free blocks
are in one queue: those without a hash are added at its head, those with a hash at its end, and blocks are
taken from the head. So the blocks that are free longest are evicted first, and the last blocks of a request
before its first.

The queue is kept in three parts: free without a hash, never used, free with a hash. Blocks never used are
only counted. A policy that keeps what waiting prompts want (`BlockCache.keep`) adds a fourth: blocks that
were wanted at the head of the queue, in its order, taken when no other is left.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.request import Unit


class BlockPool:
    """`blocks` blocks of `block_size` tokens; `cache` is the set of cached hashes, for policies."""

    def __init__(self, *, blocks: int, block_size: int = 16) -> None:
        assert blocks >= 1, blocks
        self.block_size = block_size
        self.blocks = blocks
        self.cache = BlockCache(block_size=block_size)
        self.evicted = 0  # blocks taken that had a hash, since the start
        self._users: list[int] = []  # of each block ever taken
        self._hash_of: list[Unit | None] = []
        self._blocks_of: dict[Unit, list[int]] = {}  # in the order in which they got the hash
        self._blank: list[int] = []  # free without a hash; the last one is the head of the queue
        # Free with a hash: the end of the queue; those that a waiting prompt was found to want.
        self._named: OrderedDict[int, None] = OrderedDict()
        self._kept: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> int:
        """Number of blocks without users, those with a hash included. O(1)."""
        return len(self._blank) + self._untouched + len(self._named) + len(self._kept)

    @property
    def _untouched(self) -> int:
        """Number of blocks never taken; the next of them is the one after the last taken."""
        return self.blocks - len(self._users)

    def spare(self, limit: int) -> int:
        """Return how many blocks, up to `limit`, can be taken without an eviction. O(1)."""
        return min(limit, len(self._blank) + self._untouched)

    def find(self, hashes: Iterable[Unit]) -> list[int]:
        """Find a block for each leading hash that is cached. Pure. O(match)."""
        found: list[int] = []
        for name in hashes:
            if (blocks := self._blocks_of.get(name)) is None:
                break
            found.append(blocks[0])
        return found

    def unused(self, blocks: Iterable[int]) -> int:
        """Return how many of the blocks are free; sharing them makes them used."""
        return sum(not self._users[block] for block in blocks)

    def share(self, blocks: Iterable[int]) -> None:
        """Add a user to each of the blocks."""
        for block in blocks:
            if not self._users[block]:
                del (self._named if block in self._named else self._kept)[block]
            self._users[block] += 1

    def take(self, count: int) -> list[int]:
        """Take `count` free blocks, evicting their content, with one user each. O(count)."""
        assert 0 <= count <= self.free, (count, self.free)
        return [self._take_one() for _ in range(count)]

    def _take_one(self) -> int:
        """Take the head of the queue."""
        if self._blank:
            block = self._blank.pop()
        elif self._untouched:
            self._users.append(0)
            self._hash_of.append(None)
            block = len(self._users) - 1
        else:
            block = self._oldest_free()
            self._forget(block)
        assert not self._users[block] and self._hash_of[block] is None, block
        self._users[block] = 1
        return block

    def _oldest_free(self) -> int:
        """Take out the free block with a hash that is evicted next. O(1) amortised: a block is kept once."""
        named, kept = self._named, self._kept
        if kept:  # one that is not wanted any more is next
            block = next(iter(kept))
            if not self._is_wanted(block):
                del kept[block]
                return block
        while named:
            block, _ = named.popitem(last=False)
            if not self._is_wanted(block):
                return block
            kept[block] = None
        return kept.popitem(last=False)[0]

    def _is_wanted(self, block: int) -> bool:
        name = self._hash_of[block]
        return name is not None and self.cache.is_wanted(name)

    def name(self, block: int, block_hash: Unit) -> None:
        """Give the block a hash, by which it can be found: it is full, or will be by the end of the step."""
        assert self._users[block] and self._hash_of[block] is None, block
        self._hash_of[block] = block_hash
        self._blocks_of.setdefault(block_hash, []).append(block)
        self.cache.insert(block_hash)

    def leave(self, blocks: Sequence[int]) -> None:
        """Remove a user from each of a request's blocks, which are in the order of its tokens."""
        for block in reversed(blocks):
            self._users[block] -= 1
            assert self._users[block] >= 0, block
            if self._users[block]:
                continue
            if self._hash_of[block] is None:  # a request's last one, if it is not full
                self._blank.append(block)
            else:
                self._named[block] = None

    def check(self, held: Iterable[Sequence[int]]) -> None:
        """Assert that exactly the blocks in `held`, a list per user, are in use. O(blocks)."""
        users = Counter(block for blocks in held for block in blocks)
        assert len(self._users) <= self.blocks and users.keys() <= set(range(len(self._users)))
        blank = set(self._blank)
        assert len(blank) == len(self._blank)
        for block in range(len(self._users)):
            assert self._users[block] == users[block], (block, self._users[block], users[block])
            cached = block in self._named or block in self._kept
            assert (block in blank or cached) == (not users[block]), block
            assert block not in blank or self._hash_of[block] is None, block
            assert not cached or self._hash_of[block] is not None, block
            name = self._hash_of[block]
            assert name is None or block in self._blocks_of[name], (block, name)
        named = [name for name in self._hash_of if name is not None]
        assert len(named) == sum(map(len, self._blocks_of.values()))
        assert set(named) == set(self._blocks_of) and len(self.cache) == len(self._blocks_of)

    def _forget(self, block: int) -> None:
        name = self._hash_of[block]
        assert name is not None
        self._hash_of[block] = None
        blocks = self._blocks_of[name]
        blocks.remove(block)
        if not blocks:
            del self._blocks_of[name]
        self.cache.evict(name)
        self.evicted += 1

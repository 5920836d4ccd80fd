"""A paged KV memory with a prefix cache, as vLLM 0.32 keeps it: which block is reused next is its order.

A block is free when nobody refers to it; what it held stays findable by hash until it is taken
again. Free blocks stand in one queue: those without a hash are put at its head, those with one at
its end, and blocks are taken from the head. So the longest free go first, and a freed request's
last blocks before its first ones.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from fairlead.core.block_cache import BlockCache
from fairlead.core.request import Unit


class BlockPool:
    """`blocks` blocks of `block_size` tokens; `cache` tells policies which hashes are held."""

    def __init__(self, *, blocks: int, block_size: int = 16) -> None:
        assert blocks >= 1, blocks
        self.block_size = block_size
        self.blocks = blocks
        self.cache = BlockCache(block_size=block_size)
        self.evicted = 0  # blocks taken while they had a hash, since the start
        self._users = [0] * blocks
        self._hash_of: list[Unit | None] = [None] * blocks
        self._blocks_of: dict[Unit, list[int]] = {}  # in the order in which they were named
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))

    @property
    def free(self) -> int:
        """Blocks nobody refers to, those with a hash included. O(1)."""
        return len(self._free)

    def spare(self, limit: int) -> int:
        """How many blocks, up to `limit`, can be taken before one with a hash must go. O(limit)."""
        count = 0
        for block in self._free:
            if count >= limit or self._hash_of[block] is not None:
                break
            count += 1
        return count

    def find(self, hashes: Iterable[Unit]) -> list[int]:
        """A block for each leading hash that is held. Pure. O(match)."""
        found: list[int] = []
        for name in hashes:
            if (blocks := self._blocks_of.get(name)) is None:
                break
            found.append(blocks[0])
        return found

    def unused(self, blocks: Iterable[int]) -> int:
        """How many of the blocks are free now, and so count as free until they are shared."""
        return sum(not self._users[block] for block in blocks)

    def share(self, blocks: Iterable[int]) -> None:
        """One more user of each of the blocks."""
        for block in blocks:
            if not self._users[block]:
                del self._free[block]
            self._users[block] += 1

    def take(self, count: int) -> list[int]:
        """`count` free blocks, used once each; what they held is forgotten. O(count)."""
        assert 0 <= count <= len(self._free), (count, len(self._free))
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            assert not self._users[block], block
            self._users[block] = 1
            if self._hash_of[block] is not None:
                self._forget(block)
        return taken

    def name(self, block: int, block_hash: Unit) -> None:
        """The block is full (or soon will be): whoever wants this hash finds it."""
        assert self._users[block] and self._hash_of[block] is None, block
        self._hash_of[block] = block_hash
        self._blocks_of.setdefault(block_hash, []).append(block)
        self.cache.insert(block_hash)

    def leave(self, blocks: Sequence[int]) -> None:
        """One user less of each of a request's blocks, which are in the order of its tokens."""
        for block in reversed(blocks):
            self._users[block] -= 1
            assert self._users[block] >= 0, block
            if not self._users[block]:
                self._free[block] = None
                if self._hash_of[block] is None:  # a request's last one, if it is not full
                    self._free.move_to_end(block, last=False)

    def check(self, held: Iterable[Sequence[int]]) -> None:
        """Assert that the blocks in `held`, a list for each user, are all that is in use. O(blocks)."""
        users = Counter(block for blocks in held for block in blocks)
        for block in range(self.blocks):
            assert self._users[block] == users[block], (block, self._users[block], users[block])
            assert (block in self._free) == (not users[block]), block
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

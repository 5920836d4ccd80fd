"""What a worker would have to tell a central scheduler of its cache: ordered, numbered changes.

The paper's Delta-Tree is two sets, inserted and evicted, in which insert, evict, insert of one node are
one thing; so here it is a list, in order, and deltas are numbered (theory, A8.1). A change names a
prefix by a hash of 8 bytes and its length by 4; what is inserted is followed by its tokens.
"""

from typing import NamedTuple

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Unit

HEADER_BYTES = 24  # worker, number of the delta, free memory
CHANGE_BYTES = 12
TOKEN_BYTES = 4
HASH_BYTES = 16  # of a block


class CacheChange(NamedTuple):
    """`tokens[:length]` is cached now (`grown`), or is all that is left of `tokens`."""

    grown: bool
    tokens: Runs
    length: int


class Delta(NamedTuple):
    """What happened since the one before; `size_bytes` on the wire."""

    number: int
    changes: tuple[CacheChange, ...]
    size_bytes: int


class DeltaFeed:
    """Listens to one worker's cache and hands out what happened, once, in order.

    Of a block cache only the sizes are counted: a change there is one hash.
    """

    def __init__(self, cache: RadixTree | BlockCache) -> None:
        self._number = 0
        self._changes: list[CacheChange] = []
        self._bytes = 0
        self._cache = cache
        self._size = 0
        cache.listen(self)

    def take(self) -> Delta:
        """The next delta, which may be empty. O(1)."""
        self._number += 1
        delta = Delta(self._number, tuple(self._changes), HEADER_BYTES + self._bytes)
        self._changes.clear()
        self._bytes = 0
        return delta

    def grew(self, tokens: Runs, length: int) -> None:
        """See `TreeListener`."""
        assert isinstance(self._cache, RadixTree)
        self._changes.append(CacheChange(True, tokens, length))
        self._bytes += CHANGE_BYTES + TOKEN_BYTES * (self._cache.size - self._size)
        self._size = self._cache.size

    def shrank(self, tokens: Runs, length: int) -> None:
        """See `TreeListener`."""
        assert isinstance(self._cache, RadixTree)
        self._changes.append(CacheChange(False, tokens, length))
        self._bytes += CHANGE_BYTES
        self._size = self._cache.size

    def inserted(self, block_hash: Unit) -> None:
        """See `BlockListener`."""
        self._bytes += HASH_BYTES

    def evicted(self, block_hash: Unit) -> None:
        """See `BlockListener`."""
        self._bytes += HASH_BYTES

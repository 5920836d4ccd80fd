"""Cached prefixes as a set of chained block hashes, for engines that cache by blocks.

A hash identifies its block *and* everything before it, so equal hashes mean equal prefixes. The engine
decides which hashes are in the set; `BlockCache` mirrors them and notifies its listeners.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from fairhit.core.request import Unit


class BlockListener(Protocol):
    """Receives the changes of a block cache, after each happened."""

    def inserted(self, block_hash: Unit) -> None:
        """Receive an insertion: the block is cached now and was not before."""
        ...

    def evicted(self, block_hash: Unit) -> None:
        """Receive an eviction: the last block with this hash was evicted."""
        ...


class BlockCache:
    """The block hashes an engine has cached; `block_size` is in tokens."""

    def __init__(self, *, block_size: int) -> None:
        assert block_size >= 1, block_size
        self.block_size = block_size
        # An engine may hold the same content in several blocks; it is evicted with the last of them.
        self._copies: dict[Unit, int] = {}
        self._listeners: list[BlockListener] = []
        self._is_wanted: Callable[[Unit], bool] | None = None

    def listen(self, listener: BlockListener) -> None:
        """Call `listener` for every change from now on."""
        self._listeners.append(listener)

    def unlisten(self, listener: BlockListener) -> None:
        """Notify `listener` no longer. O(listeners)."""
        self._listeners.remove(listener)

    def keep(self, is_wanted: Callable[[Unit], bool]) -> None:
        """Ask `is_wanted`, from now on, whether a waiting prompt wants a block."""
        self._is_wanted = is_wanted

    def is_wanted(self, block_hash: Unit) -> bool:
        """Return whether a waiting prompt wants the block, so that others should be evicted first. O(1)."""
        return self._is_wanted is not None and self._is_wanted(block_hash)

    def __contains__(self, block_hash: Unit) -> bool:
        return block_hash in self._copies

    def __len__(self) -> int:
        """Number of distinct cached blocks."""
        return len(self._copies)

    def insert(self, block_hash: Unit) -> None:
        """Add a block with this content. O(1) and the cost of the listeners."""
        copies = self._copies.get(block_hash, 0)
        self._copies[block_hash] = copies + 1
        if not copies:
            for listener in self._listeners:
                listener.inserted(block_hash)

    def learn(self, block_hashes: Sequence[Unit]) -> None:
        """Add a block for each content that has none. O(blocks) and the cost of the listeners."""
        copies = self._copies
        for block_hash in block_hashes:
            if block_hash not in copies:
                self.insert(block_hash)

    def evict(self, block_hash: Unit) -> None:
        """Remove a block with this content. O(1) and the cost of the listeners."""
        copies = self._copies.pop(block_hash)
        if copies > 1:
            self._copies[block_hash] = copies - 1
            return
        for listener in self._listeners:
            listener.evicted(block_hash)

    def clear(self) -> None:
        """Evict all blocks. O(blocks)."""
        while self._copies:
            block_hash, _ = self._copies.popitem()
            for listener in self._listeners:
                listener.evicted(block_hash)

    def match_len(self, block_hashes: Sequence[Unit], /) -> int:
        """Return how many leading blocks are cached. Pure. O(match)."""
        for length, block_hash in enumerate(block_hashes):
            if block_hash not in self._copies:
                return length
        return len(block_hashes)

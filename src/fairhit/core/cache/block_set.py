"""Cached prefixes as a set of chained block hashes: what engines that cache by blocks have.

A hash stands for its block *and* everything before it, so equal hashes mean equal prefixes. The
engine decides what is in the set; this class mirrors it and tells its listeners.
"""

from collections.abc import Sequence
from typing import Protocol

from fairhit.core.request import Unit


class BlockListener(Protocol):
    """Hears of changes after they happened."""

    def inserted(self, block_hash: Unit) -> None:
        """The block is cached now and was not before."""
        ...

    def evicted(self, block_hash: Unit) -> None:
        """The last block with this hash is gone."""
        ...


class BlockCache:
    """The block hashes an engine has cached; `block_size` is in tokens."""

    def __init__(self, *, block_size: int) -> None:
        assert block_size >= 1, block_size
        self.block_size = block_size
        # An engine may hold the same content in several blocks: gone only when the last one goes.
        self._copies: dict[Unit, int] = {}
        self._listeners: list[BlockListener] = []

    def listen(self, listener: BlockListener) -> None:
        """From now on `listener` hears of every change."""
        self._listeners.append(listener)

    def unlisten(self) -> None:
        """From now on nobody hears of anything: another policy is about to take the cache over."""
        self._listeners.clear()

    def __contains__(self, block_hash: Unit) -> bool:
        return block_hash in self._copies

    def __len__(self) -> int:
        """Distinct cached blocks."""
        return len(self._copies)

    def insert(self, block_hash: Unit) -> None:
        """One more block has this content. O(1) and what the listeners cost."""
        copies = self._copies.get(block_hash, 0)
        self._copies[block_hash] = copies + 1
        if not copies:
            for listener in self._listeners:
                listener.inserted(block_hash)

    def learn(self, block_hashes: Sequence[Unit]) -> None:
        """These have a block each, at least. O(blocks) and what the listeners cost for new ones."""
        copies = self._copies
        for block_hash in block_hashes:
            if block_hash not in copies:
                self.insert(block_hash)

    def evict(self, block_hash: Unit) -> None:
        """One block less has this content. O(1) and what the listeners cost."""
        copies = self._copies.pop(block_hash)
        if copies > 1:
            self._copies[block_hash] = copies - 1
            return
        for listener in self._listeners:
            listener.evicted(block_hash)

    def clear(self) -> None:
        """Everything is gone. O(blocks)."""
        while self._copies:
            block_hash, _ = self._copies.popitem()
            for listener in self._listeners:
                listener.evicted(block_hash)

    def match_len(self, block_hashes: Sequence[Unit], /) -> int:
        """How many leading blocks are cached. Pure. O(match)."""
        for length, block_hash in enumerate(block_hashes):
            if block_hash not in self._copies:
                return length
        return len(block_hashes)

"""vLLM's queue of free blocks, which takes those that a waiting prompt wants after all others.

Integration points (vLLM 0.15 to 0.33): `BlockPool.free_block_queue`, a `FreeKVCacheBlockQueue` with
`popleft`, `popleft_n`, `remove`, `append`, `append_n`, a list linked between `fake_free_list_head` and
`fake_free_list_tail`; `KVCacheBlock.block_id`, `block_hash`, the key in the map of cached blocks.

Kept blocks are the last part of vLLM's own list, in its order: what reads the list sees every free block.
"""

from collections.abc import Callable
from typing import Any

from vllm.v1.core.kv_cache_utils import FreeKVCacheBlockQueue

from fairhit.core.request import Unit


class KeepingBlockQueue(FreeKVCacheBlockQueue):  # type: ignore[misc]  # vLLM is untyped here
    """The engine's own queue, but a block that is wanted when it is at the head is kept to the last."""

    def __init__(self, stock: Any, is_wanted: Callable[[Unit], bool]) -> None:
        self.fake_free_list_tail: Any = None
        self.__dict__.update(vars(stock))  # the list is in the blocks, so that it is ours now
        self._is_wanted = is_wanted
        self._kept: dict[int, Any] = {}  # by id, in the order of the list

    def popleft(self) -> Any:
        """Take the head of the queue, but a block that is not wanted before one that is."""
        head = self.fake_free_list_head.next_free_block
        if self.num_free_blocks and head.block_hash is not None:
            head = self._oldest_cached()
            self.remove(head)
            return head
        if self._kept and head is not None:  # kept, and without content since a reset
            self._kept.pop(head.block_id, None)
        return super().popleft()

    def popleft_n(self, n: int) -> list[Any]:
        """Take `n` blocks, each as `popleft` does. O(n) amortised, as a block is kept once."""
        assert self.num_free_blocks >= n, (self.num_free_blocks, n)
        return [self.popleft() for _ in range(n)]

    def remove(self, block: Any) -> None:
        """Take out a free block, which a prompt is found to begin with."""
        self._kept.pop(block.block_id, None)
        super().remove(block)

    def append(self, block: Any) -> None:
        """Add a block behind all others that are not kept."""
        self.append_n([block])

    def append_n(self, blocks: list[Any]) -> None:
        """Add blocks behind all others that are not kept."""
        tail = self.fake_free_list_tail
        self.fake_free_list_tail = self._first_kept() or tail
        try:
            super().append_n(blocks)
        finally:
            self.fake_free_list_tail = tail

    def _oldest_cached(self) -> Any:
        """Return the block to evict next; those at the head that are wanted are kept from now on."""
        first = self._first_kept()
        if first is not None and not self._wants(first):
            return first
        while True:
            head = self.fake_free_list_head.next_free_block
            if head.block_id in self._kept or not self._wants(head):
                return head
            super().remove(head)
            super().append(head)  # behind the kept ones
            self._kept[head.block_id] = head

    def _first_kept(self) -> Any:
        return next(iter(self._kept.values()), None)

    def _wants(self, block: Any) -> bool:
        return block.block_hash is not None and self._is_wanted(block.block_hash)


def keep_wanted(pool: Any, is_wanted: Callable[[Unit], bool]) -> bool:
    """Let a pool evict what is wanted last; return whether its queue is one that can."""
    stock = getattr(pool, "free_block_queue", None)
    if type(stock) is not FreeKVCacheBlockQueue or not hasattr(stock, "fake_free_list_tail"):
        return False
    pool.free_block_queue = KeepingBlockQueue(stock, is_wanted)
    return True

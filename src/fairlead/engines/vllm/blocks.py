"""vLLM's map of cached blocks, mirrored into our `BlockCache`: matching costs nothing per waiting request.

Integration points: `BlockPool.cached_block_hash_to_block`, a `BlockHashToBlockMap` with `insert`,
`pop` and `get_one_block` (vLLM 0.15 to 0.32). We put a subclass in its place that reports what
appears and what goes. `reset_prefix_cache()` makes a map of its own again; `mirror_blocks` puts
ours back.
"""

from dataclasses import dataclass
from typing import Any

from vllm.v1.core.block_pool import BlockHashToBlockMap
from vllm.v1.core.kv_cache_utils import BlockHashListWithBlockSize, get_block_hash, get_group_id
from vllm.v1.kv_cache_interface import FullAttentionSpec

from fairlead.core.block_cache import BlockCache
from fairlead.core.request import Unit


class MirroredBlockMap(BlockHashToBlockMap):  # type: ignore[misc]  # vLLM is untyped here
    """The engine's own map; it also tells `cache` which hashes of one KV group it holds."""

    def __init__(self, cache: BlockCache, *, group: int) -> None:
        super().__init__()
        self._mirror = cache
        self._group = group

    def insert(self, key: bytes, block: Any) -> None:
        """A block is full. One hash can have several blocks; only the first is news. O(1)."""
        is_news = self.get_one_block(key) is None
        super().insert(key, block)
        if is_news and get_group_id(key) == self._group:
            self._mirror.insert(get_block_hash(key))

    def pop(self, key: bytes, block_id: int) -> Any:
        """A block is evicted; its hash is gone once no block has it. O(1)."""
        block = super().pop(key, block_id)
        is_last = block is not None and self.get_one_block(key) is None
        if is_last and get_group_id(key) == self._group:
            self._mirror.evict(get_block_hash(key))
        return block


def mirror_blocks(pool: Any, cache: BlockCache, *, group: int) -> None:
    """Make `pool` report to `cache`; call again after a reset. Costs nothing where it already does."""
    if not isinstance(pool.cached_block_hash_to_block, MirroredBlockMap):
        # Before the first request and right after a reset there is nothing to copy.
        cache.clear()
        pool.cached_block_hash_to_block = MirroredBlockMap(cache, group=group)


@dataclass(frozen=True, kw_only=True, slots=True)
class KVGroup:
    """The KV group whose cached blocks stand for the whole prefix cache."""

    index: int
    block_size: int  # in tokens
    hash_block_size: int  # what `Request.block_hashes` counts in
    is_cached: bool
    said: str  # how good the stand-in is, for the log

    @classmethod
    def of(cls, scheduler: Any) -> "KVGroup":
        """The first full-attention group: what it does not hold, no group can help with."""
        groups = scheduler.kv_cache_config.kv_cache_groups
        full = [
            i
            for i, group in enumerate(groups)
            if isinstance(group.kv_cache_spec, FullAttentionSpec)
        ]
        index = full[0] if full else 0
        is_cached = bool(groups) and bool(scheduler.cache_config.enable_prefix_caching)
        block_size = scheduler.block_size
        if len(groups) > 1:
            block_size = groups[index].kv_cache_spec.block_size
        if not is_cached:
            said = "prefix caching is off, so every prompt counts in full"
        elif len(groups) == 1 and full:
            said = "matching is exact"
        else:
            said = f"hybrid KV cache: the order goes by group {index} alone; charges are exact"
        return cls(
            index=index,
            block_size=block_size,
            hash_block_size=getattr(scheduler, "hash_block_size", block_size),
            is_cached=is_cached,
            said=said,
        )

    def prompt_units(self, request: Any) -> tuple[Unit, ...]:
        """The hashes of the full blocks a hit may cover: the last prompt token is always computed."""
        # Some requests need every position computed: for its log-probability, or for pooling.
        if not self.is_cached or request.skip_reading_prefix_cache:
            return ()
        hashes = request.block_hashes
        if self.block_size != self.hash_block_size:
            hashes = BlockHashListWithBlockSize(hashes, self.hash_block_size, self.block_size)
        return tuple(hashes[: (request.num_prompt_tokens - 1) // self.block_size])

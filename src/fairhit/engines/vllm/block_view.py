"""vLLM's map of cached blocks, followed block by block: matching costs nothing per waiting request.

Integration points (vLLM 0.15 to 0.33): `BlockPool.cached_block_hash_to_block`, a `BlockHashToBlockMap`
with `insert` and `pop` over a dictionary `_cache`; `make_block_hash_with_group_id`, which forms its
keys; `Request.block_hashes`. We put a subclass in the map's place that reports what appears and what
goes. `reset_prefix_cache()` makes a map of its own again; `VllmBlockView.hook` puts ours back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vllm.v1.core.block_pool import BlockHashToBlockMap
from vllm.v1.core.kv_cache_utils import BlockHashListWithBlockSize, make_block_hash_with_group_id
from vllm.v1.kv_cache_interface import FullAttentionSpec

from fairhit.core.cache.block_set import BlockListener
from fairhit.core.request import Unit


@dataclass(frozen=True, kw_only=True, slots=True)
class KVGroup:
    """The KV group whose cached blocks stand for the whole prefix cache.

    Prompts are looked up by the map's own keys, a block's hash and its group: so the map can report
    keys as they are, and those of other groups concern nobody.
    """

    index: int
    suffix: bytes  # what a block's hash is followed by in the map's keys
    block_size: int  # in tokens
    hash_block_size: int  # what `Request.block_hashes` counts in
    is_cached: bool
    is_alone: bool  # the model has no other group, and this one attends to everything
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
            suffix=make_block_hash_with_group_id(b"", index),
            block_size=block_size,
            hash_block_size=getattr(scheduler, "hash_block_size", block_size),
            is_cached=is_cached,
            is_alone=len(groups) == 1 and bool(full),
            said=said,
        )

    def prompt_units(self, request: Any) -> tuple[Unit, ...]:
        """The keys of the full blocks a hit may cover: the last prompt token is always computed."""
        # Some requests need every position computed: for its log-probability, or for pooling.
        if not self.is_cached or request.skip_reading_prefix_cache:
            return ()
        hashes = request.block_hashes
        if self.block_size != self.hash_block_size:
            hashes = BlockHashListWithBlockSize(hashes, self.hash_block_size, self.block_size)
        end, suffix = (request.num_prompt_tokens - 1) // self.block_size, self.suffix
        return tuple([block_hash + suffix for block_hash in hashes[:end]])


class ReportingBlockMap(BlockHashToBlockMap):  # type: ignore[misc]  # vLLM is untyped here
    """The engine's own map; it also writes down which keys appear and go, of whatever KV group.

    Called for every block that fills or is evicted, about ten times per admission: no step is spare.
    """

    def __init__(self, news: list[tuple[bytes, bool]]) -> None:
        super().__init__()
        self._news = news

    def insert(self, key: bytes, block: Any) -> None:
        """A block is full. One key can have several blocks; only the first is news. O(1)."""
        if key not in self._cache:
            self._news.append((key, True))
        _stock_insert(self, key, block)

    def pop(self, key: bytes, block_id: int) -> Any:
        """A block is evicted; its key is gone once no block has it. O(1)."""
        block = _stock_pop(self, key, block_id)
        if block is not None and key not in self._cache:
            self._news.append((key, False))
        return block


_stock_insert, _stock_pop = BlockHashToBlockMap.insert, BlockHashToBlockMap.pop


class VllmBlockView:
    """The reading half of a `BlockCache` over the engine's own map, without a copy of it.

    Between looks the news wait: most are of the request being admitted, which no longer waits by
    the time anybody asks, so that its own blocks move nothing. A listener may find a key in the set
    before it hears of it; it hears of everything in order, and `catch_up` comes before any look.
    """

    def __init__(self, pool: Any, group: KVGroup) -> None:
        self.block_size = group.block_size
        self._pool, self._group = pool, group
        self._news: list[tuple[bytes, bool]] = []
        self._keys: dict[bytes, Any] = {}  # of the engine's map
        self._listeners: list[BlockListener] = []

    def listen(self, listener: BlockListener) -> None:
        """From now on `listener` hears of every change; for the first one the map is replaced."""
        self._listeners.append(listener)
        self.hook()

    def prompt_units(self, request: Any) -> tuple[Unit, ...]:
        """Return the block keys of a request's prompt; none under a policy that ignores the cache."""
        return self._group.prompt_units(request) if self._listeners else ()

    def hook(self) -> None:
        """Make the pool report here; again after a reset, when it has a new and empty map. O(blocks)."""
        stock = self._pool.cached_block_hash_to_block
        if not self._listeners or isinstance(stock, ReportingBlockMap):
            return
        self.catch_up()
        gone, ours = self._keys, ReportingBlockMap(self._news)
        self._pool.cached_block_hash_to_block, self._keys = ours, ours._cache
        for key in gone:
            for listener in self._listeners:
                listener.evicted(key)

    def catch_up(self) -> None:
        """Tell the listeners what happened since the last look. O(news)."""
        if not self._news:
            return
        for listener in self._listeners:
            inserted, evicted = listener.inserted, listener.evicted
            for key, is_cached in self._news:
                if is_cached:
                    inserted(key)
                else:
                    evicted(key)
        self._news.clear()

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        """Distinct cached blocks, of every KV group."""
        return len(self._keys)

    def match_len(self, keys: Sequence[Unit], /) -> int:
        """How many leading blocks are cached. Pure. O(match)."""
        for length, key in enumerate(keys):
            if key not in self._keys:
                return length
        return len(keys)

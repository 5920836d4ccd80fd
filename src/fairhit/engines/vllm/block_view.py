"""A view of vLLM's map of cached blocks that reports each change, so that no prompt is matched twice.

Integration points (vLLM 0.15 to 0.33): `BlockPool.cached_block_hash_to_block`, a `BlockHashToBlockMap`
with `insert` and `pop` over a dictionary `_cache`; `make_block_hash_with_group_id`, which forms its
keys; `Request.block_hashes`. A subclass that records changes replaces the map. `reset_prefix_cache()` makes
a stock map again; `VllmBlockView.hook` replaces it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vllm.v1.core.block_pool import BlockHashToBlockMap
from vllm.v1.core.kv_cache_utils import BlockHashListWithBlockSize, make_block_hash_with_group_id
from vllm.v1.kv_cache_interface import FullAttentionSpec

from fairhit.core.cache.block_set import BlockListener
from fairhit.core.request import Unit
from fairhit.engines.vllm.free_blocks import keep_wanted


@dataclass(frozen=True, kw_only=True, slots=True)
class KVGroup:
    """The KV group whose cached blocks are taken for the whole prefix cache.

    Prompts are matched by the map's own keys, a block's hash and its group: so the map can report its keys
    unchanged, and keys of other groups match no prompt.
    """

    index: int
    suffix: bytes  # follows a block's hash in the map's keys
    block_size: int  # in tokens
    hash_block_size: int  # tokens per entry of `Request.block_hashes`
    is_cached: bool
    is_alone: bool  # the model has no other group, and this one attends to everything
    accuracy: str  # of matches, for the log

    @classmethod
    def of(cls, scheduler: Any) -> "KVGroup":
        """Return the first full-attention group: a block missing there is a miss for the whole model."""
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
            accuracy = "prefix caching is off, so every prompt is charged in full"
        elif len(groups) == 1 and full:
            accuracy = "matching is exact"
        else:
            accuracy = (
                f"hybrid KV cache: requests are ordered by group {index} alone; charges are exact"
            )
        return cls(
            index=index,
            suffix=make_block_hash_with_group_id(b"", index),
            block_size=block_size,
            hash_block_size=getattr(scheduler, "hash_block_size", block_size),
            is_cached=is_cached,
            is_alone=len(groups) == 1 and bool(full),
            accuracy=accuracy,
        )

    def prompt_units(self, request: Any) -> tuple[Unit, ...]:
        """Return the keys of the full blocks that a hit may cover; it never covers the last token."""
        # Some requests need every position computed: for its log-probability, or for pooling.
        if not self.is_cached or request.skip_reading_prefix_cache:
            return ()
        hashes = request.block_hashes
        if self.block_size != self.hash_block_size:
            hashes = BlockHashListWithBlockSize(hashes, self.hash_block_size, self.block_size)
        end, suffix = (request.num_prompt_tokens - 1) // self.block_size, self.suffix
        return tuple([block_hash + suffix for block_hash in hashes[:end]])


class ReportingBlockMap(BlockHashToBlockMap):  # type: ignore[misc]  # vLLM is untyped here
    """The engine's own map; also records which keys are inserted and evicted, of all KV groups.

    Hot: called for every block that is filled or evicted, about ten times per admission.
    """

    def __init__(self, events: list[tuple[bytes, bool]]) -> None:
        super().__init__()
        self._events = events

    def insert(self, key: bytes, block: Any) -> None:
        """Insert a full block; record its key unless another block has it. O(1)."""
        if key not in self._cache:
            self._events.append((key, True))
        _stock_insert(self, key, block)

    def pop(self, key: bytes, block_id: int) -> Any:
        """Remove an evicted block; record its key once no block has it. O(1)."""
        block = _stock_pop(self, key, block_id)
        if block is not None and key not in self._cache:
            self._events.append((key, False))
        return block


_stock_insert, _stock_pop = BlockHashToBlockMap.insert, BlockHashToBlockMap.pop


class VllmBlockView:
    """The read-only half of a `BlockCache`, over the engine's own map.

    Changes stay pending until `notify_listeners`, which is called before each choice: most of them are blocks
    of the request being admitted, which does not wait any more by then, so that they move no waiting request.
    A listener may find a key in the set before its notification; notifications come in order.
    """

    def __init__(self, pool: Any, group: KVGroup) -> None:
        self.block_size = group.block_size
        self._pool, self._group = pool, group
        self._events: list[tuple[bytes, bool]] = []  # pending: key, is cached
        self._keys: dict[bytes, Any] = {}  # the engine's map
        self._listeners: list[BlockListener] = []
        self.cannot_keep = False  # asked to keep what is wanted, of a pool that cannot

    def listen(self, listener: BlockListener) -> None:
        """Notify `listener` of every change from now on; the first listener makes `hook` replace the map."""
        self._listeners.append(listener)
        self.hook()

    def keep(self, is_wanted: Callable[[Unit], bool]) -> None:
        """Evict blocks of which `is_wanted` is true after all others, from now on."""
        self.cannot_keep = not keep_wanted(self._pool, is_wanted)

    def prompt_units(self, request: Any) -> tuple[Unit, ...]:
        """Return the block keys of a request's prompt; none under a policy that ignores the cache."""
        return self._group.prompt_units(request) if self._listeners else ()

    def hook(self) -> None:
        """Replace the pool's map if there is a listener, and again after each reset. O(blocks)."""
        stock = self._pool.cached_block_hash_to_block
        if not self._listeners or isinstance(stock, ReportingBlockMap):
            return
        self.notify_listeners()
        evicted, ours = self._keys, ReportingBlockMap(self._events)
        self._pool.cached_block_hash_to_block, self._keys = ours, ours._cache
        for key in evicted:
            for listener in self._listeners:
                listener.evicted(key)

    def notify_listeners(self) -> None:
        """Notify the listeners of all pending changes, in order. O(changes)."""
        if not self._events:
            return
        for listener in self._listeners:
            inserted, evicted = listener.inserted, listener.evicted
            for key, is_cached in self._events:
                if is_cached:
                    inserted(key)
                else:
                    evicted(key)
        self._events.clear()

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        """Return the number of distinct cached blocks, of all KV groups."""
        return len(self._keys)

    def match_len(self, keys: Sequence[Unit], /) -> int:
        """Return how many leading blocks are cached. Pure. O(match)."""
        for length, key in enumerate(keys):
            if key not in self._keys:
                return length
        return len(keys)

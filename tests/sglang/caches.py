"""SGLang's own caches without a model: real trees over an allocator that has numbers and no memory."""

from array import array
from collections.abc import Sequence

import torch
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from fairhit.engines.sglang.radix.rust_nodes import PYTHON

TOKENS = 100_000


class RealCache:
    """A prefix cache of SGLang, driven as its scheduler does."""

    def __init__(
        self,
        kind: str,
        *,
        page_len: int = 1,
        core: str = PYTHON,
        tokens: int = TOKENS,
        is_eagle: bool = False,
    ) -> None:
        self.page_len = page_len
        allocator = _allocator(page_len, tokens)
        params = CacheInitParams(
            disable=False,
            req_to_token_pool=ReqToTokenPool(8, 1024, "cpu", enable_memory_saver=False),
            token_to_kv_pool_allocator=allocator,
            page_size=page_len,
            tree_components=(ComponentType.FULL,),
            tree_core_backend=core,
            is_eagle=is_eagle,
        )
        self.tree = {"radix": RadixCache, "unified": UnifiedRadixCache}[kind](params)
        self._allocator = allocator

    def insert(
        self, tokens: Sequence[int], extra_key: str | None = None, salt: str | None = None
    ) -> None:
        """Insert what a finished request leaves in the cache."""
        key = RadixKey(array("q", tokens), extra_key, cache_salt=salt)
        slots = self._allocator.alloc(-(-len(tokens) // self.page_len) * self.page_len)
        self.tree.insert(InsertParams(key=key, value=slots[: len(tokens)]))

    def evict(self, tokens: int) -> None:
        """As much as memory is short of."""
        self.tree.evict(EvictParams(num_tokens=tokens))

    def match_len(self, tokens: list[int], extra_key: str | None = None) -> int:
        """SGLang's own answer, in tokens; it splits a node where the match ends within one."""
        key = RadixKey(array("q", tokens), extra_key)
        result = self.tree.match_prefix(MatchPrefixParams(key=key))
        if hasattr(result, "device_prefix_len"):
            return int(result.device_prefix_len)
        return len(result.device_indices)  # until 0.5.21


def _allocator(page_len: int, tokens: int) -> TokenToKVPoolAllocator:
    if page_len == 1:
        return TokenToKVPoolAllocator(tokens, torch.float32, "cpu", None, need_sort=False)
    return PagedTokenToKVPoolAllocator(
        tokens, page_len, torch.float32, "cpu", None, need_sort=False
    )

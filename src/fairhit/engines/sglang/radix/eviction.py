"""Eviction in SGLang's radix caches: leaves that a waiting prompt wants are evicted after the others.

Integration points (SGLang 0.5.23):

    UnifiedRadixCache   its `tree_core`, in Rust or in Python, offers leaves one by one:
                        `evict_device_start`, `evict_device_next_node`, `evict_device_end`
    RadixCache          `evict(params)` orders `evictable_leaves` by `eviction_strategy.get_priority(node)`

SGLang evicts a leaf as a whole. A leaf counts as wanted if a waiting prompt begins with at least half of it.
Among the wanted and among the others, SGLang's own order stays. An eviction keeps MOST_KEPT leaves at most,
and examines no leaf after them: its additional work is bounded by these and the leaves it evicts.
"""

import heapq
from collections.abc import Callable
from typing import Any

from fairhit.core.cache.radix_tree import MOST_KEPT

# True if a waiting prompt wants a leaf, which is given as SGLang's node or as its number.
IsWanted = Callable[[Any], bool]


def evict_wanted_last(core: Any, is_wanted: IsWanted) -> bool:
    """Make a tree of SGLang evict what `is_wanted` says after all else; return whether it can."""
    for keeper in (KeptInWalk, KeptByPriority):
        if all(hasattr(core, name) for name in keeper.USED):
            keeper(core, is_wanted)
            return True
    return False


class KeptInWalk:
    """Skips the wanted leaves that an eviction's walk offers; a second walk offers them to be evicted."""

    USED = ("evict_device_start", "evict_device_next_node", "evict_device_end")

    def __init__(self, core: Any, is_wanted: IsWanted) -> None:
        self._is_wanted = is_wanted
        self._start, self._next, self._end = (getattr(core, name) for name in self.USED)
        self._size = 0  # tokens that the walk under way is asked for
        self._kept = 0
        self._is_first = False  # the walk under way may skip leaves
        core.evict_device_start, core.evict_device_next_node = self._on_start, self._on_next

    def _on_start(self, component: Any, size: int) -> None:
        self._size, self._kept, self._is_first = size, 0, True
        self._start(component, size)

    def _on_next(self, component: Any, tracker: Any) -> Any:
        """Return the next leaf to evict; sliding windows and Mamba states are none of ours."""
        step = self._next(component, tracker)
        if component != 0 or not self._is_first:  # ComponentType.FULL
            return step
        while step.node_id is not None and self._kept < MOST_KEPT:
            if not self._is_wanted(step.node_id):
                return step
            self._kept += 1
            step = self._next(component, tracker)
        if step.node_id is not None or step.made_progress or not self._kept:
            return step
        self._is_first = False
        if tracker.get(component, 0) >= self._size:
            return step
        self._end(component)
        self._start(component, self._size)
        return self._next(component, tracker)


class KeptByPriority:
    """Gives the wanted leaves of an eviction a priority of their own, before SGLang's."""

    USED = ("evict", "evictable_leaves", "eviction_strategy")

    def __init__(self, cache: Any, is_wanted: IsWanted) -> None:
        self._cache, self._is_wanted = cache, is_wanted
        self._stock, self._evict = cache.eviction_strategy, cache.evict
        self._examined: dict[Any, bool] | None = None  # whether wanted; None: no eviction
        self._kept = 0
        cache.evict, cache.eviction_strategy = self._around_evict, self

    def get_priority(self, node: Any) -> tuple[bool, Any]:
        """Return a node's rank in SGLang's heap: least first. A parent becomes a leaf in mid-eviction."""
        examined = self._examined
        if examined is None:
            return False, self._stock.get_priority(node)
        if node not in examined:
            self._examine(node, examined)
        return examined[node], self._stock.get_priority(node)

    def _examine(self, node: Any, examined: dict[Any, bool]) -> bool:
        examined[node] = wanted = self._kept < MOST_KEPT and self._is_wanted(node)
        self._kept += wanted
        return wanted

    def _around_evict(self, params: Any) -> Any:
        if getattr(self._cache, "disable", False):
            return self._evict(params)
        leaves = list(self._cache.evictable_leaves)
        self._examined, self._kept = {}, 0
        try:
            self._examine_first(leaves, params.num_tokens)
            return self._evict(params)
        finally:
            self._examined = None

    def _examine_first(self, leaves: list[Any], size: int) -> None:
        """Examine leaves in SGLang's order until `size` unwanted tokens are found; none wants the rest."""
        examined: dict[Any, bool] = {}
        heap = [(self._stock.get_priority(leaf), at) for at, leaf in enumerate(leaves)]
        heapq.heapify(heap)
        while heap and size > 0 and self._kept < MOST_KEPT:
            leaf = leaves[heapq.heappop(heap)[1]]
            if not self._examine(leaf, examined):
                size -= len(leaf.key)
        self._examined = dict.fromkeys(leaves, False) | examined

"""From a cache's own events to the waiting index: how much of each trie edge is cached now.

A token tree reports whole paths, so the trie is walked along them. A block set reports single hashes,
so every node is registered under the cached hashes of its edge and under the first one that is missing.
"""

from collections.abc import Callable
from typing import TypeAlias

from fairhit.core.cache.cache_view import (
    Cache,
    HashCache,
    KeepsBlocks,
    KeepsPaths,
    MeasuresPrefixes,
    PathCache,
)
from fairhit.core.cache.token_runs import Runs
from fairhit.core.cache.trie import descend
from fairhit.core.request import ClientId, Unit
from fairhit.core.waiting.fleet import FleetCaches, FleetIndex
from fairhit.core.waiting.heaps import no_standing
from fairhit.core.waiting.index import WaitingIndex
from fairhit.core.waiting.trie import TrieNode, WaitingTrie

# What a policy orders its queue by: the cache of its engine, or those of a fleet's engines.
AnyCache: TypeAlias = Cache | FleetCaches

# Changes collected before they are applied without a query: few, since each keeps a prompt alive.
_MOST_CHANGES = 256


def prefix_index(
    cache: AnyCache,
    *,
    near: int = 1,
    standing: Callable[[ClientId], int] = no_standing,
    keeps_wanted: bool = False,
) -> WaitingIndex | FleetIndex:
    """Return the index of a queue: `waiting_index` for one engine, that of their fleet for several."""
    if isinstance(cache, FleetCaches):
        return cache.make_index(near=near, standing=standing, keeps_wanted=keeps_wanted)
    return waiting_index(cache, near=near, standing=standing, keeps_wanted=keeps_wanted)


def waiting_index(
    cache: Cache,
    *,
    near: int = 1,
    standing: Callable[[ClientId], int] = no_standing,
    keeps_wanted: bool = False,
) -> WaitingIndex:
    """Return a new waiting index that follows `cache` from now on.

    `near` and `standing` as of `WaitingIndex`. With `keeps_wanted` a cache that can do so evicts what
    the waiting prompts want last.
    """
    index = WaitingIndex(
        block_size=cache.block_size,
        near=near,
        standing=standing,
        prefix_len=cache.prefix_len if isinstance(cache, MeasuresPrefixes) else None,
    )
    if isinstance(cache, PathCache):
        paths = PathWatch(cache, index.trie)
        index.trie.attach(paths)
        cache.listen(paths)
        if keeps_wanted and isinstance(cache, KeepsPaths):
            cache.keep(index.wanted_len)
    else:
        blocks = BlockWatch(cache, index.trie)
        index.trie.attach(blocks)
        cache.listen(blocks)
        if keeps_wanted and isinstance(cache, KeepsBlocks):

            def is_wanted(block_hash: Unit) -> bool:
                index.insert_single()
                return blocks.is_wanted(block_hash)

            cache.keep(is_wanted)
    return index


class PathWatch:
    """Watches a token tree: walks the waiting trie along the path that changed. O(path).

    Changes are collected and applied before the next query: most concern a request that is being
    admitted, and that no longer waits by then.
    """

    def __init__(self, tree: PathCache, trie: WaitingTrie) -> None:
        self._tree = tree
        self._trie = trie
        self._changes: list[tuple[bool, Runs, int]] = []  # grew or shrank, oldest first

    def leading(self, key: Runs, start: int, end: int) -> int:
        """Return how many units of key[start:end] are cached from `start` on. Pure."""
        return max(0, min(self._tree.match(key)[1], end) - start)

    def watch(self, node: TrieNode) -> None:
        """Register nothing: a walk finds the node by its key."""

    def unwatch(self, node: TrieNode) -> None:
        """Unregister nothing."""

    def grew(self, tokens: Runs, length: int) -> None:
        """Note that all of `tokens[:length]` is cached now. O(1) now, O(path) before the next query."""
        if self._trie.root.children:
            self._changes.append((True, tokens, length))
            if len(self._changes) > _MOST_CHANGES:
                self.catch_up()

    def shrank(self, tokens: Runs, length: int) -> None:
        """Note that only `tokens[:length]` is still cached. O(1) now, O(path) before the next query."""
        if self._trie.root.children:
            self._changes.append((False, tokens, length))
            if len(self._changes) > _MOST_CHANGES:
                self.catch_up()

    def catch_up(self) -> None:
        """Apply the changes since the last query."""
        changes = self._changes
        if changes:
            if self._trie.root.children:
                for grown, tokens, length in changes:
                    (self._raise if grown else self._lower)(tokens, length)
            changes.clear()

    def _raise(self, tokens: Runs, length: int) -> None:
        node, at = descend(self._trie.root, tokens, length)
        while node.parent is not None and at - node.start > node.cached:  # above a full one all are
            parent = node.parent
            self._trie.set_cached(node, at - node.start)
            node, at = parent, parent.end

    def _lower(self, tokens: Runs, length: int) -> None:
        node, at = descend(self._trie.root, tokens, len(tokens))
        while at > length:
            assert node.parent is not None
            keep = max(0, length - node.start)
            if node.cached > keep:
                self._trie.set_cached(node, keep)
            node = node.parent
            at = node.end


class BlockWatch:
    """Watches a block set: one dictionary look-up for an event that concerns no waiting prompt.

    Two prompts that differ may have the same hash behind the difference: engines' hashes exclude that,
    the gateway's CRCs do not. The later node is then not notified, and its depth may be out of date.
    """

    def __init__(self, blocks: HashCache, trie: WaitingTrie) -> None:
        self._blocks = blocks
        self._trie = trie
        self._missing: dict[
            Unit, TrieNode
        ] = {}  # the first hash of a node's edge that is not cached
        self._cached: dict[Unit, TrieNode] = {}  # those before it

    def leading(self, key: Runs, start: int, end: int) -> int:
        """Return how many units of key[start:end] are cached from `start` on. Pure."""
        return self._blocks.match_len(key.units()[start:end])

    def catch_up(self) -> None:
        """Apply nothing: a change is applied when it happens."""

    def watch(self, node: TrieNode) -> None:
        """Register the node's hashes. O(cached)."""
        units, depth = node.key.units(), node.start + node.cached
        for unit in units[node.start : depth]:
            self._cached.setdefault(unit, node)
        if depth < node.end:
            self._missing.setdefault(units[depth], node)

    def unwatch(self, node: TrieNode) -> None:
        """Unregister the node's hashes. O(cached)."""
        units, depth = node.key.units(), node.start + node.cached
        for unit in units[node.start : depth]:
            self._drop(self._cached, unit, node)
        if depth < node.end:
            self._drop(self._missing, units[depth], node)

    def is_wanted(self, block_hash: Unit) -> bool:
        """Return whether a waiting prompt has this cached block. O(1)."""
        return block_hash in self._cached

    def inserted(self, block_hash: Unit) -> None:
        """Apply that the block is cached now and was not before. O(blocks that follow)."""
        node = self._missing.pop(block_hash, None)
        if node is None:
            return
        units, at = node.key.units(), node.start + node.cached
        while at < node.end and units[at] in self._blocks:  # blocks may be stored out of order
            self._cached.setdefault(units[at], node)
            at += 1
        if at < node.end:
            self._missing.setdefault(units[at], node)
        self._trie.set_cached(node, at - node.start)

    def evicted(self, block_hash: Unit) -> None:
        """Apply that the last block with this hash was evicted. O(blocks behind it)."""
        node = self._cached.get(block_hash)
        if node is None:
            return
        units, at = node.key.units(), node.start + node.cached
        if at < node.end:
            self._drop(self._missing, units[at], node)
        while block_hash in self._cached:  # engines evict from the tail, so mostly once
            at -= 1
            self._drop(self._cached, units[at], node)
        self._missing.setdefault(block_hash, node)
        self._trie.set_cached(node, at - node.start)

    @staticmethod
    def _drop(registered: dict[Unit, TrieNode], unit: Unit, node: TrieNode) -> None:
        if registered.get(unit) is node:
            del registered[unit]

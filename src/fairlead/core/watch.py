"""From a cache's own events to the waiting index: which node of the waiting trie holds how much now.

A token tree reports whole paths, so the trie is walked along them. A block cache reports single
hashes, so every node is entered under the hashes it holds and the one it wants next.
"""

from collections.abc import Sequence

from fairlead.core.block_cache import BlockCache
from fairlead.core.radix_tree import RadixTree
from fairlead.core.request import Unit
from fairlead.core.runs import common_len
from fairlead.core.waiting import WaitingIndex
from fairlead.core.waiting_trie import Node, WaitingTrie


def waiting_index(cache: RadixTree | BlockCache) -> WaitingIndex:
    """A waiting index that follows `cache` from now on."""
    index = WaitingIndex(block_size=cache.block_size)
    if isinstance(cache, RadixTree):
        paths = PathWatch(cache, index.trie)
        index.trie.attach(paths)
        cache.listen(paths)
    else:
        blocks = BlockWatch(cache, index.trie)
        index.trie.attach(blocks)
        cache.listen(blocks)
    return index


class PathWatch:
    """For a `RadixTree`: walks the waiting trie along the path that changed. O(path)."""

    def __init__(self, tree: RadixTree, trie: WaitingTrie) -> None:
        self._tree = tree
        self._trie = trie

    def leading(self, key: Sequence[Unit], start: int, end: int) -> int:
        """How many units of key[start:end] are cached from `start` on. Pure."""
        return max(0, min(self._tree.match_len(key), end) - start)

    def watch(self, node: Node) -> None:
        """Nothing to remember: the walk finds the node by its key."""

    def unwatch(self, node: Node) -> None:
        """Nothing to forget."""

    def grew(self, tokens: Sequence[Unit], length: int) -> None:
        """All of `tokens[:length]` is cached now."""
        node, at = self._trie.root, 0
        while at < length and (child := node.children.get(tokens[at])):
            at = common_len(tokens, child.key, at, min(length, child.end))
            if at - child.start > child.held:
                self._trie.set_held(child, at - child.start)
            if at < child.end:
                return
            node = child

    def shrank(self, tokens: Sequence[Unit], length: int) -> None:
        """Of `tokens` only `tokens[:length]` is still cached."""
        node, at = self._trie.root, 0
        while at < len(tokens) and (child := node.children.get(tokens[at])):
            at = common_len(tokens, child.key, at, min(len(tokens), child.end))
            keep = max(0, length - child.start)
            if at > length and child.held > keep:
                self._trie.set_held(child, keep)
            if at < child.end:
                return
            node = child


class BlockWatch:
    """For a `BlockCache`: one dictionary look-up for an event that concerns nobody."""

    def __init__(self, blocks: BlockCache, trie: WaitingTrie) -> None:
        self._blocks = blocks
        self._trie = trie
        self._wanted: dict[Unit, Node] = {}  # the first hash of a node's edge that is not cached
        self._held: dict[Unit, Node] = {}  # those before it

    def leading(self, key: Sequence[Unit], start: int, end: int) -> int:
        """How many units of key[start:end] are cached from `start` on. Pure."""
        at = start
        while at < end and key[at] in self._blocks:
            at += 1
        return at - start

    def watch(self, node: Node) -> None:
        """Enter the node. O(held)."""
        for at in range(node.start, node.depth):
            self._held[node.key[at]] = node
        if not node.full:
            self._wanted[node.key[node.depth]] = node

    def unwatch(self, node: Node) -> None:
        """Take the node out. O(held)."""
        for at in range(node.start, node.depth):
            del self._held[node.key[at]]
        if not node.full:
            del self._wanted[node.key[node.depth]]

    def inserted(self, block_hash: Unit) -> None:
        """The block is cached now and was not before."""
        node = self._wanted.pop(block_hash, None)
        if node is None:
            return
        at = node.depth
        while at < node.end and node.key[at] in self._blocks:  # blocks may come out of order
            self._held[node.key[at]] = node
            at += 1
        if at < node.end:
            self._wanted[node.key[at]] = node
        self._trie.set_held(node, at - node.start)

    def evicted(self, block_hash: Unit) -> None:
        """The last block with this hash is gone."""
        node = self._held.get(block_hash)
        if node is None:
            return
        if not node.full:
            del self._wanted[node.key[node.depth]]
        at = node.depth
        while block_hash in self._held:  # engines evict from the tail, so this is mostly one turn
            at -= 1
            del self._held[node.key[at]]
        self._wanted[block_hash] = node
        self._trie.set_held(node, at - node.start)

"""From a cache's own events to the waiting index: which node of the waiting trie holds how much now.

A token tree reports whole paths, so the trie is walked along them. A block cache reports single
hashes, so every node is entered under the hashes it holds and the one it wants next.
"""

from fairhit.core.cache.cache_view import Cache, HashCache, PathCache
from fairhit.core.cache.token_runs import Runs
from fairhit.core.cache.trie import descend
from fairhit.core.request import Unit
from fairhit.core.waiting.index import WaitingIndex
from fairhit.core.waiting.trie import TrieNode, WaitingTrie

# Changes written down before they are followed without a question: few, as each keeps a prompt.
_MOST_CHANGES = 256


def waiting_index(cache: Cache) -> WaitingIndex:
    """A waiting index that follows `cache` from now on."""
    index = WaitingIndex(block_size=cache.block_size)
    if isinstance(cache, PathCache):
        paths = PathWatch(cache, index.trie)
        index.trie.attach(paths)
        cache.listen(paths)
    else:
        blocks = BlockWatch(cache, index.trie)
        index.trie.attach(blocks)
        cache.listen(blocks)
    return index


class PathWatch:
    """For a token tree: walks the waiting trie along the path that changed. O(path).

    A change is written down and followed at the next question: mostly it is about a request that is
    being admitted, which by then waits no more.
    """

    def __init__(self, tree: PathCache, trie: WaitingTrie) -> None:
        self._tree = tree
        self._trie = trie
        self._changes: list[tuple[bool, Runs, int]] = []  # grew or shrank, oldest first

    def leading(self, key: Runs, start: int, end: int) -> int:
        """How many units of key[start:end] are cached from `start` on. Pure."""
        return max(0, min(self._tree.match(key)[1], end) - start)

    def watch(self, node: TrieNode) -> None:
        """Nothing to remember: the walk finds the node by its key."""

    def unwatch(self, node: TrieNode) -> None:
        """Nothing to forget."""

    def grew(self, tokens: Runs, length: int) -> None:
        """All of `tokens[:length]` is cached now. O(1) now, O(path) at the next question."""
        if self._trie.root.children:
            self._changes.append((True, tokens, length))
            if len(self._changes) > _MOST_CHANGES:
                self.catch_up()

    def shrank(self, tokens: Runs, length: int) -> None:
        """Of `tokens` only `tokens[:length]` is still cached. O(1) now, O(path) at the next question."""
        if self._trie.root.children:
            self._changes.append((False, tokens, length))
            if len(self._changes) > _MOST_CHANGES:
                self.catch_up()

    def catch_up(self) -> None:
        """Follow the changes since the last question."""
        changes = self._changes
        if changes:
            if self._trie.root.children:
                for grown, tokens, length in changes:
                    (self._raise if grown else self._lower)(tokens, length)
            changes.clear()

    def _raise(self, tokens: Runs, length: int) -> None:
        node, at = descend(self._trie.root, tokens, length)
        while node.parent is not None and at - node.start > node.held:  # above a full one all are
            parent = node.parent
            self._trie.set_held(node, at - node.start)
            node, at = parent, parent.end

    def _lower(self, tokens: Runs, length: int) -> None:
        node, at = descend(self._trie.root, tokens, len(tokens))
        while at > length:
            assert node.parent is not None
            keep = max(0, length - node.start)
            if node.held > keep:
                self._trie.set_held(node, keep)
            node = node.parent
            at = node.end


class BlockWatch:
    """For a `BlockCache`: one dictionary look-up for an event that concerns nobody.

    Where two prompts that differ before it have one hash, which engines' hashes exclude and the
    gateway's CRCs do not, the later node does not hear of it: its depth may be out of date, no more.
    """

    def __init__(self, blocks: HashCache, trie: WaitingTrie) -> None:
        self._blocks = blocks
        self._trie = trie
        self._wanted: dict[
            Unit, TrieNode
        ] = {}  # the first hash of a node's edge that is not cached
        self._held: dict[Unit, TrieNode] = {}  # those before it

    def leading(self, key: Runs, start: int, end: int) -> int:
        """How many units of key[start:end] are cached from `start` on. Pure."""
        return self._blocks.match_len(key.units()[start:end])

    def catch_up(self) -> None:
        """Nothing to do: a change is followed when it happens."""

    def watch(self, node: TrieNode) -> None:
        """Enter the node. O(held)."""
        units, depth = node.key.units(), node.start + node.held
        for unit in units[node.start : depth]:
            self._held.setdefault(unit, node)
        if depth < node.end:
            self._wanted.setdefault(units[depth], node)

    def unwatch(self, node: TrieNode) -> None:
        """Take the node out. O(held)."""
        units, depth = node.key.units(), node.start + node.held
        for unit in units[node.start : depth]:
            self._drop(self._held, unit, node)
        if depth < node.end:
            self._drop(self._wanted, units[depth], node)

    def inserted(self, block_hash: Unit) -> None:
        """The block is cached now and was not before."""
        node = self._wanted.pop(block_hash, None)
        if node is None:
            return
        units, at = node.key.units(), node.start + node.held
        while at < node.end and units[at] in self._blocks:  # blocks may come out of order
            self._held.setdefault(units[at], node)
            at += 1
        if at < node.end:
            self._wanted.setdefault(units[at], node)
        self._trie.set_held(node, at - node.start)

    def evicted(self, block_hash: Unit) -> None:
        """The last block with this hash is gone."""
        node = self._held.get(block_hash)
        if node is None:
            return
        units, at = node.key.units(), node.start + node.held
        if at < node.end:
            self._drop(self._wanted, units[at], node)
        while block_hash in self._held:  # engines evict from the tail, so this is mostly one turn
            at -= 1
            self._drop(self._held, units[at], node)
        self._wanted.setdefault(block_hash, node)
        self._trie.set_held(node, at - node.start)

    @staticmethod
    def _drop(entered: dict[Unit, TrieNode], unit: Unit, node: TrieNode) -> None:
        if entered.get(unit) is node:
            del entered[unit]

"""Cached prefixes as a radix tree of tokens: match, pin, insert, release, evict.

The tree knows sizes in tokens and recency, nothing of requests or clients. Listeners are called for
every prefix that grows or shrinks, so that waiting requests can move without being matched again.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from fairhit.core.cache.token_runs import Runs
from fairhit.core.cache.trie import (
    LONG_KEY,
    add_leaf,
    checked_nodes,
    descend,
    insert_above,
    remove_leaf,
    shorten_keys,
)
from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import Unit


class TreeListener(Protocol):
    """Receives the changes of a tree, after each happened."""

    def grew(self, tokens: Runs, length: int) -> None:
        """Receive an insertion: all of `tokens[:length]` is cached now."""
        ...

    def shrank(self, tokens: Runs, length: int) -> None:
        """Receive an eviction: of `tokens` only `tokens[:length]` is still cached."""
        ...


# Returns how many units of tokens[:length] some waiting prompt begins with.
WantedLen: TypeAlias = Callable[[Runs, int], int]

# Leaves that one eviction skips because a waiting prompt wants all of them.
MOST_KEPT = 64


class Node:
    """A trie node (see `trie`) whose tokens key[start:end] are cached."""

    __slots__ = ("children", "end", "first", "key", "parent", "pins", "serial", "start", "used")

    def __init__(
        self, parent: "Node | None", first: Unit, key: Runs, end: int, serial: int
    ) -> None:
        self.parent = parent
        self.first = first
        self.key = key
        self.start: int = parent.end if parent else 0
        self.end: int = end
        self.children: dict[Unit, Node] | None = None
        self.pins = 0  # pinned paths that end here, plus children with pins
        self.used = 0  # sequence number of the last use: recency without ties
        self.serial = serial

    @property
    def length(self) -> int:
        """Length of the path in tokens; for a pinned path all of them stay cached until `release`."""
        return self.end


# A pinned prefix is represented by its last node, whose end does not move while it is pinned.
Path: TypeAlias = Node


# The node whose edge the end of a match lies in, and the length of the match.
Match: TypeAlias = tuple[Node, int]

# The node's `used` and `serial`, and the node.
_Leaf: TypeAlias = tuple[int, int, Node]


def _is_evictable(leaf: _Leaf) -> bool:
    """True if an entry of the eviction heap still describes its node."""
    node = leaf[2]
    return not (node.pins or node.children) and node.used == leaf[0] and node.parent is not None


class RadixTree:
    """Cached token prefixes; evicts the tokens at the end of the least recently used leaf first."""

    block_size = 1

    def __init__(self) -> None:
        self._wanted_len: WantedLen | None = None
        self._serial = 0
        self._now_us = 0
        self._root = Node(None, None, Runs(()), 0, 0)
        self._root.pins = 1
        self.size = 0  # cached tokens
        self.pinned = 0  # cached tokens of pinned paths
        self._leaves: LazyHeap[_Leaf] = LazyHeap()  # unpinned
        # The last prompt matched, until the tree changes: the same prompt is often pinned next.
        self._matched: Runs | None = None
        self._match: Match = (self._root, 0)
        self._listeners: list[TreeListener] = []

    def listen(self, listener: TreeListener) -> None:
        """Call `listener` for every change from now on."""
        self._listeners.append(listener)

    def keep(self, wanted_len: "WantedLen") -> None:
        """Evict what waiting prompts want after all else: see `evict`."""
        self._wanted_len = wanted_len

    @property
    def evictable(self) -> int:
        """Cached tokens that are not pinned. O(1)."""
        return self.size - self.pinned

    def match_len(self, tokens: Sequence[Unit], /) -> int:
        """Return the length of the longest cached prefix of `tokens`. Pure. O(match)."""
        return self.match(Runs.of(tokens))[1]

    def match(self, tokens: Runs, /) -> Match:
        """Find the longest cached prefix of `tokens`; valid until the tree changes. O(match)."""
        if tokens is not self._matched:
            self._matched = tokens
            self._match = descend(self._root, tokens, tokens.length)
        return self._match

    def pinned_len(self, match: Match) -> int:
        """Return how many tokens of a match are pinned. Pure. O(depth)."""
        node, length = match
        while not node.pins:
            assert node.parent is not None  # the root has pins
            length = node.start
            node = node.parent
        return length

    def acquire(self, tokens: Sequence[Unit], /, now_us: int) -> Path:
        """Pin the longest cached prefix of `tokens` and mark it used. O(match)."""
        return self.pin(self.match(Runs.of(tokens)), now_us)

    def pin(self, match: Match, now_us: int) -> Path:
        """Pin a match, made since the tree's last change, and mark it used. O(depth)."""
        node, length = match
        if length < node.end:
            node = self._split(node, length)
        if node.pins:
            node.pins += 1
        else:
            self._pin(node)
        self._touch(node, now_us)
        return node

    def insert(
        self, path: Path, tokens: Sequence[Unit], /, now_us: int, end: int | None = None
    ) -> Path:
        """Cache `tokens`, which begin with the pinned `path`, up to `end`, and pin them instead of it.

        Only the returned path may be released. O(end).
        """
        key = tokens if type(tokens) is Runs else Runs.of(tokens)
        end = key.length if end is None else end
        assert path.pins > 0 and path.end <= end <= key.length
        node, length = path, path.end
        if length < end and node.children and key.unit(length) in node.children:
            node, length = descend(path, key, end)  # cached by another request meanwhile
            if length < node.end:
                node = self._split(node, length)
        below = node
        if length < end:
            below = self._append(node, key, end)
            for listener in self._listeners:
                listener.grew(key, end)
        if node is not path:
            self._pin(below)
            self.release(path)
        elif below is not path:  # the path's pin becomes the pin of its new child
            below.pins = 1
            self.pinned += end - length
        self._touch(below, now_us)
        return below

    def use(self, path: Path) -> None:
        """Mark a pinned prefix used now. O(1)."""
        assert path.pins > 0
        self._serial = path.used = self._serial + 1

    def release(self, path: Path) -> None:
        """Remove a pin; evicts nothing. O(depth)."""
        node = path
        assert node.pins > 0
        node.pins -= 1
        while not node.pins:
            assert node.parent is not None
            self.pinned -= node.end - node.start
            if not node.children:
                self._leaves.push((node.used, node.serial, node), _is_evictable)
            node = node.parent
            node.pins -= 1

    def evict(self, size: int) -> int:
        """Evict up to `size` unpinned tokens from the ends of the least recently used leaves.

        Tokens that a waiting prompt wants are evicted after those that none wants, as far as the
        MOST_KEPT least recently used leaves show. Returns the number of tokens evicted. O(log leaves) for
        each leaf that shrinks, and a walk of the waiting prompts for each leaf that `keep` has examined.
        """
        leaves = self._leaves
        dropped = self._evict_unwanted(size) if self._wanted_len is not None else 0
        while dropped < size and (leaf := leaves.top(_is_evictable)):
            node = leaf[2]
            cut = node.end - node.start
            if dropped + cut > size:
                cut = size - dropped
                self._trim(node, cut)
            else:
                leaves.drop()
                self._remove(node)
            dropped += cut
        return dropped

    def _evict_unwanted(self, size: int) -> int:
        """Evict up to `size` tokens that no waiting prompt wants; return how many were evicted."""
        assert self._wanted_len is not None
        dropped, leaves = 0, self._leaves
        kept: list[_Leaf] = []
        while dropped < size and len(kept) < MOST_KEPT and (leaf := leaves.top(_is_evictable)):
            node = leaf[2]
            wanted = max(node.start, self._wanted_len(node.key, node.end))
            cut = min(node.end - wanted, size - dropped)
            if not cut:
                leaves.drop()
                kept.append(leaf)
                continue
            if cut < node.end - node.start:
                self._trim(node, cut)
            else:
                leaves.drop()
                self._remove(node)
            dropped += cut
        for leaf in kept:
            leaves.push(leaf, _is_evictable)
        return dropped

    def check(self) -> None:
        """Assert every invariant. O(tree)."""
        size = pinned = 0
        for node in checked_nodes(self._root):
            size += node.end - node.start
            pinned += node.end - node.start if node.pins else 0
            assert node.pins >= sum(1 for child in (node.children or {}).values() if child.pins)
        assert (size, pinned) == (self.size, self.pinned), (size, pinned, self)

    def _split(self, node: Node, at: int) -> Node:
        """Split the edge of `node` at depth `at`; the new upper half."""
        upper = Node(node.parent, node.first, node.key, at, self._next())
        upper.pins = 1 if node.pins else 0
        insert_above(upper, node)
        self._matched = None
        return upper

    def _append(self, parent: Node, key: Runs, end: int) -> Node:
        """Add a leaf for key[:end] below `parent`, the node at which the cached part of key ends."""
        node = Node(parent, key.unit(parent.end), key, end, self._next())
        add_leaf(node)
        self.size += end - node.start
        self._matched = None
        return node

    def _pin(self, node: Node) -> None:
        """Add a pin to `node`; the first pin of a node pins its parent."""
        node.pins += 1
        while node.pins == 1:
            assert node.parent is not None  # the root is always pinned
            self.pinned += node.end - node.start
            node = node.parent
            node.pins += 1

    def _touch(self, node: Node, now_us: int) -> None:
        """Mark `node` most recently used. Its ancestors inherit that when they become leaves."""
        assert now_us >= self._now_us, "time must not go back: sequence numbers are in its order"
        self._now_us = now_us
        self._serial = node.used = self._serial + 1

    def _trim(self, node: Node, cut: int) -> None:
        """Evict the last `cut` tokens of an unpinned leaf, which keeps its position in the heap."""
        assert not node.children and node.pins == 0 and 0 < cut < node.end - node.start
        key = node.key
        node.end -= cut
        self._lost(node, key, cut)

    def _remove(self, node: Node) -> None:
        """Evict an unpinned leaf, which is no longer in the heap."""
        assert node.pins == 0
        parent = remove_leaf(node)
        parent.used = max(parent.used, node.used)  # a node is used with its descendants
        if not (parent.children or parent.pins):
            self._leaves.push((parent.used, parent.serial, parent), _is_evictable)
        self._lost(parent, node.key, node.end - node.start)

    def _lost(self, node: Node, key: Runs, size: int) -> None:
        """Report that `size` tokens of `key` below the end of `node` are no longer cached."""
        self.size -= size
        self._matched = None
        if key.bulk > LONG_KEY:
            shorten_keys(node, key)
        for listener in self._listeners:
            listener.shrank(key, node.end)

    def _next(self) -> int:
        self._serial += 1
        return self._serial

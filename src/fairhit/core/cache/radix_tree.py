"""Cached prefixes as a radix tree of tokens: match, pin, insert, release, evict.

The tree knows sizes in tokens and recency, nothing of requests or clients. Its listeners hear of
every prefix that grows or shrinks; that is how waiting requests move without being matched again.
It copies no prompt: a node is a stretch of the prompt that made it.
"""

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from fairhit.core.cache.edge_walk import descend
from fairhit.core.cache.token_runs import Runs, common_len
from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import Unit


class TreeListener(Protocol):
    """Hears of changes after they happened."""

    def grew(self, tokens: Runs, length: int) -> None:
        """All of `tokens[:length]` is cached now."""
        ...

    def shrank(self, tokens: Runs, length: int) -> None:
        """Of `tokens` only `tokens[:length]` is still cached."""
        ...


class Node:
    """The tokens `key[start:end]`, cached behind `key[:start]`; `key` is the prompt that came first."""

    __slots__ = ("children", "end", "first", "key", "parent", "pins", "serial", "start", "used")

    def __init__(
        self, parent: "Node | None", first: Unit, key: Runs, end: int, serial: int
    ) -> None:
        self.parent = parent
        self.first = first  # of its tokens: its name among its parent's children
        self.key = key
        self.start: int = parent.end if parent else 0
        self.end: int = end
        self.children: dict[Unit, Node] | None = None  # none is the same as empty: most are leaves
        self.pins = 0  # paths that end here, and children with pins
        self.used = 0  # the number of its last touch: recency, without ties
        self.serial = serial

    @property
    def length(self) -> int:
        """As a pinned path: how many tokens stay cached until `release`."""
        return self.end


# A pinned prefix is named by the node it ends in, which stays where it is while it is pinned.
Path: TypeAlias = Node


# Where a prompt leaves the cache: the node that its match reaches into, and the match's length.
Match: TypeAlias = tuple[Node, int]

# (when it was used last, its serial, itself)
_Leaf: TypeAlias = tuple[int, int, Node]


# A prompt with more runs and plain tokens than this is not kept alive by nodes that need little of it.
_BULKY = 64


def _may_go(leaf: _Leaf) -> bool:
    """Whether an entry of the eviction heap is still true."""
    node = leaf[2]
    return not (node.pins or node.children) and node.used == leaf[0] and node.parent is not None


class RadixTree:
    """Cached token prefixes; evicts the tokens at the end of the least recently used leaf first."""

    block_size = 1

    def __init__(self) -> None:
        self._serial = 0
        self._now_us = 0
        self._root = Node(None, None, Runs(()), 0, 0)
        self._root.pins = 1
        self.size = 0  # cached tokens
        self.pinned = 0  # those in use
        self._leaves: LazyHeap[_Leaf] = LazyHeap()  # unpinned
        # The last `match`, while it is true: who comes to wait is often admitted next.
        self._asked: Runs | None = None
        self._answer: Match = (self._root, 0)
        self._listeners: list[TreeListener] = []

    def listen(self, listener: TreeListener) -> None:
        """From now on `listener` hears of every change."""
        self._listeners.append(listener)

    @property
    def evictable(self) -> int:
        """Cached tokens that nobody has pinned. O(1)."""
        return self.size - self.pinned

    def match_len(self, tokens: Sequence[Unit], /) -> int:
        """The length of the longest cached prefix of `tokens`. Pure. O(match)."""
        return self.match(Runs.of(tokens))[1]

    def match(self, tokens: Runs, /) -> Match:
        """Where the longest cached prefix of `tokens` ends, true until the tree changes. O(match)."""
        if tokens is not self._asked:
            self._asked = tokens
            self._answer = descend(self._root, tokens, tokens.length)
        return self._answer

    def pinned_len(self, match: Match) -> int:
        """How much of a match is in use. Pure. O(depth)."""
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
        """Pin what `match` has just found and mark it used. O(depth)."""
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
        """Extend a pin: `tokens`, which begin with the path, are cached and pinned up to `end`.

        The old path is spent: release only the new one. O(end).
        """
        key = tokens if type(tokens) is Runs else Runs.of(tokens)
        end = key.length if end is None else end
        assert path.pins > 0 and path.end <= end <= key.length
        node, length = path, path.end
        if length < end and node.children and key.unit(length) in node.children:
            node, length = descend(path, key, end)  # someone else has cached more meanwhile
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
        elif below is not path:  # what pinned the path pins it through its new child
            below.pins = 1
            self.pinned += end - length
        self._touch(below, now_us)
        return below

    def use(self, path: Path) -> None:
        """A pinned prefix was in use up to now. O(1)."""
        assert path.pins > 0
        self._serial = path.used = self._serial + 1

    def release(self, path: Path) -> None:
        """Give back a pin; evicts nothing. O(depth)."""
        node = path
        assert node.pins > 0
        node.pins -= 1
        while not node.pins:
            assert node.parent is not None
            self.pinned -= node.end - node.start
            if not node.children:
                self._leaves.push((node.used, node.serial, node), _may_go)
            node = node.parent
            node.pins -= 1

    def evict(self, size: int) -> int:
        """Drop up to `size` unpinned tokens, from the ends of the oldest leaves; how many it dropped.

        O(log leaves) for each leaf it touches.
        """
        dropped, leaves = 0, self._leaves
        while dropped < size and (leaf := leaves.top(_may_go)):
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

    def check(self) -> None:
        """Assert every invariant. O(tree)."""
        size = pinned = 0
        stack = [self._root]
        while stack:
            node = stack.pop()
            children = node.children or {}
            for first, child in children.items():
                assert child.parent is node and child.key[child.start] == child.first == first
                assert child.start == node.end < child.end <= len(child.key)
                assert common_len(child.key, node.key, 0, node.end) == node.end
                size += child.end - child.start
                pinned += child.end - child.start if child.pins else 0
                stack.append(child)
            assert node.pins >= sum(1 for child in children.values() if child.pins)
        assert (size, pinned) == (self.size, self.pinned), (size, pinned, self)

    def _split(self, node: Node, at: int) -> Node:
        """Cut the edge into `node` at depth `at`; the new upper half, so paths keep their end."""
        parent, key = node.parent, node.key
        assert node.start < at < node.end and parent is not None and parent.children
        upper = Node(parent, node.first, key, at, self._next())
        upper.pins = 1 if node.pins else 0
        self._asked = None
        parent.children[node.first] = upper
        node.first, node.start, node.parent = key.unit(at), at, upper
        upper.children = {node.first: node}
        return upper

    def _append(self, parent: Node, key: Runs, end: int) -> Node:
        """A new leaf behind `parent`."""
        start = parent.end
        node = Node(parent, key.unit(start), key, end, self._next())
        if parent.children is None:
            parent.children = {}
        assert node.first not in parent.children
        parent.children[node.first] = node
        self.size += end - start
        self._asked = None
        return node

    def _pin(self, node: Node) -> None:
        """One more pin; the first one of a node pins its parent."""
        node.pins += 1
        while node.pins == 1:
            assert node.parent is not None  # the root always has one more
            self.pinned += node.end - node.start
            node = node.parent
            node.pins += 1

    def _touch(self, node: Node, now_us: int) -> None:
        """It is the most recently used. What is above it hears of that when it becomes a leaf."""
        assert now_us >= self._now_us, "time goes on, so that the touches' numbers are in its order"
        self._now_us = now_us
        self._serial = node.used = self._serial + 1

    def _offer(self, node: Node) -> None:
        """An unpinned leaf may be evicted."""
        if not node.children and not node.pins:
            self._leaves.push((node.used, node.serial, node), _may_go)

    def _trim(self, node: Node, cut: int) -> None:
        """Drop the last `cut` tokens of an unpinned leaf, which keeps its place in the heap."""
        assert not node.children and node.pins == 0 and 0 < cut < node.end - node.start
        key = node.key
        node.end -= cut
        self._lost(node, key, cut)

    def _remove(self, node: Node) -> None:
        """Drop an unpinned leaf, which is in the heap no more."""
        parent = node.parent
        assert parent is not None and parent.children and not node.children and node.pins == 0
        del parent.children[node.first]
        node.parent = None
        parent.used = max(parent.used, node.used)  # what is below a node was used with it
        if not parent.children:
            parent.children = None
            self._offer(parent)
        self._lost(parent, node.key, node.end - node.start)

    def _lost(self, node: Node, key: Runs, size: int) -> None:
        """Behind `node` the last `size` tokens along `key` are cached no more."""
        self.size -= size
        self._asked = None
        if key.bulk > _BULKY and 2 * node.end < key.length:
            _shorten(node, key)
        for listener in self._listeners:
            listener.shrank(key, node.end)

    def _next(self) -> int:
        self._serial += 1
        return self._serial


def _shorten(node: Node | None, key: Runs) -> None:
    """Nodes that need less than half of `key` keep a copy of that, so that the rest of it may go."""
    kept = key
    while node is not None and node.key is key:
        if 2 * node.end < kept.length:
            kept = key[: node.end]
        node.key = kept
        node = node.parent

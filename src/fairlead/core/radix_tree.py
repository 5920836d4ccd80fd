"""Cached prefixes as a radix tree of tokens: match, pin, insert, release, evict.

The tree knows sizes in tokens and recency, nothing of requests or clients. Its listeners hear of
every prefix that grows or shrinks; that is how waiting requests move without being matched again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from fairlead.core.lazy_heap import LazyHeap
from fairlead.core.request import Unit


class TreeListener(Protocol):
    """Hears of changes after they happened."""

    def grew(self, tokens: Sequence[Unit], length: int) -> None:
        """All of `tokens[:length]` is cached now."""
        ...

    def shrank(self, tokens: Sequence[Unit], length: int) -> None:
        """Of the path `tokens` only `tokens[:length]` is still cached."""
        ...


class _Node:
    __slots__ = ("children", "parent", "pins", "serial", "start", "tokens", "used")

    def __init__(self, parent: "_Node | None", tokens: Sequence[Unit], start: int, serial: int):
        self.parent = parent
        self.tokens = tokens  # the edge from the parent to here
        self.start = start  # depth at which the edge begins
        self.children: dict[Unit, _Node] = {}
        self.pins = 0
        self.used = (0, 0)  # (now_us, serial of the touch): recency, without ties
        self.serial = serial

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)


# (when it was used last, its serial, itself)
_Leaf: TypeAlias = tuple[tuple[int, int], int, _Node]


def _may_go(leaf: _Leaf) -> bool:
    """Whether an entry of the eviction heap is still true."""
    used, _, node = leaf
    return bool(node.parent) and not node.pins and not node.children and node.used == used


@dataclass(frozen=True, kw_only=True, slots=True)
class Path:
    """A pinned prefix; `length` tokens that stay cached until `release`."""

    node: _Node
    length: int


def common_len(a: Sequence[Unit], b: Sequence[Unit], at: int, start: int, end: int) -> int:
    """How far a[start:end] agrees with b[start - at:], as an end position in `a`.

    Compares slices, halving where they differ, so that the work is done at C speed. O(length).
    """
    end = min(end, at + len(b))
    if a[start:end] == b[start - at : end - at]:
        return max(start, end)
    low, high = start, end  # a and b agree up to low and differ somewhere before high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low - at : middle - at]:
            low = middle
        else:
            high = middle
    return low


class RadixTree:
    """Cached token prefixes; evicts the tokens at the end of the least recently used leaf first."""

    block_size = 1

    def __init__(self) -> None:
        self._serial = 0
        self._root = _Node(None, (), 0, 0)
        self._root.pins = 1
        self._size = 0
        self._pinned = 0
        self._leaves: LazyHeap[_Leaf] = LazyHeap()  # unpinned
        self._listeners: list[TreeListener] = []

    def listen(self, listener: TreeListener) -> None:
        """From now on `listener` hears of every change."""
        self._listeners.append(listener)

    @property
    def size(self) -> int:
        """Cached tokens."""
        return self._size

    @property
    def evictable(self) -> int:
        """Cached tokens that nobody has pinned. O(1)."""
        return self._size - self._pinned

    def match_len(self, tokens: Sequence[Unit], /) -> int:
        """The length of the longest cached prefix of `tokens`. Pure. O(match)."""
        return self._match(tokens)[1]

    def unpinned_len(self, tokens: Sequence[Unit], /) -> int:
        """How much of that prefix is evictable now. Pure. O(match)."""
        node, length = self._match(tokens)
        while node.pins == 0:
            assert node.parent is not None
            node = node.parent
        return max(0, length - node.end)

    def acquire(self, tokens: Sequence[Unit], /, now_us: int) -> Path:
        """Pin the longest cached prefix of `tokens` and mark it used. O(match)."""
        node, length = self._match(tokens)
        if length < node.end:
            node = self._split(node, length)
        self._pin(node)
        self._touch(node, now_us)
        return Path(node=node, length=length)

    def insert(self, path: Path, tokens: Sequence[Unit], /, now_us: int) -> Path:
        """Extend a pin: all of `tokens`, which begin with the path, is cached and pinned. O(tokens).

        The old path is spent: release only the new one.
        """
        assert path.node.pins > 0 and path.length <= len(tokens)
        found = self.acquire(tokens, now_us)  # someone else may have cached more meanwhile
        node = found.node
        if found.length < len(tokens):
            node = self._append(node, tokens[found.length :], found.length)
            self._pin(node, upto=found.node)
            self._touch(node, now_us)
            for listener in self._listeners:
                listener.grew(tokens, len(tokens))
        self.release(path)
        return Path(node=node, length=len(tokens))

    def release(self, path: Path) -> None:
        """Give back a pin; evicts nothing. O(depth)."""
        node: _Node | None = path.node
        while node is not None and node is not self._root:
            assert node.pins > 0
            node.pins -= 1
            if node.pins == 0:
                self._pinned -= len(node.tokens)
                self._offer(node)
            node = node.parent

    def evict(self, size: int) -> int:
        """Drop up to `size` unpinned tokens, from the ends of the oldest leaves; how many it dropped.

        O(log leaves) for each leaf it touches.
        """
        dropped = 0
        while dropped < size and (leaf := self._leaves.top(_may_go)):
            self._leaves.drop()
            node = leaf[2]
            cut = min(size - dropped, len(node.tokens))
            self._trim(node, cut)
            dropped += cut
        return dropped

    def check(self) -> None:
        """Assert every invariant. O(tree)."""
        size = pinned = 0
        stack = [self._root]
        while stack:
            node = stack.pop()
            for first, child in node.children.items():
                assert child.parent is node and child.tokens[0] == first
                assert child.start == node.end
                assert node is self._root or (child.pins <= node.pins and child.used <= node.used)
                size += len(child.tokens)
                pinned += len(child.tokens) if child.pins else 0
                stack.append(child)
        assert (size, pinned) == (self._size, self._pinned), (size, pinned, self)

    def _match(self, tokens: Sequence[Unit]) -> tuple[_Node, int]:
        """The deepest node the match reaches into, and the match's length."""
        node, length = self._root, 0
        while length < len(tokens) and (child := node.children.get(tokens[length])):
            node = child
            length = common_len(tokens, node.tokens, node.start, length, len(tokens))
            if length < node.end:
                break
        return node, length

    def _split(self, node: _Node, at: int) -> _Node:
        """Cut the edge into `node` at depth `at`; the new upper half, so paths keep their end."""
        assert node.start < at < node.end and node.parent is not None
        upper = _Node(node.parent, node.tokens[: at - node.start], node.start, self._next())
        upper.pins, upper.used = node.pins, node.used
        node.parent.children[upper.tokens[0]] = upper
        node.tokens, node.start, node.parent = node.tokens[at - node.start :], at, upper
        upper.children[node.tokens[0]] = node
        return upper

    def _append(self, parent: _Node, tokens: Sequence[Unit], start: int) -> _Node:
        node = _Node(parent, tokens, start, self._next())
        assert tokens[0] not in parent.children
        parent.children[tokens[0]] = node
        self._size += len(tokens)
        return node

    def _pin(self, node: _Node, upto: _Node | None = None) -> None:
        """One more pin on every node from `node` to the root, `upto` and above left out."""
        walk: _Node | None = node
        while walk is not None and walk is not self._root and walk is not upto:
            if walk.pins == 0:
                self._pinned += len(walk.tokens)
            walk.pins += 1
            walk = walk.parent

    def _touch(self, node: _Node, now_us: int) -> None:
        used = (now_us, self._next())
        walk: _Node | None = node
        while walk is not None:
            walk.used = max(walk.used, used)
            walk = walk.parent

    def _offer(self, node: _Node) -> None:
        """An unpinned leaf may be evicted."""
        if not node.children and not node.pins and node is not self._root:
            self._leaves.push((node.used, node.serial, node), _may_go)

    def _trim(self, node: _Node, cut: int) -> None:
        """Drop the last `cut` tokens of an unpinned leaf, and the leaf if none are left."""
        assert not node.children and node.pins == 0 and node.parent is not None
        path = self._tokens_of(node) if self._listeners else ()
        length = node.end - cut
        parent = node.parent
        self._size -= cut
        if cut == len(node.tokens):
            del parent.children[node.tokens[0]]
            node.parent = None
            self._offer(parent)
        else:
            node.tokens = node.tokens[:-cut]
            self._offer(node)
        for listener in self._listeners:
            listener.shrank(path, length)

    def _tokens_of(self, node: _Node) -> Sequence[Unit]:
        edges = []
        walk: _Node | None = node
        while walk is not None:
            edges.append(walk.tokens)
            walk = walk.parent
        return tuple(token for edge in reversed(edges) for token in edge)

    def _next(self) -> int:
        self._serial += 1
        return self._serial

"""The compressed trie of waiting prompts, and which of its nodes are anchors.

A node stands for a run of tokens shared by waiting prompts, its *edge*, and knows how much of it is
cached. A node is an *anchor* if part of its edge is cached and all edges above it are fully cached; the
root always is one. A waiting request is attached to its deepest anchor, whose cached depth is the
request's match length. Which requests are attached where is kept by `heaps`.
"""

from typing import Protocol, TypeAlias

from fairhit.core.cache.token_runs import Runs
from fairhit.core.cache.trie import (
    add_leaf,
    descend,
    insert_above,
    merge_into_child,
    remove_leaf,
)
from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import ClientId, Request, Unit


class WaitingEntry:
    """A waiting request and the node where its prompt ends; invisible while it is hidden."""

    __slots__ = ("in_snapshot", "node", "order", "request", "serial", "visible")

    def __init__(self, request: Request, node: "TrieNode", serial: int) -> None:
        self.request = request
        self.node = node
        self.order = request.order
        self.serial = serial  # unique, so that heap tuples never compare further
        self.visible = True
        self.in_snapshot = False  # hidden by the sorted snapshot, and visible to the heaps


class TrieNode:
    """An edge of waiting prompts, `key[start:end]`, whose first `cached` units are cached."""

    __slots__ = (
        "best", "cached", "children", "end", "first", "heaps", "is_anchor", "key",
        "own", "parent", "serial", "start", "warm",
    )  # fmt: skip

    def __init__(
        self, parent: "TrieNode | None", first: Unit, key: Runs, end: int, serial: int
    ) -> None:
        self.parent = parent
        self.first = first  # of its units: the key among its parent's children
        self.key = key
        self.start: int = parent.end if parent else 0
        self.end: int = end
        self.serial = serial
        self.cached = 0
        self.is_anchor = parent is None  # the root always is
        self.own = 0  # requests whose prompts end here
        self.children: dict[Unit, TrieNode] | None = None  # none is the same as empty
        self.warm: dict[TrieNode, None] = {}  # children of which something is cached
        # Per client: the oldest requests below this node down to the next anchors, as own requests
        # and children that are no anchors. Most nodes have one source, which needs no heap.
        self.heaps: dict[ClientId, Source | LazyHeap[Source]] = {}
        self.best: dict[ClientId, WaitingEntry] = {}  # the true top of each heap

    @property
    def depth(self) -> int:
        """Return how many units a request attached here matches."""
        return self.start + self.cached

    @property
    def anchor(self) -> "TrieNode":
        """Return the anchor of the requests that end here. O(depth of the trie)."""
        node = self
        while not node.is_anchor:
            assert node.parent is not None  # the root is an anchor
            node = node.parent
        return node

    @property
    def full(self) -> bool:
        """Return whether all of the edge is cached, so that children may be anchors."""
        return self.start + self.cached == self.end


# (order of the oldest request, serial, source): a request's own entry or a child.
Source: TypeAlias = tuple[int, int, WaitingEntry | TrieNode]


class Watch(Protocol):
    """Turns a cache's own events into `WaitingTrie.set_cached`: one class for each kind of cache."""

    def leading(self, key: Runs, start: int, end: int) -> int:
        """Return how many units of key[start:end] are cached from `start` on. Pure."""
        ...

    def watch(self, node: TrieNode) -> None:
        """Report changes of the node from now on."""
        ...

    def unwatch(self, node: TrieNode) -> None:
        """Report no further changes of the node."""
        ...

    def catch_up(self) -> None:
        """Report the changes that were not reported yet."""
        ...


class AnchorListener(Protocol):
    """Is notified which nodes are anchors, and how deep they are."""

    def on_anchored(self, node: TrieNode) -> None:
        """Note that the node became an anchor: the anchor above it loses what is below the node."""
        ...

    def on_unanchored(self, node: TrieNode) -> None:
        """Note that the node is no anchor any more: the anchor above it takes what is below the node."""
        ...

    def on_moved(self, node: TrieNode) -> None:
        """Note that an anchor's depth changed, or that the anchor replaced another node."""
        ...

    def on_replaced(self, node: TrieNode, below: TrieNode | None) -> None:
        """Note that `node` took another node's position; `below`, if given, is its only child now."""
        ...

    def on_removed(self, node: TrieNode) -> None:
        """Note that no waiting request ends at or below the node."""
        ...


class WaitingTrie:
    """The prefixes that waiting prompts share; at most two nodes for each prompt."""

    def __init__(self, listener: AnchorListener) -> None:
        self.root = TrieNode(None, None, Runs(()), 0, 0)
        self._listener = listener
        self._watch: Watch | None = None
        self._serial = 0

    def attach(self, watch: Watch) -> None:
        """Set the watch that reports the cache's changes; before the first `place`."""
        assert self._watch is None and not self.root.children
        self._watch = watch
        self.catch_up = watch.catch_up  # apply pending cache changes; before each query

    def serial(self) -> int:
        """Return a number never returned before."""
        self._serial += 1
        return self._serial

    def place(self, key: Runs, end: int) -> TrieNode:
        """Return the node at which key[:end] ends, created if necessary. O(end)."""
        self.catch_up()  # or the new node would be ahead of the others
        node, at = descend(self.root, key, end)
        if at < node.end:
            node = self._split(node, at)
        return node if at == end else self._grow(node, key, end)

    def prune(self, node: TrieNode) -> None:
        """Remove nodes without waiting requests, from `node` upwards. O(depth)."""
        assert self._watch is not None
        while node.parent is not None and not node.own:
            parent = node.parent
            if node.children:
                if len(node.children) == 1:
                    self._merge(node, next(iter(node.children.values())))
                return
            assert not node.best
            self._watch.unwatch(node)
            remove_leaf(node)
            parent.warm.pop(node, None)
            self._drop(node)
            node = parent

    def set_cached(self, node: TrieNode, cached: int) -> None:
        """Set how many units of the node's edge are cached. O(anchors that change)."""
        parent, length, before = node.parent, node.end - node.start, node.cached
        assert 0 <= cached <= length and cached != before and parent is not None
        node.cached = cached
        if not cached:
            del parent.warm[node]
        elif not before:
            parent.warm[node] = None
        if not node.is_anchor:
            if cached and parent.is_anchor and parent.full:
                self._anchor(node)
        elif not cached:
            self._unanchor(node)
        else:
            if before == length:
                for child in [child for child in node.warm if child.is_anchor]:
                    self._unanchor(child)
            elif cached == length:
                for child in list(node.warm):
                    self._anchor(child)
            self._listener.on_moved(node)

    def _anchor(self, top: TrieNode) -> None:
        """Make `top` an anchor, and every warm node below it that is reached through full edges."""
        pending = [top]
        while pending:
            node = pending.pop()
            assert not node.is_anchor
            node.is_anchor = True
            self._listener.on_anchored(node)
            if node.full:
                pending.extend(node.warm)

    def _unanchor(self, top: TrieNode) -> None:
        """Make `top` and the anchors below it plain nodes, the deepest first."""
        pending = [top]
        for node in pending:
            pending.extend(child for child in node.warm if child.is_anchor)
        for node in reversed(pending):
            node.is_anchor = False
            self._listener.on_unanchored(node)

    def _grow(self, parent: TrieNode, key: Runs, end: int) -> TrieNode:
        """Create a leaf without requests."""
        assert self._watch is not None
        start = parent.end
        leaf = TrieNode(parent, key.unit(start), key, end, self.serial())
        add_leaf(leaf)
        leaf.cached = self._watch.leading(key, start, end)
        if leaf.cached:
            parent.warm[leaf] = None
            leaf.is_anchor = parent.is_anchor and parent.full
        self._watch.watch(leaf)
        return leaf

    def _split(self, node: TrieNode, at: int) -> TrieNode:
        """Split the edge into `node` at depth `at`; return the new upper half, which replaces it above."""
        assert self._watch is not None
        self._watch.unwatch(node)
        upper = TrieNode(node.parent, node.first, node.key, at, self.serial())
        upper.cached = min(node.cached, at - node.start)
        upper.is_anchor = node.is_anchor
        insert_above(upper, node)
        self._replace_warm(upper, node)
        # Where the cache has a gap above, it may still hold blocks below it.
        below = (
            node.cached - upper.cached
            if upper.full
            else self._watch.leading(node.key, at, node.end)
        )
        node.cached = below
        node.is_anchor = node.is_anchor and upper.full and below > 0
        if below:
            upper.warm[node] = None
        self._notify_replaced(upper, node)
        self._watch.watch(upper)
        self._watch.watch(node)
        return upper

    def _merge(self, node: TrieNode, child: TrieNode) -> None:
        """Undo a split: the only child takes the node's edge, too."""
        assert self._watch is not None
        self._watch.unwatch(node)
        self._watch.unwatch(child)
        child.cached = node.cached + child.cached if node.full else node.cached
        merge_into_child(node)
        child.is_anchor = node.is_anchor
        self._replace_warm(child, node)
        self._drop(node)
        self._notify_replaced(child, None)
        self._watch.watch(child)

    def _replace_warm(self, new: TrieNode, old: TrieNode) -> None:
        """Replace `old` by `new` among the warm children of their parent."""
        assert new.parent is not None
        new.parent.warm.pop(old, None)
        if new.cached:
            new.parent.warm[new] = None

    def _notify_replaced(self, node: TrieNode, below: TrieNode | None) -> None:
        self._listener.on_replaced(node, below)
        if node.is_anchor:
            self._listener.on_moved(node)

    def _drop(self, node: TrieNode) -> None:
        node.parent, node.is_anchor = None, False
        self._listener.on_removed(node)

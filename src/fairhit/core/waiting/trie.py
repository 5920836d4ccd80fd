"""The compressed trie of waiting prompts, and which of its nodes are stands.

A node holds a stretch of prompt and knows how much of it the cache holds. A node with something held
whose ancestors are all held in full is a *stand*: the place where requests hang, at its depth. Who
hangs where, and who is oldest there, is the business of `waiting_heaps`.
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
    """A waiting request and its place in the trie; invisible while it is passed over."""

    __slots__ = ("aside", "node", "order", "request", "serial", "visible")

    def __init__(self, request: Request, node: "TrieNode", serial: int) -> None:
        self.request = request
        self.node = node
        self.order = request.order
        self.serial = serial  # unique, so that heap tuples never compare further
        self.visible = True
        self.aside = False  # passed over all the same: see `waiting_aside`


class TrieNode:
    """A stretch of waiting prompts, `key[start:end]`, of which the first `held` units are cached."""

    __slots__ = (
        "best", "children", "end", "first", "heaps", "held", "key",
        "own", "parent", "serial", "standing", "start", "warm",
    )  # fmt: skip

    def __init__(
        self, parent: "TrieNode | None", first: Unit, key: Runs, end: int, serial: int
    ) -> None:
        self.parent = parent
        self.first = first  # of its units: its name among its parent's children
        self.key = key
        self.start: int = parent.end if parent else 0
        self.end: int = end
        self.serial = serial
        self.held = 0
        self.standing = parent is None  # the root always stands
        self.own = 0  # requests that end here
        self.children: dict[Unit, TrieNode] | None = None  # none is the same as empty
        self.warm: dict[TrieNode, None] = {}  # children with something held
        # For each client what it answers for, oldest first: own requests and non-standing children.
        # Most nodes answer for one, and it needs no heap.
        self.heaps: dict[ClientId, Source | LazyHeap[Source]] = {}
        self.best: dict[ClientId, WaitingEntry] = {}  # the true top of each heap

    @property
    def depth(self) -> int:
        """How many units a request that hangs here matches."""
        return self.start + self.held

    @property
    def stand(self) -> "TrieNode":
        """Where those who end here hang. O(depth of the trie)."""
        node = self
        while not node.standing:
            assert node.parent is not None  # the root stands
            node = node.parent
        return node

    @property
    def full(self) -> bool:
        """Whether all of its edge is cached, so that its children decide."""
        return self.start + self.held == self.end


# (order of the oldest request, serial, who has it): a request's own entry or a child.
Source: TypeAlias = tuple[int, int, WaitingEntry | TrieNode]


class Watch(Protocol):
    """Turns a cache's own events into `WaitingTrie.set_held`: one flavour for each kind of cache."""

    def leading(self, key: Runs, start: int, end: int) -> int:
        """How many units of key[start:end] are cached from `start` on. Pure."""
        ...

    def watch(self, node: TrieNode) -> None:
        """Report changes of this node from now on."""
        ...

    def unwatch(self, node: TrieNode) -> None:
        """Stop."""
        ...

    def catch_up(self) -> None:
        """Report what has not been reported yet."""
        ...


class AnchorListener(Protocol):
    """Hears where requests hang now."""

    def rose(self, node: TrieNode) -> None:
        """It stands, and its parent no longer answers for what is below it."""
        ...

    def sank(self, node: TrieNode) -> None:
        """It does not stand any more, and its parent answers for it."""
        ...

    def moved(self, node: TrieNode) -> None:
        """A stand's depth changed, or a new node stands where another did."""
        ...

    def replaced(self, node: TrieNode, below: TrieNode | None) -> None:
        """`node` is where another was; `below`, if given, is its only child now."""
        ...

    def gone(self, node: TrieNode) -> None:
        """Nobody waits there any more."""
        ...


class WaitingTrie:
    """Where waiting prompts share and part; at most two nodes for each of them."""

    def __init__(self, stands: AnchorListener) -> None:
        self.root = TrieNode(None, None, Runs(()), 0, 0)
        self._stands = stands
        self._watch: Watch | None = None
        self._serial = 0

    def attach(self, watch: Watch) -> None:
        """Say who reports the cache's changes; before the first `place`."""
        assert self._watch is None and not self.root.children
        self._watch = watch
        self.catch_up = watch.catch_up  # hear of what the cache did since the last question

    def serial(self) -> int:
        """A number never given before."""
        self._serial += 1
        return self._serial

    def place(self, key: Runs, end: int) -> TrieNode:
        """The node at which key[:end] ends, made if it is not there. O(end)."""
        self.catch_up()  # or the new node would know more than the others
        node, at = descend(self.root, key, end)
        if at < node.end:
            node = self._split(node, at)
        return node if at == end else self._grow(node, key, end)

    def prune(self, node: TrieNode) -> None:
        """Remove what nobody waits in any more, from `node` upwards. O(depth)."""
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

    def set_held(self, node: TrieNode, held: int) -> None:
        """The cache now holds `held` units of the node's edge. O(stands that come or go)."""
        parent, length, before = node.parent, node.end - node.start, node.held
        assert 0 <= held <= length and held != before and parent is not None
        node.held = held
        if not held:
            del parent.warm[node]
        elif not before:
            parent.warm[node] = None
        if not node.standing:
            if held and parent.standing and parent.full:
                self._rise(node)
        elif not held:
            self._sink(node)
        else:
            if before == length:
                for child in [child for child in node.warm if child.standing]:
                    self._sink(child)
            elif held == length:
                for child in list(node.warm):
                    self._rise(child)
            self._stands.moved(node)

    def _rise(self, top: TrieNode) -> None:
        """`top` becomes a stand, and every warm node below it that is reached in full."""
        rising = [top]
        while rising:
            node = rising.pop()
            assert not node.standing
            node.standing = True
            self._stands.rose(node)
            if node.full:
                rising.extend(node.warm)

    def _sink(self, top: TrieNode) -> None:
        """`top` and the stands below it stop being stands, the deepest first."""
        sinking = [top]
        for node in sinking:
            sinking.extend(child for child in node.warm if child.standing)
        for node in reversed(sinking):
            node.standing = False
            self._stands.sank(node)

    def _grow(self, parent: TrieNode, key: Runs, end: int) -> TrieNode:
        """A new leaf, with nobody in it yet."""
        assert self._watch is not None
        start = parent.end
        leaf = TrieNode(parent, key.unit(start), key, end, self.serial())
        add_leaf(leaf)
        leaf.held = self._watch.leading(key, start, end)
        if leaf.held:
            parent.warm[leaf] = None
            leaf.standing = parent.standing and parent.full
        self._watch.watch(leaf)
        return leaf

    def _split(self, node: TrieNode, at: int) -> TrieNode:
        """Cut the edge into `node` at depth `at`; the new upper half, which takes its place above."""
        assert self._watch is not None
        self._watch.unwatch(node)
        upper = TrieNode(node.parent, node.first, node.key, at, self.serial())
        upper.held = min(node.held, at - node.start)
        upper.standing = node.standing
        insert_above(upper, node)
        self._warm_instead(upper, node)
        # Where the cache has a hole above, it may still hold blocks below it.
        below = (
            node.held - upper.held if upper.full else self._watch.leading(node.key, at, node.end)
        )
        node.held = below
        node.standing = node.standing and upper.full and below > 0
        if below:
            upper.warm[node] = None
        self._settle(upper, node)
        self._watch.watch(upper)
        self._watch.watch(node)
        return upper

    def _merge(self, node: TrieNode, child: TrieNode) -> None:
        """Undo a split: the only child takes the node's place, too."""
        assert self._watch is not None
        self._watch.unwatch(node)
        self._watch.unwatch(child)
        child.held = node.held + child.held if node.full else node.held
        merge_into_child(node)
        child.standing = node.standing
        self._warm_instead(child, node)
        self._drop(node)
        self._settle(child, None)
        self._watch.watch(child)

    def _warm_instead(self, new: TrieNode, old: TrieNode) -> None:
        """Enter `new`, which has replaced `old` among its parent's children, in the parent's `warm`."""
        assert new.parent is not None
        new.parent.warm.pop(old, None)
        if new.held:
            new.parent.warm[new] = None

    def _settle(self, node: TrieNode, below: TrieNode | None) -> None:
        """Tell that `node` is where another was, above `below` if that is given."""
        self._stands.replaced(node, below)
        if node.standing:
            self._stands.moved(node)

    def _drop(self, node: TrieNode) -> None:
        node.parent, node.standing = None, False
        self._stands.gone(node)

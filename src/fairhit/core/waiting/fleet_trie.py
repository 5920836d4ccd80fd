"""The compressed trie of waiting prompts for many engines, and each engine's anchors in it.

The trie is made once. A node's edge is a run of tokens that waiting prompts share. Where an engine holds the
beginning of an edge, and all edges above, the node is an *anchor* of that engine: `node.cached[engine]` units
of the edge are cached there. An engine knows its anchors, the deepest first; of the rest of the trie it has
no record. So memory is O(waiting prompts + anchors), and an event of one engine's cache touches its own
anchors only.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeAlias

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.cache_view import (
    Cache,
    HashCache,
    MeasuresPrefixes,
    PathCache,
)
from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.token_runs import Runs
from fairhit.core.cache.trie import (
    add_leaf,
    descend,
    insert_above,
    merge_into_child,
    path_to,
    remove_leaf,
)
from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import ClientId, Request, Unit, WorkerId

# Finds how many leading units of a prompt each engine may hold; an engine that holds any is listed.
Finder: TypeAlias = Callable[[Sequence[Unit]], PrefixMatches]

# Changes of a token tree collected before they are applied without a query: each keeps a prompt alive.
_MOST_CHANGES = 256
# Children that are examined when an engine holds all of their parent: engines store what is in front first,
# so that one of them is held already only if the parent was evicted before it.
_FEW_CHILDREN = 16


class FleetEntry:
    """A waiting request and the node where its prompt ends."""

    __slots__ = ("node", "order", "request", "serial", "waits")

    def __init__(self, request: Request, node: "FleetNode", serial: int) -> None:
        self.request = request
        self.node = node
        self.order = request.order
        self.serial = serial  # unique, so that heap tuples never compare further
        self.waits = True


# (order of the oldest request, serial, source): a request's own entry, or a child with such requests below.
FleetSource: TypeAlias = "tuple[int, int, FleetEntry | FleetNode]"
# (the client's standing, order of its oldest request, client): smallest first.
Rank: TypeAlias = tuple[int, int, ClientId]


class FleetNode:
    """An edge of waiting prompts, `key[start:end]`, with the engines that hold its beginning."""

    __slots__ = (
        "cached", "children", "end", "first", "hits", "key", "oldest", "own", "parent", "ranks",
        "serial", "sources", "start",
    )  # fmt: skip

    def __init__(
        self, parent: "FleetNode | None", first: Unit, key: Runs, end: int, serial: int
    ) -> None:
        self.parent = parent
        self.first = first  # of its units: the key among its parent's children
        self.key = key
        self.start: int = parent.end if parent else 0
        self.end: int = end
        self.serial = serial
        self.children: dict[Unit, FleetNode] | None = None  # none is the same as empty
        self.own = 0  # requests whose prompts end here
        self.cached: dict[EngineAnchors, int] = {}  # units of the edge, at least one
        # Per client: the oldest request at or below this node, and from where it is known.
        self.oldest: dict[ClientId, FleetEntry] = {}
        self.sources: dict[ClientId, FleetSource | LazyHeap[FleetSource]] = {}
        # The clients with requests here by standing; None until an engine holds part of the edge.
        self.ranks: LazyHeap[Rank] | None = None
        self.hits: LazyHeap[Rank] | None = None  # those that may use their overdraft only


class EngineAnchors:
    """One engine: its cache, and its anchors, the deepest first."""

    __slots__ = (
        "anchors",
        "blocks",
        "cache",
        "hidden",
        "name",
        "paths",
        "pending",
        "prefix_len",
        "stop",
    )

    def __init__(self, name: WorkerId, cache: Cache) -> None:
        self.name = name
        self.cache = cache
        self.paths: PathCache | None = None
        self.blocks: HashCache | None = None
        if isinstance(cache, PathCache):
            self.paths = cache
        else:
            self.blocks = cache
        # Tokens in the first units of a prompt; None: each has `cache.block_size`.
        self.prefix_len = cache.prefix_len if isinstance(cache, MeasuresPrefixes) else None
        self.anchors: list[tuple[int, int, FleetNode]] = []  # (-depth, serial, node)
        self.pending: list[tuple[bool, Runs, int]] = []  # changes of a token tree, oldest first
        self.hidden: dict[Request, None] = {}
        self.stop: Callable[[], None] | None = None  # ends the notifications of its cache

    def tokens(self, depth: int) -> int:
        """Return the tokens in the first `depth` units of a prompt. O(1)."""
        return self.prefix_len(depth) if self.prefix_len else depth * self.cache.block_size

    def leading(self, key: Runs, start: int, end: int) -> int:
        """Return how many units of key[start:end] are cached from `start` on. Pure."""
        if self.paths is not None:
            return max(0, min(self.paths.match(key)[1], end) - start)
        assert self.blocks is not None
        return self.blocks.match_len(key.units()[start:end])


class NodeListener(Protocol):
    """Is notified of nodes that replace others, and of the first engine that holds part of one."""

    def on_split(self, upper: FleetNode, node: FleetNode) -> None:
        """Note that `upper` is now between `node` and its parent."""
        ...

    def on_merged(self, node: FleetNode, child: FleetNode) -> None:
        """Note that `child`, the only one, has taken the edge of `node`, which is gone."""
        ...

    def on_warm(self, node: FleetNode) -> None:
        """Note that an engine holds part of the node's edge, for the first time."""
        ...


class FleetTrie:
    """The prefixes that waiting prompts share, and the engines' anchors; at most two nodes a prompt."""

    def __init__(self, listener: NodeListener, finder: Finder | None) -> None:
        self.root = FleetNode(None, None, Runs(()), 0, 0)
        self.engines: dict[WorkerId, EngineAnchors] = {}
        self._listener = listener
        self._finder = finder
        self._serial = 0
        self._changed: dict[EngineAnchors, None] = {}  # with pending changes
        # Of caches of blocks: the node of each unit that may be cached, and of each edge's first one.
        self._nodes: dict[Unit, FleetNode] = {}
        self._by_block = False

    def serial(self) -> int:
        """Return a number never returned before."""
        self._serial += 1
        return self._serial

    # -- engines

    def add_engine(self, name: WorkerId, cache: Cache) -> None:
        """Follow the cache of an engine from now on. O(what it holds of waiting prompts)."""
        assert name not in self.engines, name
        engine = self.engines[name] = EngineAnchors(name, cache)
        if isinstance(cache, PathCache):
            assert not self._by_block, "caches of one fleet are of one kind"
            cache.listen(_PathWatch(self, engine))
        else:
            self._by_block = True
            watch = _BlockWatch(self, engine)
            cache.listen(watch)
            if isinstance(cache, BlockCache):
                engine.stop = partial(cache.unlisten, watch)
        self._extend(engine, self.root)

    def remove_engine(self, name: WorkerId) -> None:
        """Forget an engine. O(its anchors)."""
        engine = self.engines.pop(name)
        for _, _, node in engine.anchors:
            del node.cached[engine]
        engine.anchors.clear()
        self._changed.pop(engine, None)
        if engine.stop is not None:
            engine.stop()

    def knows(self, engine: EngineAnchors) -> bool:
        """Return whether the engine was not removed. O(1)."""
        return self.engines.get(engine.name) is engine

    def catch_up(self, engine: EngineAnchors) -> None:
        """Apply the pending changes of the engine's token tree. O(their paths)."""
        if engine.pending:
            for grown, tokens, length in engine.pending:
                (self._raise if grown else self._lower)(engine, tokens, length)
            engine.pending.clear()
            del self._changed[engine]

    # -- prompts

    def place(self, key: Runs, end: int) -> FleetNode:
        """Return the node at which key[:end] ends, created if necessary. O(end, and engines that hold it)."""
        for engine in list(self._changed):  # or the new node would be ahead of the others
            self.catch_up(engine)
        node, at = descend(self.root, key, end)
        if at < node.end:
            node = self._split(node, at)
        return node if at == end else self._grow(node, key, end)

    def prune(self, node: FleetNode) -> None:
        """Remove nodes without waiting requests, from `node` upwards. O(depth, engines there)."""
        while node.parent is not None and not node.own:
            parent = node.parent
            if node.children:
                if len(node.children) == 1:
                    self._merge(node, next(iter(node.children.values())))
                return
            for engine in list(node.cached):
                self._set(engine, node, 0)
            self._unregister(node)
            remove_leaf(node)
            node = parent

    def _grow(self, parent: FleetNode, key: Runs, end: int) -> FleetNode:
        """Create a leaf, and make it an anchor of the engines that hold part of it."""
        start = parent.end
        leaf = FleetNode(parent, key.unit(start), key, end, self.serial())
        add_leaf(leaf)
        if self._by_block:
            self._nodes.setdefault(leaf.first, leaf)
        for engine in self._holders(parent, key):
            if self._reaches(engine, parent):
                cached = engine.leading(key, start, end)
                if cached:
                    self._set(engine, leaf, cached)
        return leaf

    def _holders(self, parent: FleetNode, key: Runs) -> Iterable[EngineAnchors]:
        """Return engines that may hold more of `key` than the path to `parent`."""
        if self._finder is not None:
            names = [
                name
                for length, holders in self._finder(key.units()).by_length
                if length > parent.end
                for name in holders
            ]
            return [self.engines[name] for name in names if name in self.engines]
        return list(parent.cached) if parent.parent is not None else self.engines.values()

    def _reaches(self, engine: EngineAnchors, node: FleetNode) -> bool:
        """Return whether the engine holds all of the path to the node's end. O(1)."""
        return node.parent is None or node.cached.get(engine) == node.end - node.start

    def _split(self, node: FleetNode, at: int) -> FleetNode:
        """Split the edge into `node` at depth `at`; return the new upper half. O(engines, clients there)."""
        upper = FleetNode(node.parent, node.first, node.key, at, self.serial())
        held = list(node.cached.items())
        for engine, _ in held:
            self._set(engine, node, 0)
        self._unregister(node)
        insert_above(upper, node)
        self._listener.on_split(upper, node)
        self._register(upper)
        self._register(node)
        length = at - upper.start
        for engine, cached in held:
            self._set(engine, upper, min(cached, length))
            if cached > length:
                self._set(engine, node, cached - length)
        return upper

    def _merge(self, node: FleetNode, child: FleetNode) -> None:
        """Undo a split: the only child takes the node's edge, too. O(engines that hold it)."""
        length = node.end - node.start
        held = {
            engine: cached + (child.cached.get(engine, 0) if cached == length else 0)
            for engine, cached in node.cached.items()
        }
        for each in (child, node):
            for engine in list(each.cached):
                self._set(engine, each, 0)
            self._unregister(each)
        merge_into_child(node)
        node.parent = None
        self._listener.on_merged(node, child)
        self._register(child)
        for engine, cached in held.items():
            self._set(engine, child, cached)

    # -- what engines hold

    def _set(self, engine: EngineAnchors, node: FleetNode, cached: int) -> None:
        """Set how many units of the node's edge the engine holds. O(its anchors), at C speed."""
        before = node.cached.get(engine, 0)
        if before:
            item = (-(node.start + before), node.serial, node)
            at = bisect_left(engine.anchors, item[:2], key=_without_node)
            assert engine.anchors[at][2] is node, (engine.name, node.start)
            del engine.anchors[at]
        if not cached:
            node.cached.pop(engine, None)
            return
        node.cached[engine] = cached
        insort(engine.anchors, (-(node.start + cached), node.serial, node))
        if node.ranks is None:
            self._listener.on_warm(node)
            self._register(node)

    def _extend(self, engine: EngineAnchors, node: FleetNode) -> None:
        """Make anchors of the children that the engine holds, and so on. O(children)."""
        for child in list((node.children or {}).values()):
            cached = engine.leading(child.key, child.start, child.end)
            if cached:
                self._set(engine, child, cached)
                if cached == child.end - child.start:
                    self._extend(engine, child)

    def _forget_below(self, engine: EngineAnchors, node: FleetNode) -> None:
        """Remove the engine's anchors below a node that it no longer holds. O(children or anchors)."""
        children = node.children or {}
        if len(children) <= len(engine.anchors):
            below = [child for child in children.values() if engine in child.cached]
        else:
            below = [each[2] for each in engine.anchors if each[2].parent is node]
        for child in below:
            self._forget_below(engine, child)
            self._set(engine, child, 0)

    def _raise(self, engine: EngineAnchors, tokens: Runs, length: int) -> None:
        node, at = descend(self.root, tokens, length)
        path = list(path_to(node))
        for each in reversed(path):  # from above: what is above an anchor is held in full
            cached = min(at, each.end) - each.start
            if cached > each.cached.get(engine, 0):
                self._set(engine, each, cached)

    def _lower(self, engine: EngineAnchors, tokens: Runs, length: int) -> None:
        node, at = descend(self.root, tokens, len(tokens))
        while at > length:
            assert node.parent is not None
            keep = max(0, length - node.start)
            if node.cached.get(engine, 0) > keep:
                self._forget_below(engine, node)
                self._set(engine, node, keep)
            node = node.parent
            at = node.end

    # -- caches of blocks

    def inserted(self, engine: EngineAnchors, block: Unit) -> None:
        """Apply that an engine holds a block that it did not hold. O(blocks that follow).

        A child of this node that the engine has held all along, behind a gap, is found only among few.
        """
        node = self._nodes.get(block)
        if node is None:
            return
        units, at = node.key.units(), node.start + node.cached.get(engine, 0)
        if at == node.end or units[at] != block:
            return  # behind a gap, which the block before it closes
        assert node.parent is not None
        if at == node.start and not self._reaches(engine, node.parent):
            return
        # What was cached of this edge still is, so only what follows is counted.
        cached = at - node.start + engine.leading(node.key, at, node.end)
        self._set(engine, node, cached)
        if cached == node.end - node.start and len(node.children or ()) <= _FEW_CHILDREN:
            self._extend(engine, node)

    def evicted(self, engine: EngineAnchors, block: Unit) -> None:
        """Apply that an engine no longer holds a block. O(blocks of the edge), at C speed."""
        node = self._nodes.get(block)
        if node is None:
            return
        cached = node.cached.get(engine, 0)
        if not cached:
            return
        units, last = node.key.units(), node.start + cached - 1
        if units[last] != block:  # engines evict from the tail, so mostly it is
            held = units[node.start : last]
            if block not in held:
                return
            last = node.start + held.index(block)
        if cached == node.end - node.start:
            self._forget_below(engine, node)
        self._set(engine, node, last - node.start)

    def has(self, block: Unit) -> bool:
        """Return whether a waiting prompt begins with what this cached block ends. O(1)."""
        return block in self._nodes

    def _register(self, node: FleetNode) -> None:
        """Note at which node the units of its edge are: all once an engine may hold them, or the first."""
        if self._by_block:
            end = node.start + 1 if node.ranks is None else node.end
            for unit in node.key.units()[node.start : end]:
                self._nodes.setdefault(unit, node)

    def _unregister(self, node: FleetNode) -> None:
        if self._by_block:
            end = node.start + 1 if node.ranks is None else node.end
            for unit in node.key.units()[node.start : end]:
                if self._nodes.get(unit) is node:
                    del self._nodes[unit]

    def note(self, engine: EngineAnchors, grown: bool, tokens: Runs, length: int) -> None:
        """Collect a change of an engine's token tree until its next query. O(1)."""
        if self.root.children:
            engine.pending.append((grown, tokens, length))
            self._changed[engine] = None
            if len(engine.pending) > _MOST_CHANGES:
                self.catch_up(engine)


class _PathWatch:
    """Passes the changes of one engine's token tree on."""

    def __init__(self, trie: FleetTrie, engine: EngineAnchors) -> None:
        self._trie, self._engine = trie, engine

    def grew(self, tokens: Runs, length: int) -> None:
        """See `TreeListener`."""
        if self._trie.knows(self._engine):
            self._trie.note(self._engine, True, tokens, length)

    def shrank(self, tokens: Runs, length: int) -> None:
        """See `TreeListener`."""
        if self._trie.knows(self._engine):
            self._trie.note(self._engine, False, tokens, length)


class _BlockWatch:
    """Passes the changes of one engine's set of blocks on."""

    def __init__(self, trie: FleetTrie, engine: EngineAnchors) -> None:
        self._trie, self._engine = trie, engine

    def inserted(self, block_hash: Unit) -> None:
        """See `BlockListener`."""
        if self._trie.knows(self._engine):
            self._trie.inserted(self._engine, block_hash)

    def evicted(self, block_hash: Unit) -> None:
        """See `BlockListener`."""
        if self._trie.knows(self._engine):
            self._trie.evicted(self._engine, block_hash)


def _without_node(item: tuple[int, int, FleetNode]) -> tuple[int, int]:
    return item[:2]

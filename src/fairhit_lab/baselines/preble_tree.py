"""Preble's global tree: which worker holds and runs which prefix, and what each worker evicts next.

A worker *holds* a node if the router believes its prefix cached there. The router gets no cache events: it
keeps the least recently used order of each worker itself, up to a `capacity` in tokens. Costs and choices are
in `preble.py`.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from fairhit.core.cache.token_runs import Runs
from fairhit.core.cache.trie import (
    add_leaf,
    checked_nodes,
    descend,
    insert_above,
    path_to,
    remove_leaf,
)
from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import Unit, WorkerId


class Share:
    """State of one worker that holds a node."""

    __slots__ = ("below", "used")

    def __init__(self, below: int, used: int) -> None:
        self.below = below  # children of the node that the worker holds
        self.used = used  # sequence number of the last use there


class PrebleNode:
    """A trie node (see `trie`); a leaf is where some prompt ended."""

    __slots__ = (
        "children", "end", "first", "holders", "key", "parent", "runs", "serial", "start", "stat",
    )  # fmt: skip

    def __init__(
        self, parent: "PrebleNode | None", first: Unit, key: Runs, end: int, serial: int
    ) -> None:
        self.parent = parent
        self.first = first
        self.key = key
        self.start: int = parent.end if parent else 0
        self.end: int = end
        self.serial = serial
        self.children: dict[Unit, PrebleNode] | None = None
        self.holders: dict[WorkerId, Share] = {}
        self.runs: dict[WorkerId, int] = {}  # ref[g]: requests through it that run there
        self.stat: Stat | None = None

    @property
    def is_large(self) -> bool:
        """Return whether n > C - n: the edge is longer than the path above it."""
        return self.end - self.start > self.start


class Stat:
    """Statistics of an important node in the sliding window; a split may move them to the upper half."""

    __slots__ = ("count", "node", "output_len", "waits")

    def __init__(self, node: PrebleNode) -> None:
        self.node: PrebleNode | None = node  # None once no worker holds it
        self.count = 0  # requests in the window
        self.output_len = 0  # what the last one may emit
        self.waits: deque[tuple[int, int]] = deque()  # (when, time to first token), oldest first


class PrebleTree:
    """Structure and recency; `weigh` is called before (-1) and after (+1) each change of a cost."""

    def __init__(self, *, capacity: int) -> None:
        self.tokens: dict[WorkerId, int] = {}  # held by each worker
        self._capacity = capacity
        self._root = PrebleNode(None, None, Runs(()), 0, 0)
        self._serial = 0
        self._leaves: dict[WorkerId, LazyHeap[tuple[int, int, PrebleNode]]] = {}

    def weigh(self, stat: Stat, sign: int) -> None:
        """Update the costs of the holders of `stat`'s node, which will change (-1) or have changed (+1)."""

    def add_worker(self, worker: WorkerId) -> None:
        """Add `worker`, which holds nothing."""
        assert worker not in self.tokens, worker
        self.tokens[worker] = 0
        self._leaves[worker] = LazyHeap()

    def remove_worker(self, worker: WorkerId) -> None:
        """Remove `worker` with all it held and ran. O(what it held)."""
        for node in self._below(self._root, worker):
            self._weighed(node, -1)
            node.runs.pop(worker, None)
            node.holders.pop(worker, None)
            self._weighed(node, 1)
            self._prune(node)
        del self.tokens[worker], self._leaves[worker]

    def find(self, prompt: Sequence[Unit]) -> tuple[PrebleNode, int]:
        """Find the deepest node whose edge the prompt reaches, and the matched length. Pure. O(prompt)."""
        return descend(self._root, Runs.of(prompt), len(prompt))

    def insert(self, prompt: Sequence[Unit]) -> PrebleNode:
        """Find or make the node at which the prompt ends. O(prompt)."""
        node, at = self.find(prompt)
        if at < node.end:
            node = self._split(node, at)
        if at < len(prompt):
            key = Runs.of(prompt)
            node = PrebleNode(node, key.unit(at), key, key.length, self._next())
            add_leaf(node)
        return node

    def begin(self, leaf: PrebleNode, worker: WorkerId) -> None:
        """Count a request whose prompt ends at `leaf` as running at `worker`, which holds it. O(depth)."""
        self.hold(leaf, worker)
        for node in path_to(leaf):
            self._weighed(node, -1)
            node.runs[worker] = node.runs.get(worker, 0) + 1
            self._weighed(node, 1)

    def end(self, leaf: PrebleNode, worker: WorkerId) -> None:
        """Count a request that `begin` counted as ended. O(depth)."""
        for node in path_to(leaf):
            self._weighed(node, -1)
            node.runs[worker] -= 1
            if not node.runs[worker]:
                del node.runs[worker]
            self._weighed(node, 1)
            self._offer(node, worker)
            self._prune(node)

    def hold(self, leaf: PrebleNode, worker: WorkerId) -> None:
        """Make `worker` a holder of `leaf` and its ancestors, used now. O(depth + holders of new nodes)."""
        used, held = self._next(), 0
        for node in path_to(leaf):
            if share := node.holders.get(worker):
                share.below += held
                share.used = used
                held = 0
            else:
                self._weighed(node, -1)
                node.holders[worker] = Share(held, used)
                self._weighed(node, 1)
                self.tokens[worker] += node.end - node.start
                held = 1
            self._offer(node, worker)

    def drop(self, top: PrebleNode, worker: WorkerId) -> None:
        """Remove `worker` from the holders of `top` and its descendants. O(subtree)."""
        if worker not in top.holders:
            return
        parent = top.parent
        for node in (*self._below(top, worker), top):
            if worker in node.holders:  # else it is only running there
                self._weighed(node, -1)
                del node.holders[worker]
                self._weighed(node, 1)
                self.tokens[worker] -= node.end - node.start
                self._prune(node)
        if parent is not None and (share := parent.holders.get(worker)):
            share.below -= 1
            self._offer(parent, worker)

    def evict(self, worker: WorkerId) -> None:
        """Drop the least recently used nodes of `worker` while it holds more than its capacity."""
        leaves = self._leaves[worker]
        while self.tokens[worker] > self._capacity:
            leaf = leaves.top(lambda item: _is_evictable(item, worker))
            if leaf is None:
                return  # all of it is running
            leaves.drop()
            self.drop(leaf[2], worker)

    def victims(self, worker: WorkerId, size: int) -> Iterator[PrebleNode]:
        """Yield what an eviction of `size` tokens would drop: least recently used, not running. Pure.

        O(k log k) for k nodes: the heap is walked from its top, not emptied.
        """
        heap = self._leaves[worker]
        front: list[tuple[tuple[int, int, PrebleNode], int]] = [(heap[0], 0)] if heap else []
        dropped: dict[PrebleNode, int] = {}  # children yielded so far, by parent
        seen: set[PrebleNode] = set()
        while front and size > 0:
            item, at = heappop(front)
            if at >= 0:
                for below in (2 * at + 1, 2 * at + 2):
                    if below < len(heap):
                        heappush(front, (heap[below], below))
            node = item[2]
            if node in seen or (at >= 0 and not _is_evictable(item, worker)):
                continue
            seen.add(node)
            yield node
            size -= node.end - node.start
            parent = node.parent
            assert parent is not None
            share = parent.holders.get(worker)
            if share is not None:
                dropped[parent] = dropped.get(parent, 0) + 1
                if dropped[parent] == share.below and worker not in parent.runs:
                    heappush(front, ((share.used, parent.serial, parent), -1))

    def check(self) -> None:
        """Assert every invariant. O(tree)."""
        tokens = dict.fromkeys(self.tokens, 0)
        for node in checked_nodes(self._root):
            children = list((node.children or {}).values())
            for worker, share in node.holders.items():
                tokens[worker] += node.end - node.start
                assert share.below == sum(worker in child.holders for child in children)
                assert node.parent is self._root or worker in node.parent.holders  # type: ignore[union-attr]
            assert node.holders or node.runs or children or node is self._root
            assert node.stat is None or node.stat.node is node
        assert tokens == self.tokens, (tokens, self.tokens)

    def _split(self, node: PrebleNode, at: int) -> PrebleNode:
        """Split the edge of `node` at depth `at`; the new upper half, with the same holders."""
        self._weighed(node, -1)
        upper = PrebleNode(node.parent, node.first, node.key, at, self._next())
        upper.holders = {worker: Share(1, share.used) for worker, share in node.holders.items()}
        upper.runs = node.runs.copy()
        insert_above(upper, node)
        if node.stat is not None and upper.is_large and not node.is_large:
            upper.stat, node.stat = node.stat, None
            upper.stat.node = upper
        self._weighed(upper, 1)
        self._weighed(node, 1)
        return upper

    def _prune(self, node: PrebleNode) -> None:
        """Remove `node` if no worker holds or runs it, then its ancestors likewise."""
        while not (node.holders or node.runs or node.children) and node.parent is not None:
            if node.stat is not None:
                node.stat.node = None
                node.stat = None
            node = remove_leaf(node)

    def _weighed(self, node: PrebleNode, sign: int) -> None:
        if node.stat is not None:
            self.weigh(node.stat, sign)

    def _offer(self, node: PrebleNode, worker: WorkerId) -> None:
        share = node.holders.get(worker)
        if share is not None and not share.below and worker not in node.runs:
            item = (share.used, node.serial, node)
            self._leaves[worker].push(item, lambda each: _is_evictable(each, worker))

    @staticmethod
    def _below(top: PrebleNode, worker: WorkerId) -> list[PrebleNode]:
        """List the nodes below `top` that the worker holds or runs, the deepest first."""
        found = [top]
        for node in found:
            for child in (node.children or {}).values():
                if worker in child.holders or worker in child.runs:
                    found.append(child)
        return found[:0:-1]

    def _next(self) -> int:
        self._serial += 1
        return self._serial


def _is_evictable(item: tuple[int, int, PrebleNode], worker: WorkerId) -> bool:
    """Return whether an entry of a worker's eviction heap still describes its node."""
    used, _, node = item
    share = node.holders.get(worker)
    return share is not None and share.used == used and not share.below and worker not in node.runs

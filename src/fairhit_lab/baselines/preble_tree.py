"""Preble's global tree: every prompt once, who has it cached, who runs it, and what goes next.

A worker *holds* a stretch of prompt if the router believes it cached there: it holds all above it,
too. Nobody tells the router; it keeps each worker's least recently used order by itself, up to a
`capacity` in tokens. Costs and choices are in `preble.py`.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from fairhit.core.cache.edge_walk import descend
from fairhit.core.cache.token_runs import Runs
from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import Unit, WorkerId


class Share:
    """One worker's hold of a stretch."""

    __slots__ = ("below", "used")

    def __init__(self, below: int, used: int) -> None:
        self.below = below  # children of the stretch that the worker holds
        self.used = used  # the number of its last use there


class PrebleNode:
    """The tokens `key[start:end]`; a leaf is where some prompt ended or parted from another."""

    __slots__ = (
        "children", "end", "holders", "key", "parent", "runs", "serial", "start", "stat",
    )  # fmt: skip

    def __init__(
        self, parent: "PrebleNode | None", key: Runs, start: int, end: int, serial: int
    ) -> None:
        self.parent = parent
        self.key, self.start, self.end = key, start, end
        self.serial = serial
        self.children: dict[Unit, PrebleNode] | None = None
        self.holders: dict[WorkerId, Share] = {}
        self.runs: dict[WorkerId, int] = {}  # ref[g]: requests through it that run there
        self.stat: Stat | None = None

    @property
    def is_large(self) -> bool:
        """n > C - n: its own tokens are more than all above it."""
        return self.end - self.start > self.start


class Stat:
    """What the sliding window says of an important stretch; it may move to another by a split."""

    __slots__ = ("count", "node", "output_len", "waits")

    def __init__(self, node: PrebleNode) -> None:
        self.node: PrebleNode | None = node  # None once nobody holds it
        self.count = 0  # requests in the window
        self.output_len = 0  # what the last one may emit
        self.waits: deque[tuple[int, int]] = deque()  # (when, time to first token), oldest first


class PrebleTree:
    """The structure and the recency; `weigh` hears before (-1) and after (+1) a counted change."""

    def __init__(self, *, capacity: int) -> None:
        self.tokens: dict[WorkerId, int] = {}  # held by each worker
        self._capacity = capacity
        self._root = PrebleNode(None, Runs(()), 0, 0, 0)
        self._serial = 0
        self._leaves: dict[WorkerId, LazyHeap[tuple[int, int, PrebleNode]]] = {}

    def weigh(self, stat: Stat, sign: int) -> None:
        """What the stretch of `stat` costs its holders is about to change (-1), or has (+1)."""

    def add_worker(self, worker: WorkerId) -> None:
        """`worker` is up and holds nothing."""
        assert worker not in self.tokens, worker
        self.tokens[worker] = 0
        self._leaves[worker] = LazyHeap()

    def remove_worker(self, worker: WorkerId) -> None:
        """`worker` is gone with all it held and ran. O(what it held)."""
        for node in self._below(self._root, worker):
            self._weighed(node, -1)
            node.runs.pop(worker, None)
            node.holders.pop(worker, None)
            self._weighed(node, 1)
            self._prune(node)
        del self.tokens[worker], self._leaves[worker]

    def find(self, prompt: Sequence[Unit]) -> tuple[PrebleNode, int]:
        """The deepest stretch that the prompt reaches into, and how far. Pure. O(prompt)."""
        return descend(self._root, Runs.of(prompt), len(prompt))

    def insert(self, prompt: Sequence[Unit]) -> PrebleNode:
        """The stretch at which the prompt ends, made if it is not there. O(prompt)."""
        node, at = self.find(prompt)
        if at < node.end:
            node = self._split(node, at)
        if at < len(prompt):
            leaf = PrebleNode(node, Runs.of(prompt), at, len(prompt), self._next())
            node.children = node.children or {}
            node.children[leaf.key[at]] = leaf
            node = leaf
        return node

    def begin(self, leaf: PrebleNode, worker: WorkerId) -> None:
        """A request whose prompt ends at `leaf` runs at `worker`, which holds it now. O(depth)."""
        self.hold(leaf, worker)
        for node in self.path(leaf):
            self._weighed(node, -1)
            node.runs[worker] = node.runs.get(worker, 0) + 1
            self._weighed(node, 1)

    def end(self, leaf: PrebleNode, worker: WorkerId) -> None:
        """It ended there. O(depth)."""
        for node in list(self.path(leaf)):
            self._weighed(node, -1)
            node.runs[worker] -= 1
            if not node.runs[worker]:
                del node.runs[worker]
            self._weighed(node, 1)
            self._offer(node, worker)
            self._prune(node)

    def hold(self, leaf: PrebleNode, worker: WorkerId) -> None:
        """`worker` holds `leaf` and all above it, used just now. O(depth + holders of new ones)."""
        used, held = self._next(), 0
        for node in self.path(leaf):
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
        """`worker` no longer holds `top` nor anything below it. O(subtree)."""
        if worker not in top.holders:
            return
        parent = top.parent
        for node in (*self._below(top, worker), top):
            if worker in node.holders:  # else it only runs there
                self._weighed(node, -1)
                del node.holders[worker]
                self._weighed(node, 1)
                self.tokens[worker] -= node.end - node.start
                self._prune(node)
        if parent is not None and (share := parent.holders.get(worker)):
            share.below -= 1
            self._offer(parent, worker)

    def evict(self, worker: WorkerId) -> None:
        """Forget what is least recently used there, while it holds more than its capacity."""
        leaves = self._leaves[worker]
        while self.tokens[worker] > self._capacity:
            leaf = leaves.top(lambda item: _may_go(item, worker))
            if leaf is None:
                return  # all of it runs
            leaves.drop()
            self.drop(leaf[2], worker)

    def victims(self, worker: WorkerId, size: int) -> Iterator[PrebleNode]:
        """What would go if `size` tokens had to: the least recently used that do not run. Pure.

        O(k log k) for k of them: the heap is walked from its top, not emptied.
        """
        heap = self._leaves[worker]
        front: list[tuple[tuple[int, int, PrebleNode], int]] = [(heap[0], 0)] if heap else []
        gone: dict[PrebleNode, int] = {}  # and of others, how many children are
        seen: set[PrebleNode] = set()
        while front and size > 0:
            item, at = heappop(front)
            if at >= 0:
                for below in (2 * at + 1, 2 * at + 2):
                    if below < len(heap):
                        heappush(front, (heap[below], below))
            node = item[2]
            if node in seen or (at >= 0 and not _may_go(item, worker)):
                continue
            seen.add(node)
            yield node
            size -= node.end - node.start
            parent = node.parent
            assert parent is not None
            share = parent.holders.get(worker)
            if share is not None:
                gone[parent] = gone.get(parent, 0) + 1
                if gone[parent] == share.below and worker not in parent.runs:
                    heappush(front, ((share.used, parent.serial, parent), -1))

    @staticmethod
    def path(leaf: PrebleNode) -> Iterator[PrebleNode]:
        """`leaf` and all above it but the root."""
        node = leaf
        while node.parent is not None:
            yield node
            node = node.parent

    def check(self) -> None:
        """Assert every invariant. O(tree)."""
        tokens = dict.fromkeys(self.tokens, 0)
        stack = [self._root]
        while stack:
            node = stack.pop()
            children = list((node.children or {}).values())
            for worker, share in node.holders.items():
                tokens[worker] += node.end - node.start
                assert share.below == sum(worker in child.holders for child in children)
                assert node.parent is self._root or worker in node.parent.holders  # type: ignore[union-attr]
            assert node.holders or node.runs or children or node is self._root
            assert node.stat is None or node.stat.node is node
            stack += children
        assert tokens == self.tokens, (tokens, self.tokens)

    def _split(self, node: PrebleNode, at: int) -> PrebleNode:
        """The new upper half: the same workers hold and run it."""
        parent, key = node.parent, node.key
        assert node.start < at < node.end and parent is not None and parent.children
        self._weighed(node, -1)
        upper = PrebleNode(parent, key, node.start, at, self._next())
        upper.holders = {worker: Share(1, share.used) for worker, share in node.holders.items()}
        upper.runs = node.runs.copy()
        parent.children[key[node.start]] = upper
        node.start, node.parent = at, upper
        upper.children = {key[at]: node}
        if node.stat is not None and upper.is_large and not node.is_large:
            upper.stat, node.stat = node.stat, None
            upper.stat.node = upper
        self._weighed(upper, 1)
        self._weighed(node, 1)
        return upper

    def _prune(self, node: PrebleNode) -> None:
        """Nobody holds or runs it: it is gone, and so may be what is above it."""
        while not (node.holders or node.runs or node.children) and node.parent is not None:
            parent = node.parent
            assert parent.children
            if node.stat is not None:
                node.stat.node = None
                node.stat = None
            del parent.children[node.key[node.start]]
            node.parent = None
            node = parent

    def _weighed(self, node: PrebleNode, sign: int) -> None:
        if node.stat is not None:
            self.weigh(node.stat, sign)

    def _offer(self, node: PrebleNode, worker: WorkerId) -> None:
        share = node.holders.get(worker)
        if share is not None and not share.below and worker not in node.runs:
            item = (share.used, node.serial, node)
            self._leaves[worker].push(item, lambda each: _may_go(each, worker))

    @staticmethod
    def _below(top: PrebleNode, worker: WorkerId) -> list[PrebleNode]:
        """What the worker holds or runs below `top`, the deepest first."""
        found = [top]
        for node in found:
            for child in (node.children or {}).values():
                if worker in child.holders or worker in child.runs:
                    found.append(child)
        return found[:0:-1]

    def _next(self) -> int:
        self._serial += 1
        return self._serial


def _may_go(item: tuple[int, int, PrebleNode], worker: WorkerId) -> bool:
    """Whether an entry of a worker's eviction order is still true."""
    used, _, node = item
    share = node.holders.get(worker)
    return share is not None and share.used == used and not share.below and worker not in node.runs

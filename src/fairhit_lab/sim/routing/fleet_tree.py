"""Prefix index of the simulator: one tree over the caches of all workers of a fleet.

A worker holds a prefix for one of two reasons. *Confirmed*: the worker's cache events reported it, perhaps
late. *Optimistic*: a request with that prefix was sent to the worker and has not ended. The two are counted
apart, so that a late eviction never removes what was sent after it (DESIGN 3.4).

The gateway's `PrecisePrefixIndex` keeps the same two reasons per block, since engines report blocks. Its
cost grows with the prompt. The edges of a trie are as long as prompts agree, so a simulated prompt of
100,000 tokens costs what one of 100 does. Measured in place of this tree on benchmarks/micro/routing.py,
with blocks of 16 tokens and 256 workers, the blocks took 100 us a request instead of 19, and 860 us at ten
times the length.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.token_runs import Runs
from fairhit.core.cache.trie import (
    add_leaf,
    checked_nodes,
    descend,
    insert_above,
    merge_into_child,
    remove_leaf,
    shorten_keys,
)
from fairhit.core.request import Request, Unit, WorkerId

_CONFIRMED = 1  # in a node's `holders`; each request in flight through the node adds _OPTIMISTIC
_OPTIMISTIC = 2


class _Node:
    """A trie node (see `trie`); each of its holders holds all of its edge and of the edges above."""

    __slots__ = (
        "children", "confirmed", "end", "first", "holders", "in_flight", "key", "parent", "start",
    )  # fmt: skip

    def __init__(self, parent: "_Node | None", first: Unit, key: Runs, end: int) -> None:
        self.parent = parent
        self.first = first
        self.key = key
        self.start: int = parent.end if parent else 0
        self.end: int = end
        self.children: dict[Unit, _Node] | None = None
        self.holders: dict[WorkerId, int] = {}
        self.confirmed = 0  # holders that are confirmed
        self.in_flight = 0  # requests in flight whose prompt ends here


# A request in flight: its worker, and the node at which its prompt ends.
_Sent: TypeAlias = tuple[WorkerId, _Node]


class FleetTree:
    """The workers' caches as far as a router can know them, in tokens.

    At most `max_nodes` nodes are kept. Beyond, prefixes are not entered and `skipped` counts them, until
    something is evicted: matches are then too short, never too long.
    """

    def __init__(self, *, max_nodes: int = 4_000_000) -> None:
        assert max_nodes >= 1, max_nodes
        self.skipped = 0
        self._max_nodes = max_nodes
        self._root = _Node(None, None, Runs(()), 0)
        self._nodes = 0
        self._workers: dict[WorkerId, None] = {}
        self._sent: dict[Request, _Sent] = {}
        # The last prompt matched, and where its match ends; None once the tree has changed. The same
        # prompt is sent next.
        self._matched: Runs | None = None
        self._match: tuple[_Node, int] = (self._root, 0)
        # The last leaf made for each prompt, by the identity of the prompt, while it is the node's key.
        # Most events are of such a prompt and then need no walk.
        self._leaves: dict[int, _Node] = {}

    def __len__(self) -> int:
        """Number of nodes."""
        return self._nodes

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._workers

    def add_worker(self, worker: WorkerId) -> None:
        """Add `worker` with an empty cache. O(1)."""
        assert worker not in self._workers, worker
        self._workers[worker] = None

    def drop_worker(self, worker: WorkerId) -> None:
        """Remove `worker` with all it holds or was sent. O(its nodes and their children, requests)."""
        del self._workers[worker]
        for request, (to, node) in list(self._sent.items()):
            if to == worker:
                node.in_flight -= 1
                del self._sent[request]
        for node in reversed(list(self._held_by(worker))):  # children before their parents
            self._take(node, worker, node.holders[worker])

    def match(self, prompt: Sequence[Unit], end: int) -> PrefixMatches:
        """Find how much of `prompt[:end]` each worker holds; valid until the tree changes. O(match).

        Remembers where the match ends for `sent`; that changes no answer.
        """
        key = Runs.of(prompt)
        node, at = self._match = descend(self._root, key, end)
        self._matched = key if at < end else None
        by_length = []
        while at:
            by_length.append((at, node.holders))
            assert node.parent is not None
            node = node.parent
            at = node.end
        return PrefixMatches(by_length)

    def sent(self, request: Request, worker: WorkerId) -> None:
        """Enter the prompt of `request`, sent to `worker`, as optimistic until `ended`. O(prompt)."""
        assert worker in self._workers and request not in self._sent, (request, worker)
        node = self._reach(request.prompt, len(request.prompt))
        node.in_flight += 1
        self._sent[request] = worker, node
        while (above := node.parent) is not None:
            self._give(node, worker, _OPTIMISTIC)
            node = above

    def ended(self, request: Request) -> None:
        """Remove the optimistic entry of `request`, if there is one. O(depth).

        What the worker keeps of the prompt has been confirmed before, if the request was served.
        """
        entry = self._sent.pop(request, None)
        if entry is None:
            return
        worker, node = entry
        node.in_flight -= 1
        while (above := node.parent) is not None:
            self._take(node, worker, _OPTIMISTIC)
            node = above

    def grew(self, worker: WorkerId, tokens: Sequence[Unit], length: int) -> None:
        """Confirm that `worker` holds all of `tokens[:length]`. O(length); O(depth) if it was sent there."""
        assert worker in self._workers, worker
        leaf = self._leaves.get(id(tokens))
        node = leaf if leaf and leaf.end == length else self._reach(tokens, length)
        while (above := node.parent) is not None:
            if node.holders.get(worker, 0) & _CONFIRMED:  # then all ancestors are confirmed, too
                self._merge_if_same(node)
                return
            self._give(node, worker, _CONFIRMED)
            node = above

    def shrank(self, worker: WorkerId, tokens: Sequence[Unit], length: int) -> None:
        """Confirm that of `tokens` `worker` holds only `tokens[:length]`. O(tokens), mostly O(1)."""
        assert worker in self._workers, worker
        self._matched = None
        leaf = self._leaves.get(id(tokens))
        if leaf and not leaf.children:  # no worker holds more of the prompt
            node, at = leaf, leaf.end
        else:
            node, at = descend(self._root, Runs.of(tokens), len(tokens))
        kept: _Node | None = None  # parent of the last node taken
        while at > length:
            assert node.parent is not None
            above = node.parent
            if node.holders.get(worker, 0) & _CONFIRMED:
                if node.start < length and not node.children and node.holders == {worker: 1}:
                    node.end = length  # the most frequent case: held by this worker alone
                    return
                if node.start < length and self._nodes < self._max_nodes:
                    self._split(node, length)
                # All of the node: what continues `tokens[:length]` otherwise has been evicted, too.
                kept = node.parent
                self._take(node, worker, _CONFIRMED)
            node, at = above, above.end
        if kept is not None:
            self._merge_if_same(kept)

    def check(self) -> None:
        """Assert every invariant. O(tree)."""
        in_flight: dict[int, int] = {}
        for _, node in self._sent.values():
            in_flight[id(node)] = in_flight.get(id(node), 0) + 1
        nodes, leaves = 0, self._leaves.copy()
        for node in checked_nodes(self._root):
            assert node.in_flight == in_flight.pop(id(node), 0)
            if leaves.get(id(node.key)) is node:
                del leaves[id(node.key)]
            if node.parent is None:
                continue
            nodes += 1
            assert node.holders and set(node.holders) <= set(self._workers)
            assert node.confirmed == sum(held & _CONFIRMED for held in node.holders.values())
            assert not self._is_redundant(node), "its only child has the same holders"
            for worker, held in node.holders.items() if node.parent.parent else ():
                above = node.parent.holders[worker]
                assert above >= held and above & _CONFIRMED >= held & _CONFIRMED
        assert (nodes, in_flight, leaves) == (self._nodes, {}, {}), (nodes, self._nodes)
        assert nodes <= self._max_nodes

    def _reach(self, tokens: Sequence[Unit], end: int) -> _Node:
        """Find or make the node at which tokens[:end] ends; if the tree is full, the last one before."""
        key = Runs.of(tokens)
        node, at = self._match
        if key is not self._matched or at > end:
            node, at = descend(self._root, key, end)
        if at < node.end:
            if self._is_full():
                return node.parent or node
            node = self._split(node, at)
        if at < end and not self._is_full():
            node = _Node(node, key.unit(at), key, end)
            add_leaf(node)
            self._leaves[id(key)] = node
            self._nodes += 1
            self._matched = None
        return node

    def _is_full(self) -> bool:
        """Return whether no node can be added, and count the prefix as skipped if so."""
        full = self._nodes >= self._max_nodes
        self.skipped += full
        return full

    def _split(self, node: _Node, at: int) -> _Node:
        """Split the edge of `node` at depth `at`; the new upper half, with the same holders."""
        upper = _Node(node.parent, node.first, node.key, at)
        upper.holders, upper.confirmed = node.holders.copy(), node.confirmed
        insert_above(upper, node)
        self._nodes += 1
        self._matched = None
        return upper

    def _give(self, node: _Node, worker: WorkerId, reason: int) -> None:
        """Add a reason why `worker` holds `node`. O(1)."""
        node.holders[worker] = node.holders.get(worker, 0) + reason
        node.confirmed += reason & _CONFIRMED
        if node.children and len(node.children) == 1:
            self._merge_if_same(node)

    def _take(self, node: _Node, worker: WorkerId, reasons: int) -> None:
        """Remove reasons why `worker` holds `node`, and the node if it has no holder left. O(1)."""
        left = node.holders[worker] - reasons
        assert left >= 0, (worker, left)
        node.confirmed -= reasons & _CONFIRMED
        if left:
            node.holders[worker] = left
        else:
            del node.holders[worker]
        if not node.holders:
            self._remove(node)
        elif node.children and len(node.children) == 1:
            self._merge_if_same(node)

    def _merge_if_same(self, node: _Node) -> None:
        """Merge `node` into its only child if both have the same holders. O(1)."""
        if not self._is_redundant(node):
            return
        key = node.key
        if merge_into_child(node).key is not key:
            self._leaves.pop(id(key), None)
        self._nodes -= 1
        self._matched = None

    def _remove(self, node: _Node) -> None:
        """Remove a leaf without holders. O(1)."""
        assert not node.in_flight and not node.holders
        self._leaves.pop(id(node.key), None)
        shorten_keys(remove_leaf(node), node.key)
        self._nodes -= 1
        self._matched = None

    @staticmethod
    def _is_redundant(node: _Node) -> bool:
        """Return whether `node` has the same holders as its only child, which all hold `node`, too."""
        if node.parent is None or node.in_flight or not node.children or len(node.children) > 1:
            return False
        (child,) = node.children.values()
        return node.confirmed == child.confirmed and len(node.holders) == len(child.holders)

    def _held_by(self, worker: WorkerId) -> Iterator[_Node]:
        """Yield every node that `worker` holds, parents first."""
        stack = [self._root]
        while stack:
            for child in (stack.pop().children or {}).values():
                if worker in child.holders:
                    yield child
                    stack.append(child)

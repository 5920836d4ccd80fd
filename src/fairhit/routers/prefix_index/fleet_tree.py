"""Which worker holds how much of a prompt: one prefix tree over the caches of a whole fleet.

Two sources. What a worker's own events say is *confirmed*: that is the truth, though it may be late.
What was sent to a worker and is not yet confirmed is *expected*, for as long as the request is on its
way. The two are kept apart, so a late eviction never takes back what was sent after it
(DESIGN 3.4); a worker holds what either says. Copies no prompt, as `RadixTree`.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import TypeAlias

from fairhit.core.cache.edge_walk import descend
from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.token_runs import Runs, common_len
from fairhit.core.request import Request, Unit, WorkerId

# A prompt with more runs and plain tokens than this is not kept alive by stretches that need little
# of it; as in `RadixTree`.
_BULKY = 64
_CONFIRMED = 1  # in a node's `holders`; each request expected to pass counts _EXPECTED
_EXPECTED = 2


class _Node:
    """The units `key[start:end]`, behind `key[:start]`; its holders hold all of them, and no others."""

    __slots__ = (
        "children",
        "confirmed",
        "end",
        "ends",
        "first",
        "holders",
        "key",
        "parent",
        "start",
    )

    def __init__(
        self, parent: "_Node | None", first: Unit, key: Runs, start: int, end: int
    ) -> None:
        self.parent = parent
        self.first = first  # of its units: its name among its parent's children
        self.key, self.start, self.end = key, start, end
        self.children: dict[Unit, _Node] | None = None  # none is the same as empty
        self.holders: dict[WorkerId, int] = {}
        self.confirmed = 0  # how many of the holders are
        self.ends = 0  # requests on their way whose prompt ends here


# A request on its way: where to, the node at which its prompt ends, and when it was sent.
_Ticket: TypeAlias = tuple[WorkerId, _Node, int]


class FleetTree:
    """The workers' caches as far as is known, in units of a prompt.

    At most `max_nodes` stretches of prompt are kept. Beyond that nothing new is learnt until
    something is evicted, and `skipped` counts what was not: matches are then too short, never wrong.
    """

    block_size = 1

    def __init__(self, *, max_nodes: int = 4_000_000) -> None:
        assert max_nodes >= 1, max_nodes
        self.skipped = 0
        self._max_nodes = max_nodes
        self._root = _Node(None, None, Runs(()), 0, 0)
        self._nodes = 0
        self._workers: dict[WorkerId, None] = {}
        self._tickets: OrderedDict[Request, _Ticket] = OrderedDict()  # the first sent first
        # The last prompt that was matched, and where it parts from what is known; None once the tree
        # has changed. What is matched is sent next.
        self._asked: Runs | None = None
        self._parting: tuple[_Node, int] = (self._root, 0)
        # The last node that each prompt made, by the prompt's identity, as long as it is the node's
        # key. Most news are of such a prompt, and then they need no walk.
        self._made: dict[int, _Node] = {}

    def __len__(self) -> int:
        """Stretches of prompt that are kept."""
        return self._nodes

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._workers

    def add_worker(self, worker: WorkerId) -> None:
        """`worker` is up with an empty cache. O(1)."""
        assert worker not in self._workers, worker
        self._workers[worker] = None

    def remove_worker(self, worker: WorkerId) -> None:
        """`worker` is gone with all it had or was sent. O(its nodes and their children, requests)."""
        del self._workers[worker]
        for request, (to, node, _) in list(self._tickets.items()):
            if to == worker:
                node.ends -= 1
                del self._tickets[request]
        for node in reversed(list(self._held_by(worker))):
            # Its parent is still to come: who holds a node holds that, too.
            self._take(node, worker, node.holders[worker])

    def match(self, prompt: Sequence[Unit], end: int) -> PrefixMatches:
        """Who holds how much of `prompt[:end]`. True until the tree changes. O(match).

        It notes where they part, for `expect`; that changes no answer.
        """
        key = Runs.of(prompt)
        node, at = self._parting = descend(self._root, key, end)
        self._asked = key if at < end else None
        levels = []
        while at:
            levels.append((at, node.holders))
            assert node.parent is not None
            node = node.parent
            at = node.end
        return PrefixMatches(levels)

    def expect(self, request: Request, worker: WorkerId, now_us: int) -> None:
        """`request` was sent to `worker`, which will hold its prompt. O(prompt).

        Until `arrived`, or `expire`.
        """
        assert worker in self._workers and request not in self._tickets, (request, worker)
        node = self._reach(request.prompt, len(request.prompt))
        node.ends += 1
        self._tickets[request] = worker, node, now_us
        while (above := node.parent) is not None:
            self._give(node, worker, _EXPECTED)
            node = above

    def arrived(self, request: Request) -> None:
        """Nothing is expected of `request` any more, if it was: the worker's own events have said
        what is cached of it, or it was rejected, cancelled or moved. O(depth).
        """
        ticket = self._tickets.pop(request, None)
        if ticket is None:
            return
        worker, node, _ = ticket
        node.ends -= 1
        while (above := node.parent) is not None:
            self._take(node, worker, _EXPECTED)
            node = above

    def expire(self, before_us: int) -> int:
        """Stop expecting what was sent before that time; how many requests. O(depth) each."""
        count = 0
        while self._tickets:
            request, (_, _, sent_us) = next(iter(self._tickets.items()))
            if sent_us >= before_us:
                break
            self.arrived(request)
            count += 1
        return count

    def grew(self, worker: WorkerId, tokens: Sequence[Unit], length: int) -> None:
        """`worker` says that it holds all of `tokens[:length]`. O(length), or O(depth) if expected."""
        assert worker in self._workers, worker
        made = self._made.get(id(tokens))
        node = made if made and made.end == length else self._reach(tokens, length)
        while (above := node.parent) is not None:
            if node.holders.get(worker, 0) & _CONFIRMED:  # and so are all above
                if node.children and len(node.children) == 1:
                    self._settle(node)
                return
            self._give(node, worker, _CONFIRMED)
            node = above

    def shrank(self, worker: WorkerId, tokens: Sequence[Unit], length: int) -> None:
        """`worker` says that of `tokens` it holds only `tokens[:length]`. O(tokens), mostly O(1)."""
        assert worker in self._workers, worker
        self._asked = None
        made = self._made.get(id(tokens))
        if made and not made.children:  # nobody holds more of them
            node, at = made, made.end
        else:
            node, at = descend(self._root, Runs.of(tokens), len(tokens))
        lost: _Node | None = None
        while at > length:
            assert node.parent is not None
            above = node.parent
            if node.holders.get(worker, 0) & _CONFIRMED:
                if node.start < length and _says_only(node, _CONFIRMED):
                    node.end = length  # mostly: nobody else knew of what was evicted
                    return
                if node.start < length and self._nodes < self._max_nodes:
                    self._split(node, length)
                # All of it: what parts from `tokens` behind `length` is gone, too.
                self._take(node, worker, _CONFIRMED)
                lost = node
            node, at = above, above.end
        if lost is not None and lost.parent is not self._root:
            assert lost.parent is not None
            self._settle(lost.parent)

    def check(self) -> None:
        """Assert every invariant. O(tree)."""
        ends: dict[int, int] = {}
        for _, node, _ in self._tickets.values():
            ends[id(node)] = ends.get(id(node), 0) + 1
        nodes, stack, made = 0, [self._root], self._made.copy()
        while stack:
            node = stack.pop()
            children = node.children or {}
            assert node.ends == ends.pop(id(node), 0)
            if node.parent is not None:
                nodes += 1
                assert node.holders and set(node.holders) <= set(self._workers)
                assert node.confirmed == sum(held & _CONFIRMED for held in node.holders.values())
                assert not self._repeats(node), "it says no more than its only child"
            for first, child in children.items():
                assert child.parent is node and child.key[child.start] == child.first == first
                assert child.start == node.end < child.end <= len(child.key)
                assert common_len(child.key, node.key, 0, node.end) == node.end
                for worker, held in child.holders.items() if node.parent else ():
                    above = node.holders[worker]
                    assert above >= held and above & _CONFIRMED >= held & _CONFIRMED
                stack.append(child)
                if made.get(id(child.key)) is child:
                    del made[id(child.key)]
        assert (nodes, ends, made) == (self._nodes, {}, {}), (nodes, self._nodes)
        assert nodes <= self._max_nodes

    def _reach(self, key: Sequence[Unit], end: int) -> _Node:
        """The node at which key[:end] ends, made if it is not there; the last one before, if full."""
        runs = Runs.of(key)
        node, at = self._parting
        if runs is not self._asked or at > end:
            node, at = descend(self._root, runs, end)
        if at < node.end:
            if self._is_full():
                return node.parent or node
            node = self._split(node, at)
        if at < end:
            if self._is_full():
                return node
            node = self._append(node, runs, at, end)
        return node

    def _is_full(self) -> bool:
        """Whether there is no room for one more; if so, this counts as skipped."""
        full = self._nodes >= self._max_nodes
        self.skipped += full
        return full

    def _append(self, parent: _Node, key: Runs, start: int, end: int) -> _Node:
        node = _Node(parent, key.unit(start), key, start, end)
        if parent.children is None:
            parent.children = {}
        parent.children[node.first] = node
        self._nodes += 1
        self._made[id(key)] = node
        self._asked = None
        return node

    def _split(self, node: _Node, at: int) -> _Node:
        """Cut at depth `at`; the new upper half. `node` is the lower one, so prompts end as before."""
        parent, key = node.parent, node.key
        assert node.start < at < node.end and parent is not None and parent.children
        upper = _Node(parent, node.first, key, node.start, at)
        upper.holders, upper.confirmed = node.holders.copy(), node.confirmed
        parent.children[node.first] = upper
        node.first, node.start, node.parent = key.unit(at), at, upper
        upper.children = {node.first: node}
        self._nodes += 1
        self._asked = None
        return upper

    def _give(self, node: _Node, worker: WorkerId, why: int) -> None:
        """One reason more why the worker holds it. O(1)."""
        node.holders[worker] = node.holders.get(worker, 0) + why
        node.confirmed += why & _CONFIRMED
        if node.children and len(node.children) == 1:
            self._settle(node)

    def _take(self, node: _Node, worker: WorkerId, why: int) -> None:
        """One reason less; without any the worker holds it no more. O(1)."""
        left = node.holders[worker] - why
        assert left >= 0, (worker, left)
        node.confirmed -= why & _CONFIRMED
        if left:
            node.holders[worker] = left
        else:
            del node.holders[worker]
        if not node.holders:
            self._remove(node)
        elif node.children and len(node.children) == 1:
            self._settle(node)

    def _settle(self, node: _Node) -> None:
        """Its holders, or those of its only child, are others: the child may have its place. O(1)."""
        if not self._repeats(node):
            return
        parent, key = node.parent, node.key
        assert parent is not None and parent.children and node.children
        (child,) = node.children.values()
        child.first, child.start, child.parent = node.first, node.start, parent
        parent.children[node.first] = child
        if child.key is not key:
            self._made.pop(id(key), None)
        self._nodes -= 1
        self._asked = None

    def _remove(self, node: _Node) -> None:
        """Nobody holds it, nor what is below it. O(1)."""
        parent, key = node.parent, node.key
        assert not node.children and not node.ends and parent is not None and parent.children
        del parent.children[node.first]
        if not parent.children:
            parent.children = None
        self._made.pop(id(key), None)
        if key.bulk > _BULKY:
            _shorten(parent, key)
        self._nodes -= 1
        self._asked = None

    @staticmethod
    def _repeats(node: _Node) -> bool:
        """Whether it only repeats what its only child says.

        The child's holders all hold what is above it, so it is enough to count them.
        """
        if node.ends or not node.children or len(node.children) > 1:
            return False
        (child,) = node.children.values()
        return node.confirmed == child.confirmed and len(node.holders) == len(child.holders)

    def _held_by(self, worker: WorkerId) -> Iterator[_Node]:
        """Every node the worker holds, parents first."""
        stack = [self._root]
        while stack:
            for child in (stack.pop().children or {}).values():
                if worker in child.holders:
                    yield child
                    stack.append(child)


def _says_only(node: _Node, what: int) -> bool:
    """Whether it is a leaf where that is the only reason for its only holder."""
    return not node.children and len(node.holders) == 1 and what in node.holders.values()


def _shorten(node: _Node | None, key: Runs) -> None:
    """No prompt is kept alive by stretches that need less than half of it: a copy of that will do."""
    while node is not None and node.key is key:
        if 2 * node.end < len(key):
            node.key = key[: node.end]
        node = node.parent

"""WaitingIndex: waiting requests hung on the prefix they match, so that none is ever matched again.

The waiting prompts form a compressed trie of their own. Each node knows how much of its edge the
cache holds, and a node with something cached whose ancestors are cached in full is a *stand*: the
place where requests hang, at the stand's depth. A stand answers for every request below it that no
deeper stand answers for; it does so by client, with the oldest request of each. So when the cache
grows or shrinks by a block, one stand moves, whether one request hangs there or ten thousand.

A prefix of 64 blocks shared by 10,000 waiting requests of two clients costs 64 moves of one stand
and two heap entries, not 640,000 steps.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Protocol

from fairlead.core.radix_tree import common_len
from fairlead.core.request import ClientId, Request, RequestId, Unit

# Heaps are cleaned lazily; beyond this many entries and twice what was true, they are rebuilt.
_SLACK = 64


class Entry:
    """A waiting request and its place in the trie; invisible while it is passed over."""

    __slots__ = ("node", "request", "serial", "visible")

    def __init__(self, request: Request, node: "Node", serial: int) -> None:
        self.request = request
        self.node = node
        self.serial = serial  # unique, so that heap tuples never compare further
        self.visible = True

    @property
    def order(self) -> int:
        """Its place in the order of arrival."""
        return self.request.order


class Node:
    """A stretch of waiting prompts, `key[start:end]`, of which the first `held` units are cached."""

    __slots__ = (
        "best", "children", "end", "filed", "heaps", "held",
        "key", "own", "parent", "serial", "standing", "start", "warm",
    )  # fmt: skip

    def __init__(
        self, key: Sequence[Unit], start: int, end: int, parent: "Node | None", serial: int
    ):
        self.key, self.start, self.end, self.parent = key, start, end, parent
        self.serial = serial
        self.held = 0
        self.standing = False
        self.own = 0  # requests that end here
        self.children: dict[Unit, Node] = {}
        self.warm: dict[Node, None] = {}  # children with something held
        # For each client what it answers for, oldest first: own requests and non-standing children.
        self.heaps: dict[ClientId, list[tuple[int, int, Entry | Node]]] = {}
        self.best: dict[ClientId, Entry] = {}  # the true top of each heap
        self.filed: dict[ClientId, int] = {}  # the order it is entered under at its parent

    @property
    def depth(self) -> int:
        """How many units a request that hangs here matches."""
        return self.start + self.held

    @property
    def full(self) -> bool:
        """Whether all of its edge is cached, so that its children decide."""
        return self.start + self.held == self.end


class _Client:
    """What the index knows of one client with waiting requests."""

    __slots__ = ("limit", "offered", "open", "stands", "top", "waiting")

    def __init__(self) -> None:
        self.open = False
        self.waiting = 0
        # (-depth, order, serial, node) of the stands that answer for it; lazily cleaned.
        self.stands: list[tuple[int, int, int, Node]] = []
        self.limit = _SLACK
        self.top: tuple[int, int, Entry] | None = None
        self.offered: tuple[int, int] | None = None


class Watch(Protocol):
    """Turns a cache's own events into `WaitingIndex.set_held`: one flavour for each kind of cache."""

    def leading(self, key: Sequence[Unit], start: int, end: int) -> int:
        """How many units of key[start:end] are cached from `start` on. Pure."""
        ...

    def watch(self, node: Node) -> None:
        """Report changes of this node from now on."""
        ...

    def unwatch(self, node: Node) -> None:
        """Stop."""
        ...


class WaitingIndex:
    """Waiting requests by matched prefix; the best one of the *open* clients in O(log n).

    Best: most matched tokens, then earliest arrival. The last prompt token is always recomputed, so
    a match is at most input_len - 1. `block_size` is the tokens in one element of a prompt.
    """

    def __init__(self, *, block_size: int) -> None:
        self._block_size = block_size
        self.root = Node((), 0, 0, None, 1)
        self.root.standing = True
        self._serial = 1
        self._watch: Watch | None = None
        self._entries: dict[RequestId, Entry] = {}
        self._clients: dict[ClientId, _Client] = {}
        self._moved: dict[Node, None] = {}  # stands whose depth changed since the last look
        self._dirty: dict[ClientId, None] = {}  # clients whose top may have changed
        self._front: list[tuple[int, int, ClientId]] = []  # (-depth, order, client), open clients

    def attach(self, watch: Watch) -> None:
        """Say who reports the cache's changes; before the first `add`."""
        assert self._watch is None and not self._entries
        self._watch = watch

    def __len__(self) -> int:
        """Waiting requests, those passed over included."""
        return len(self._entries)

    def __contains__(self, request: Request) -> bool:
        return request.id in self._entries

    def waiting(self, client: ClientId) -> int:
        """How many requests of the client wait, those passed over included. O(1)."""
        state = self._clients.get(client)
        return state.waiting if state else 0

    def match_len(self, request: Request) -> int:
        """The matched tokens of a waiting request. Pure. O(depth of the trie)."""
        node = self._entries[request.id].node
        while not node.standing:
            assert node.parent is not None
            node = node.parent
        return node.depth * self._block_size

    # -- what the scheduler says ---------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Hang the request on the prefix it matches. O(prompt length + depth * log n)."""
        assert request.id not in self._entries, request.id
        end = min(len(request.prompt), (request.input_len - 1) // self._block_size)
        entry = Entry(request, self._place(request.prompt, end), self._next())
        self._entries[request.id] = entry
        self._clients.setdefault(request.client, _Client()).waiting += 1
        entry.node.own += 1
        self._file(entry)

    def remove(self, request: Request) -> None:
        """Take the request out. O(depth * log n)."""
        entry = self._entries.pop(request.id)
        state = self._clients[request.client]
        state.waiting -= 1
        if entry.visible:
            entry.visible = False
            self._refresh(entry.node, request.client)
        entry.node.own -= 1
        self._prune(entry.node)
        if not state.waiting:
            del self._clients[request.client]
            self._dirty.pop(request.client, None)

    def hide(self, request: Request) -> None:
        """Leave the request out of `best` until `show`; it goes on waiting. O(depth * log n)."""
        entry = self._entries[request.id]
        assert entry.visible
        entry.visible = False
        self._refresh(entry.node, request.client)

    def show(self, request: Request) -> None:
        """Undo `hide`."""
        entry = self._entries[request.id]
        assert not entry.visible
        entry.visible = True
        self._file(entry)

    def open(self, client: ClientId) -> None:
        """The client's requests may be chosen. O(1); it must have some waiting."""
        self._clients[client].open = True
        self._dirty[client] = None

    def close(self, client: ClientId) -> None:
        """They may not. O(1)."""
        if state := self._clients.get(client):
            state.open = False

    def best(self) -> Request | None:
        """The open clients' visible request with the longest match, the oldest of them. O(log n)."""
        self._settle()
        while self._front:
            depth, order, client = self._front[0]
            state = self._clients.get(client)
            if state and state.offered == (depth, order):
                if state.open and state.top and state.top[:2] == (depth, order):
                    return state.top[2].request
                state.offered = None
            heappop(self._front)
        return None

    # -- what the cache says -------------------------------------------------------------------

    def set_held(self, node: Node, held: int) -> None:
        """The cache now holds `held` units of the node's edge. O(clients there), at the next look."""
        assert 0 <= held <= node.end - node.start and node.parent is not None
        was_full = node.full
        node.held = held
        if held:
            node.parent.warm[node] = None
        else:
            node.parent.warm.pop(node, None)
        if not node.standing:
            if held and node.parent.standing and node.parent.full:
                self._rise(node)
        elif not held:
            self._sink(node)
        else:
            if was_full and not node.full:
                for child in [child for child in node.warm if child.standing]:
                    self._sink(child)
            elif node.full and not was_full:
                for child in list(node.warm):
                    self._rise(child)
            self._moved[node] = None

    def _rise(self, top: Node) -> None:
        """`top` becomes a stand, and every warm node below it that is reached in full."""
        rising = [top]
        while rising:
            node = rising.pop()
            assert not node.standing and node.parent is not None
            node.standing = True
            self._moved[node] = None
            for client, entry in node.best.items():
                if node.parent.best.get(client) is entry:
                    self._refresh(node.parent, client)
            if node.full:
                rising.extend(node.warm)

    def _sink(self, top: Node) -> None:
        """`top` and the stands below it stop being stands; the nearest one above takes over."""
        sinking = [top]
        for node in sinking:
            sinking.extend(child for child in node.warm if child.standing)
        for node in reversed(sinking):
            node.standing = False
            for client in node.best:
                self._dirty[client] = None
                self._file_at_parent(node, client)

    # -- the heaps -----------------------------------------------------------------------------

    def _file(self, entry: Entry) -> None:
        client = entry.request.client
        heap = entry.node.heaps.setdefault(client, [])
        heappush(heap, (entry.order, entry.serial, entry))
        self._refresh(entry.node, client)

    def _file_at_parent(self, node: Node, client: ClientId) -> None:
        """Enter the node's oldest request of the client at its parent, once."""
        assert node.parent is not None
        order = node.best[client].order
        if node.filed.get(client) != order:
            node.filed[client] = order
            heap = node.parent.heaps.setdefault(client, [])
            heappush(heap, (order, node.serial, node))
        self._refresh(node.parent, client)

    def _refresh(self, node: Node, client: ClientId) -> None:
        """The node's heap changed: make its best true again, and every one above that follows."""
        while True:
            entry = self._oldest(node, client)
            if entry is node.best.get(client):
                return
            if entry is None:
                del node.best[client]
            else:
                node.best[client] = entry
            if node.standing:
                self._offer(node, client)
                return
            parent = node.parent
            assert parent is not None  # the root stands
            if entry is not None and node.filed.get(client) != entry.order:
                node.filed[client] = entry.order
                heappush(parent.heaps.setdefault(client, []), (entry.order, node.serial, node))
            node = parent

    def _oldest(self, node: Node, client: ClientId) -> Entry | None:
        """The oldest visible request of the client that the node answers for."""
        heap = node.heaps.get(client)
        while heap:
            order, _, source = heap[0]
            if isinstance(source, Entry):
                if source.visible and source.node is node:
                    return source
            elif source.parent is node:
                entry = source.best.get(client)
                if entry and entry.order == order and not source.standing:
                    return entry
                if source.filed.get(client) == order:
                    del source.filed[client]
            heappop(heap)
        node.heaps.pop(client, None)
        return None

    def _offer(self, stand: Node, client: ClientId) -> None:
        """Enter the stand in its client's heap."""
        state = self._clients[client]
        self._dirty[client] = None
        if entry := stand.best.get(client):
            heappush(state.stands, (-stand.depth, entry.order, stand.serial, stand))
            if len(state.stands) > state.limit:
                state.stands = sorted({item for item in state.stands if _is_true(item, client)})
                state.limit = 2 * len(state.stands) + _SLACK

    def _settle(self) -> None:
        """Bring every client's top, and the front of the open ones, up to date."""
        for stand in self._moved:
            if stand.standing:
                for client in stand.best:
                    self._offer(stand, client)
        self._moved.clear()
        for client in self._dirty:
            state = self._clients[client]
            while state.stands and not _is_true(state.stands[0], client):
                heappop(state.stands)
            if not state.stands:
                state.top = None
                continue
            depth, order, _, stand = state.stands[0]
            state.top = (depth, order, stand.best[client])
            if state.open and state.offered != (depth, order):
                state.offered = (depth, order)
                heappush(self._front, (depth, order, client))
        self._dirty.clear()
        if len(self._front) > 2 * len(self._clients) + _SLACK:
            self._front = sorted(
                (*state.offered, client) for client, state in self._clients.items() if state.offered
            )

    # -- the trie ------------------------------------------------------------------------------

    def _place(self, key: Sequence[Unit], end: int) -> Node:
        """The node at which key[:end] ends, made if it is not there."""
        node, at = self.root, 0
        while at < end:
            child = node.children.get(key[at])
            if child is None:
                return self._grow(node, key, at, end)
            at = common_len(key, child.key, 0, at, min(end, child.end))
            node = child if at == child.end else self._split(child, at)
        return node

    def _grow(self, parent: Node, key: Sequence[Unit], start: int, end: int) -> Node:
        """A new leaf, with nobody in it yet."""
        assert self._watch is not None
        leaf = Node(key, start, end, parent, self._next())
        parent.children[key[start]] = leaf
        leaf.held = self._watch.leading(key, start, end)
        if leaf.held:
            parent.warm[leaf] = None
            leaf.standing = parent.standing and parent.full
        self._watch.watch(leaf)
        return leaf

    def _split(self, node: Node, at: int) -> Node:
        """Cut the edge into `node` at depth `at`; the new upper half, which takes its place above."""
        assert node.start < at < node.end and node.parent is not None and self._watch is not None
        self._watch.unwatch(node)
        upper = Node(node.key, node.start, at, node.parent, self._next())
        upper.held = min(node.held, at - node.start)
        upper.standing = node.standing
        self._replace_child(node.parent, node, upper)
        node.start, node.parent = at, upper
        # Where the cache has a hole above, it may still hold blocks below it.
        below = (
            node.held - upper.held if upper.full else self._watch.leading(node.key, at, node.end)
        )
        node.held = below
        node.standing = node.standing and upper.full and below > 0
        node.filed.clear()
        upper.children[node.key[at]] = node
        if node.held:
            upper.warm[node] = None
        if not node.standing:
            for client, entry in node.best.items():
                upper.best[client] = entry
                upper.heaps[client] = [(entry.order, node.serial, node)]
                node.filed[client] = entry.order
        self._take_place(upper)
        self._watch.watch(upper)
        self._watch.watch(node)
        return upper

    def _take_place(self, node: Node) -> None:
        """A node that answers for what another one did: tell those who looked at the other."""
        assert node.parent is not None
        if node.standing:
            self._moved[node] = None
        else:
            for client in node.best:
                self._file_at_parent(node, client)

    def _replace_child(self, parent: Node, old: Node, new: Node) -> None:
        parent.children[new.key[new.start]] = new
        parent.warm.pop(old, None)
        if new.held:
            parent.warm[new] = None

    def _prune(self, node: Node) -> None:
        """Remove what nobody waits in any more, so that the trie has at most two nodes a request."""
        assert self._watch is not None
        while node.parent is not None and not node.own:
            parent = node.parent
            if len(node.children) == 1:
                self._merge(node, next(iter(node.children.values())))
            if node.children:
                return
            assert not node.best
            self._watch.unwatch(node)
            del parent.children[node.key[node.start]]
            parent.warm.pop(node, None)
            self._moved.pop(node, None)
            node.parent, node.standing = None, False
            node = parent

    def _merge(self, node: Node, child: Node) -> None:
        """Undo a split: the only child takes the node's place, too."""
        assert node.parent is not None and self._watch is not None
        self._watch.unwatch(node)
        self._watch.unwatch(child)
        if node.full:
            child.held += node.held
        else:
            child.held = node.held
        child.start, child.parent = node.start, node.parent
        child.standing = node.standing
        child.filed.clear()
        self._replace_child(node.parent, node, child)
        self._moved.pop(node, None)
        node.parent, node.standing = None, False
        self._take_place(child)
        self._watch.watch(child)

    def _next(self) -> int:
        self._serial += 1
        return self._serial


def _is_true(item: tuple[int, int, int, Node], client: ClientId) -> bool:
    """Whether an entry of a client's heap still says what its stand says."""
    depth, order, _, stand = item
    entry = stand.best.get(client)
    return stand.standing and -stand.depth == depth and entry is not None and entry.order == order

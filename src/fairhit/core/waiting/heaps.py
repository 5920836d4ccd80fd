"""The oldest request of each client at each anchor, and the best of all: lazy heaps over the trie.

No function here reads prompts or caches. Whenever the truth behind a heap's entry changes, a new entry
is pushed beside it; the old one is then stale, and `LazyHeap` drops it when it reaches the top.
"""

from collections.abc import Callable
from typing import TypeAlias

from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import ClientId, Request
from fairhit.core.waiting.trie import Source, TrieNode, WaitingEntry

# A client without full credit may have requests admitted of which so many tenths are cached.
HIT_TENTHS = 9

# (-step of the match, the client's standing, -depth, order, client): smallest first.
_Front: TypeAlias = tuple[int, int, int, int, ClientId]


def is_hit(request: Request, tokens: int) -> bool:
    """Return whether nine tenths of the prompt are among its first `tokens`."""
    return 10 * tokens >= HIT_TENTHS * request.input_len


def no_standing(_: ClientId) -> int:
    """Rank all clients alike: among equal matches the earliest arrival is first."""
    return 0


class _Client:
    """A client with waiting requests: its anchors, and its best request."""

    __slots__ = ("anchors", "front", "hits_only", "name", "open", "top", "waiting")

    def __init__(self, name: ClientId) -> None:
        self.name = name
        self.open = False
        self.hits_only = False  # while open: `best` returns only requests that are cached to 90 %
        self.waiting = 0
        # (-depth, order, serial, node) of the anchors with requests of the client.
        self.anchors: LazyHeap[tuple[int, int, int, TrieNode]] = LazyHeap()
        self.top: tuple[int, int, WaitingEntry] | None = None  # (-depth, order, entry) of its best
        self.front: _Front | None = None  # its true entry among the open clients, if it has one

    def is_true(self, item: tuple[int, int, int, TrieNode]) -> bool:
        """Return whether an entry of `anchors` is up to date."""
        depth, order, _, anchor = item
        entry = anchor.best.get(self.name)
        return (
            entry is not None
            and entry.order == order
            and anchor.is_anchor
            and anchor.start + anchor.cached == -depth
        )


class WaitingHeaps:
    """Implements `AnchorListener`: each client's oldest visible request at each node, and the best of all."""

    def __init__(
        self,
        *,
        block_size: int,
        near: int,
        standing: Callable[[ClientId], int],
        prefix_len: Callable[[int], int] | None,
    ) -> None:
        self._block_size = block_size
        # Tokens in the first blocks of a prompt, where blocks differ in size.
        self._prefix_len = prefix_len
        # In blocks, or in tokens where blocks differ in size.
        self._step = max(1, near // block_size) if prefix_len is None else near
        self._standing = standing
        self._by_depth = self._step == 1 and standing is no_standing
        self._clients: dict[ClientId, _Client] = {}
        self._moved: dict[TrieNode, None] = {}  # anchors to be pushed again before the next query
        self._dirty: dict[ClientId, None] = {}  # clients whose top may have changed
        self._front: LazyHeap[_Front] = LazyHeap()  # the open clients' best requests

    # -- clients -------------------------------------------------------------------------------

    def waiting(self, client: ClientId) -> int:
        """Return how many requests of the client wait. O(1)."""
        state = self._clients.get(client)
        return state.waiting if state else 0

    def join(self, client: ClientId) -> None:
        """Count one more waiting request of the client. O(1)."""
        if (state := self._clients.get(client)) is None:
            state = self._clients[client] = _Client(client)
        state.waiting += 1

    def leave(self, client: ClientId) -> None:
        """Count one waiting request less, and read the client's standing anew. O(1).

        With the last one the client's state is dropped.
        """
        state = self._clients[client]
        state.waiting -= 1
        if state.waiting:
            self._dirty[client] = None
        else:
            del self._clients[client]
            self._dirty.pop(client, None)

    def open(self, client: ClientId, hits_only: bool) -> None:
        """Let `best` return requests of the client, and read its standing anew. O(1).

        With `hits_only`, its best request, and that only if nine tenths of the prompt are cached.
        """
        state = self._clients[client]
        state.open, state.hits_only = True, hits_only
        self._dirty[client] = None

    def close(self, client: ClientId) -> None:
        """Leave the client's requests out of `best`. O(1)."""
        if state := self._clients.get(client):
            state.open, state.front = False, None

    def is_open(self, client: ClientId) -> bool:
        """Return whether the client has waiting requests and is open. O(1)."""
        state = self._clients.get(client)
        return state is not None and state.open

    @property
    def changed(self) -> bool:
        """Return whether an anchor, a client's best or an open client changed since `refresh_tops`. O(1)."""
        return bool(self._moved or self._dirty)

    def best(self) -> Request | None:
        """Return the open clients' visible request with the longest match, the oldest of them. O(log n)."""
        self.refresh_tops()
        front = self._front.top(self._is_front)
        if front is None:
            return None
        best = self._clients[front[4]].top
        assert best is not None
        return best[2].request

    def _is_front(self, item: _Front) -> bool:
        state = self._clients.get(item[4])
        return state is not None and state.front == item

    # -- requests at their nodes ---------------------------------------------------------------

    def insert(self, entry: WaitingEntry) -> None:
        """Make the entry visible at its node. O(depth * log n)."""
        self._propagate(entry.node, entry, entry)

    def _propagate(
        self, node: TrieNode, entry: WaitingEntry, source: WaitingEntry | TrieNode
    ) -> None:
        """Push `source`, whose oldest request is `entry`, at the node and upwards to its anchor."""
        client = entry.request.client
        while True:
            self._push(node, entry, source)
            best = node.best.get(client)
            if best is not None and best.order < entry.order:
                return
            node.best[client] = entry
            if node.is_anchor:
                self._offer(node, client)
                return
            assert node.parent is not None  # the root is an anchor
            node, source = node.parent, node

    def refresh(self, node: TrieNode, client: ClientId) -> None:
        """Recompute the client's best at a node whose heap changed, and at the nodes above."""
        while True:
            entry = self._oldest(node, client)
            if entry is node.best.get(client):
                return
            if entry is None:
                del node.best[client]
            else:
                node.best[client] = entry
            if node.is_anchor:
                self._offer(node, client)
                return
            assert node.parent is not None  # the root is an anchor
            if entry is not None:
                self._push(node.parent, entry, node)
            node = node.parent

    def _oldest(self, node: TrieNode, client: ClientId) -> WaitingEntry | None:
        """Return the client's oldest visible request in the node's heap."""
        held = node.heaps.get(client)
        if held is None:
            return None
        if isinstance(held, tuple):
            top = held if _is_true(held, node, client) else None
        else:
            top = held.top(lambda item: _is_true(item, node, client))
        if top is None:
            del node.heaps[client]
            return None
        source = top[2]
        return source if isinstance(source, WaitingEntry) else source.best[client]

    def _push(self, node: TrieNode, entry: WaitingEntry, source: WaitingEntry | TrieNode) -> None:
        """Push `source`, the entry itself or a child whose oldest request it is, into the node's heap."""
        client = entry.request.client
        item = (entry.order, source.serial, source)
        held = node.heaps.get(client)
        if held is None:
            node.heaps[client] = item
        elif not isinstance(held, tuple):
            held.push(item, lambda each: _is_true(each, node, client))
        elif not _is_true(held, node, client):
            node.heaps[client] = item
        elif held != item:
            heap = node.heaps[client] = LazyHeap()
            heap.extend(sorted((held, item)))

    # -- notifications of the trie -------------------------------------------------------------

    def on_anchored(self, node: TrieNode) -> None:
        """Take the node's requests from the anchor above. O(clients there)."""
        assert node.parent is not None
        self._moved[node] = None
        for client, entry in node.best.items():
            if node.parent.best.get(client) is entry:
                self.refresh(node.parent, client)

    def on_unanchored(self, node: TrieNode) -> None:
        """Give the node's requests to the anchor above. O(clients there)."""
        for client in node.best:
            self._dirty[client] = None
        self._hand_up(node)

    def _hand_up(self, node: TrieNode) -> None:
        """Push the node at its parent. O(clients there)."""
        assert node.parent is not None and not node.is_anchor
        for entry in node.best.values():
            self._propagate(node.parent, entry, node)

    def on_moved(self, node: TrieNode) -> None:
        """Note an anchor whose depth changed. O(1) now, O(clients there) before the next query."""
        self._moved[node] = None

    def on_replaced(self, node: TrieNode, below: TrieNode | None) -> None:
        """Fill the heaps of a node that took another's position. O(clients there)."""
        if below is not None and not below.is_anchor:
            for client, entry in below.best.items():
                node.best[client] = entry
                self._push(node, entry, below)
        if not node.is_anchor:
            self._hand_up(node)

    def on_removed(self, node: TrieNode) -> None:
        """Forget a removed node. O(1)."""
        self._moved.pop(node, None)

    # -- clients at their anchors --------------------------------------------------------------

    def _offer(self, anchor: TrieNode, client: ClientId) -> None:
        """Push the anchor into its client's heap."""
        state = self._clients[client]
        self._dirty[client] = None
        if entry := anchor.best.get(client):
            item = (-anchor.depth, entry.order, anchor.serial, anchor)
            state.anchors.push(item, state.is_true)

    def refresh_tops(self) -> None:
        """Bring the clients' best requests, and the open clients' front, up to date. O(changes * log n)."""
        for anchor in self._moved:
            if anchor.is_anchor:
                for client in anchor.best:
                    self._offer(anchor, client)
        self._moved.clear()
        for client in self._dirty:
            self._refresh_top(client)
        self._dirty.clear()

    def _refresh_top(self, client: ClientId) -> None:
        state = self._clients[client]
        top = state.anchors.top(state.is_true)
        state.front = None
        if top is None:
            state.top = None
            return
        depth, order, _, anchor = top
        entry = anchor.best[client]
        state.top = (depth, order, entry)
        if not state.open or (state.hits_only and not self._is_hit(entry, -depth)):
            return
        if self._by_depth:
            state.front = (depth, 0, 0, order, client)
        else:  # where standings count, or steps of the match
            step = depth
            if self._step != 1:
                tokens = self._prefix_len(-depth) if self._prefix_len else -depth
                step = -(tokens // self._step)
            state.front = (step, self._standing(client), depth, order, client)
        self._front.push(state.front, self._is_front)

    def _is_hit(self, entry: WaitingEntry, depth: int) -> bool:
        tokens = self._prefix_len(depth) if self._prefix_len else depth * self._block_size
        return is_hit(entry.request, tokens)


def _is_true(item: Source, node: TrieNode, client: ClientId) -> bool:
    """Return whether an entry of a node's heap is up to date: a source, and its oldest request."""
    order, _, source = item
    if isinstance(source, WaitingEntry):
        return source.visible and source.node is node
    entry = source.best.get(client)
    return (
        source.parent is node
        and not source.is_anchor
        and entry is not None
        and entry.order == order
    )

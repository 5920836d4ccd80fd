"""Who is oldest where, by client, and who is best of all: the lazy heaps over the stands.

Nothing here looks at prompts or caches. Whenever something changes what an entry of a heap says, the
new truth is entered beside it; the old entry is then false, and `LazyHeap` lets it go.
"""

from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import ClientId, Request
from fairhit.core.waiting.trie import Source, TrieNode, WaitingEntry


class _Client:
    """What the index knows of one client with waiting requests."""

    __slots__ = ("name", "open", "stands", "top", "waiting")

    def __init__(self, name: ClientId) -> None:
        self.name = name
        self.open = False
        self.waiting = 0
        # (-depth, order, serial, node) of the stands that answer for it.
        self.stands: LazyHeap[tuple[int, int, int, TrieNode]] = LazyHeap()
        self.top: tuple[int, int, WaitingEntry] | None = None  # (-depth, order, entry) of its best

    def is_true(self, item: tuple[int, int, int, TrieNode]) -> bool:
        """Whether an entry of `stands` still says what its stand says."""
        depth, order, _, stand = item
        entry = stand.best.get(self.name)
        return (
            entry is not None
            and entry.order == order
            and stand.standing
            and stand.start + stand.held == -depth
        )


class WaitingHeaps:
    """The oldest visible request of each client at each node, and the best of the open clients."""

    def __init__(self) -> None:
        self._clients: dict[ClientId, _Client] = {}
        self._moved: dict[TrieNode, None] = {}  # stands to be entered anew at the next look
        self._dirty: dict[ClientId, None] = {}  # clients whose top may have changed
        # (-depth, order, client) of the open clients' best.
        self._front: LazyHeap[tuple[int, int, ClientId]] = LazyHeap()

    # -- clients -------------------------------------------------------------------------------

    def waiting(self, client: ClientId) -> int:
        """How many requests of the client wait. O(1)."""
        state = self._clients.get(client)
        return state.waiting if state else 0

    def join(self, client: ClientId) -> None:
        """One more request of the client waits. O(1)."""
        if (state := self._clients.get(client)) is None:
            state = self._clients[client] = _Client(client)
        state.waiting += 1

    def leave(self, client: ClientId) -> None:
        """One less; with the last one all that is known of the client goes. O(1)."""
        state = self._clients[client]
        state.waiting -= 1
        if not state.waiting:
            del self._clients[client]
            self._dirty.pop(client, None)

    def open(self, client: ClientId) -> None:
        """The client's requests may be chosen. O(1)."""
        self._clients[client].open = True
        self._dirty[client] = None

    def close(self, client: ClientId) -> None:
        """They may not. O(1)."""
        if state := self._clients.get(client):
            state.open = False

    def is_open(self, client: ClientId) -> bool:
        """Whether the client has something waiting that may be chosen. O(1)."""
        state = self._clients.get(client)
        return state is not None and state.open

    @property
    def changed(self) -> bool:
        """Whether a stand moved, or who is best of a client or may be chosen, since `settle`. O(1)."""
        return bool(self._moved or self._dirty)

    def best(self) -> Request | None:
        """The open clients' visible request with the longest match, the oldest of them. O(log n)."""
        self.settle()
        front = self._front.top(self._is_front)
        if front is None:
            return None
        best = self._clients[front[2]].top
        assert best is not None
        return best[2].request

    def _is_front(self, item: tuple[int, int, ClientId]) -> bool:
        state = self._clients.get(item[2])
        if state is None or not state.open or state.top is None:
            return False
        depth, order, _ = state.top
        return order == item[1] and depth == item[0]

    # -- requests at their nodes ---------------------------------------------------------------

    def file(self, entry: WaitingEntry) -> None:
        """The entry is visible at its node. O(depth * log n)."""
        self._answer(entry.node, entry, entry)

    def _answer(self, node: TrieNode, entry: WaitingEntry, source: WaitingEntry | TrieNode) -> None:
        """The node answers for `source`, too, whose oldest is `entry`; and so do those above it."""
        client = entry.request.client
        while True:
            self._enter(node, entry, source)
            best = node.best.get(client)
            if best is not None and best.order < entry.order:
                return
            node.best[client] = entry
            if node.standing:
                self._offer(node, client)
                return
            assert node.parent is not None  # the root stands
            node, source = node.parent, node

    def refresh(self, node: TrieNode, client: ClientId) -> None:
        """The node's heap changed: make its best true, and every one above that follows from it."""
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
            assert node.parent is not None  # the root stands
            if entry is not None:
                self._enter(node.parent, entry, node)
            node = node.parent

    def _oldest(self, node: TrieNode, client: ClientId) -> WaitingEntry | None:
        """The oldest visible request of the client that the node answers for."""
        held = node.heaps.get(client)
        if held is None:
            return None
        if isinstance(held, tuple):
            top = held if _is_there(held, node, client) else None
        else:
            top = held.top(lambda item: _is_there(item, node, client))
        if top is None:
            del node.heaps[client]
            return None
        source = top[2]
        return source if isinstance(source, WaitingEntry) else source.best[client]

    def _enter(self, node: TrieNode, entry: WaitingEntry, source: WaitingEntry | TrieNode) -> None:
        """Put `source`, the entry itself or a child whose oldest it is, into the node's heap."""
        client = entry.request.client
        item = (entry.order, source.serial, source)
        held = node.heaps.get(client)
        if held is None:
            node.heaps[client] = item
        elif not isinstance(held, tuple):
            held.push(item, lambda each: _is_there(each, node, client))
        elif not _is_there(held, node, client):
            node.heaps[client] = item
        elif held != item:
            heap = node.heaps[client] = LazyHeap()
            heap.extend(sorted((held, item)))

    # -- what the trie says --------------------------------------------------------------------

    def rose(self, node: TrieNode) -> None:
        """It stands, and its parent no longer answers for what is below it. O(clients there)."""
        assert node.parent is not None
        self._moved[node] = None
        for client, entry in node.best.items():
            if node.parent.best.get(client) is entry:
                self.refresh(node.parent, client)

    def sank(self, node: TrieNode) -> None:
        """It does not stand any more, and its parent answers for it. O(clients there)."""
        for client in node.best:
            self._dirty[client] = None
        self._hand_up(node)

    def _hand_up(self, node: TrieNode) -> None:
        """The node's parent answers for it now. O(clients there)."""
        assert node.parent is not None and not node.standing
        for entry in node.best.values():
            self._answer(node.parent, entry, node)

    def moved(self, node: TrieNode) -> None:
        """A stand's depth changed. O(1) now, O(clients there) once at the next look."""
        self._moved[node] = None

    def replaced(self, node: TrieNode, below: TrieNode | None) -> None:
        """`node` is where another was; `below`, if given, is its only child now. O(clients there)."""
        if below is not None and not below.standing:
            for client, entry in below.best.items():
                node.best[client] = entry
                self._enter(node, entry, below)
        if not node.standing:
            self._hand_up(node)

    def gone(self, node: TrieNode) -> None:
        """Nobody waits there any more."""
        self._moved.pop(node, None)

    # -- clients at their stands ---------------------------------------------------------------

    def _offer(self, stand: TrieNode, client: ClientId) -> None:
        """Enter the stand in its client's heap."""
        state = self._clients[client]
        self._dirty[client] = None
        if entry := stand.best.get(client):
            item = (-stand.depth, entry.order, stand.serial, stand)
            state.stands.push(item, state.is_true)

    def settle(self) -> None:
        """Bring the clients' tops, and the front of the open ones, up to date. O(changes * log n)."""
        for stand in self._moved:
            if stand.standing:
                for client in stand.best:
                    self._offer(stand, client)
        self._moved.clear()
        for client in self._dirty:
            self._settle_client(client)
        self._dirty.clear()

    def _settle_client(self, client: ClientId) -> None:
        state = self._clients[client]
        top = state.stands.top(state.is_true)
        if top is None:
            state.top = None
            return
        depth, order, _, stand = top
        state.top = (depth, order, stand.best[client])
        if state.open:
            self._front.push((depth, order, client), self._is_front)


def _is_there(item: Source, node: TrieNode, client: ClientId) -> bool:
    """Whether an entry of a node's heap still says what it did: the oldest of the client there."""
    order, _, source = item
    if isinstance(source, WaitingEntry):
        return source.visible and source.node is node
    entry = source.best.get(client)
    return (
        source.parent is node and not source.standing and entry is not None and entry.order == order
    )

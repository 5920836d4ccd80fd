"""Who is oldest where, by client, and who is best of all: the lazily cleaned heaps over the stands.

Nothing here looks at prompts or caches. A heap entry is never searched for: it is true or stale,
which its owner can tell, and stale entries go when they reach the top or when they are too many.
"""

from heapq import heappop, heappush

from fairlead.core.request import ClientId, Request
from fairlead.core.waiting_trie import Entry, Node

# Beyond this many entries and twice what was true, a heap is rebuilt from what is true.
_SLACK = 64


class _Client:
    """What the index knows of one client with waiting requests."""

    __slots__ = ("limit", "offered", "open", "stands", "top", "waiting")

    def __init__(self) -> None:
        self.open = False
        self.waiting = 0
        # (-depth, order, serial, node) of the stands that answer for it.
        self.stands: list[tuple[int, int, int, Node]] = []
        self.limit = _SLACK
        self.top: tuple[int, int, Entry] | None = None
        self.offered: tuple[int, int] | None = None  # what it is entered under in the front


class WaitingHeaps:
    """The oldest visible request of each client at each node, and the best of the open clients."""

    def __init__(self) -> None:
        self._clients: dict[ClientId, _Client] = {}
        self._moved: dict[Node, None] = {}  # stands to be entered anew at the next look
        self._dirty: dict[ClientId, None] = {}  # clients whose top may have changed
        self._front: list[tuple[int, int, ClientId]] = []  # (-depth, order, client), open clients

    # -- clients -------------------------------------------------------------------------------

    def waiting(self, client: ClientId) -> int:
        """How many requests of the client wait. O(1)."""
        state = self._clients.get(client)
        return state.waiting if state else 0

    def join(self, client: ClientId) -> None:
        """One more request of the client waits. O(1)."""
        self._clients.setdefault(client, _Client()).waiting += 1

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

    # -- requests at their nodes ---------------------------------------------------------------

    def file(self, entry: Entry) -> None:
        """The entry is visible at its node. O(depth * log n)."""
        client = entry.request.client
        heap = entry.node.heaps.setdefault(client, [])
        heappush(heap, (entry.order, entry.serial, entry))
        self.refresh(entry.node, client)

    def refresh(self, node: Node, client: ClientId) -> None:
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
                self._enter(node, entry)
            node = node.parent

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

    def _enter(self, node: Node, entry: Entry) -> None:
        """Put the node's oldest of a client into its parent's heap, once."""
        assert node.parent is not None
        client = entry.request.client
        if node.filed.get(client) != entry.order:
            node.filed[client] = entry.order
            heap = node.parent.heaps.setdefault(client, [])
            heappush(heap, (entry.order, node.serial, node))

    # -- what the trie says --------------------------------------------------------------------

    def rose(self, node: Node) -> None:
        """It stands, and its parent no longer answers for what is below it. O(clients there)."""
        assert node.parent is not None
        self._moved[node] = None
        for client, entry in node.best.items():
            if node.parent.best.get(client) is entry:
                self.refresh(node.parent, client)

    def sank(self, node: Node) -> None:
        """It does not stand any more, and its parent answers for it. O(clients there)."""
        assert node.parent is not None
        for client, entry in node.best.items():
            self._dirty[client] = None
            self._enter(node, entry)
            self.refresh(node.parent, client)

    def moved(self, node: Node) -> None:
        """A stand's depth changed. O(1) now, O(clients there) once at the next look."""
        self._moved[node] = None

    def replaced(self, node: Node, below: Node | None) -> None:
        """`node` is where another was; `below`, if given, is its only child now. O(clients there)."""
        node.filed.clear()
        if below is not None:
            below.filed.clear()
            if not below.standing:
                for client, entry in below.best.items():
                    node.best[client] = entry
                    self._enter(below, entry)
        if not node.standing:
            assert node.parent is not None
            for client, entry in node.best.items():
                self._enter(node, entry)
                self.refresh(node.parent, client)

    def gone(self, node: Node) -> None:
        """Nobody waits there any more."""
        self._moved.pop(node, None)

    # -- clients at their stands ---------------------------------------------------------------

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
        """Bring the clients' tops, and the front of the open ones, up to date. O(changes * log n)."""
        for stand in self._moved:
            if stand.standing:
                for client in stand.best:
                    self._offer(stand, client)
        self._moved.clear()
        for client in self._dirty:
            self._settle_client(client)
        self._dirty.clear()
        if len(self._front) > 2 * len(self._clients) + _SLACK:
            self._front = sorted(
                (*state.offered, client) for client, state in self._clients.items() if state.offered
            )

    def _settle_client(self, client: ClientId) -> None:
        state = self._clients[client]
        while state.stands and not _is_true(state.stands[0], client):
            heappop(state.stands)
        if not state.stands:
            state.top = None
            return
        depth, order, _, stand = state.stands[0]
        state.top = (depth, order, stand.best[client])
        if state.open and state.offered != (depth, order):
            state.offered = (depth, order)
            heappush(self._front, (depth, order, client))


def _is_true(item: tuple[int, int, int, Node], client: ClientId) -> bool:
    """Whether an entry of a client's heap still says what its stand says."""
    depth, order, _, stand = item
    entry = stand.best.get(client)
    return stand.standing and -stand.depth == depth and entry is not None and entry.order == order

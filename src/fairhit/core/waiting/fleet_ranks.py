"""The oldest request of each client at or below each node of a fleet's trie, and the clients by standing.

A node's `oldest` has the client's oldest waiting request whose prompt begins with the node's path. It changes
only where an older request comes or goes, so a younger one is noted at its own node and stops there. Nodes
that some engine holds have their clients in a heap by (standing, order of the oldest request), the same for
all engines. An entry of a heap may be too small, never too large: it is corrected when it reaches the top.
"""

from collections.abc import Callable
from enum import Enum

from fairhit.core.lazy_heap import LazyHeap
from fairhit.core.request import ClientId
from fairhit.core.waiting.fleet_trie import FleetEntry, FleetNode, FleetSource
from fairhit.core.waiting.heaps import is_hit


class Opened(Enum):
    """Requests of a client that may be admitted."""

    ALL = "all"
    HITS = "hits"  # those of which nine tenths are cached
    NONE = "none"


class FleetClient:
    """A client with waiting requests, and the nodes with ranks where it has some."""

    __slots__ = ("name", "nodes", "opened", "place", "waiting")

    def __init__(self, name: ClientId) -> None:
        self.name = name
        self.opened = Opened.NONE
        self.place = 0  # its standing: the least is first
        self.waiting = 0
        self.nodes: dict[FleetNode, None] = {}


class FleetRanks:
    """Implements `NodeListener`: keeps `oldest`, `ranks` and `hits` of the nodes up to date."""

    def __init__(self, standing: Callable[[ClientId], int]) -> None:
        self.clients: dict[ClientId, FleetClient] = {}
        # Tokens in the first units of a prompt, which are the same at all engines of a fleet.
        self.tokens: Callable[[int], int] = int
        self._standing = standing

    # -- clients

    def open(self, client: FleetClient, opened: Opened) -> None:
        """Let requests of the client be returned, and read its standing. O(its nodes with ranks * log)."""
        place = self._standing(client.name)
        if opened is client.opened and place >= client.place:
            client.place = place  # its entries are too small now
            return
        client.opened, client.place = opened, place
        for node in client.nodes:
            self._rank(node, client)

    def _rank(self, node: FleetNode, client: FleetClient) -> None:
        """Push the client's entry at a node with ranks. O(log clients)."""
        entry = node.oldest[client.name]
        item = (client.place, entry.order, client.name)
        if client.opened is Opened.ALL:
            assert node.ranks is not None
            node.ranks.push(item, lambda each: each[2] in node.oldest)
        elif client.opened is Opened.HITS and is_hit(entry.request, self.tokens(node.end)):
            if node.hits is None:
                node.hits = LazyHeap()
            node.hits.push(item, lambda each: each[2] in node.oldest)

    def top(self, node: FleetNode, opened: Opened) -> FleetEntry | None:
        """Return the oldest request of the client that is first at the node, of those so `opened`.

        O(log clients), and as much for each entry whose client has been charged or closed since it was made.
        """
        heap = node.ranks if opened is Opened.ALL else node.hits
        while heap:
            place, order, name = heap[0]
            entry = node.oldest.get(name)
            if entry is not None:
                client = self.clients[name]
                if client.opened is opened:
                    if client.place == place and entry.order == order:
                        return entry
                    heap.replace_top((client.place, entry.order, name))
                    continue
            heap.drop()
        return None

    # -- requests at their nodes

    def insert(self, entry: FleetEntry) -> None:
        """Add a request at its node, and above where it is its client's oldest. O(depth * log)."""
        client = self.clients[entry.request.client]
        node = entry.node
        source: FleetEntry | FleetNode = entry
        while True:
            self._push(node, entry, source)
            before = node.oldest.get(client.name)
            if before is not None and before.order < entry.order:
                return
            node.oldest[client.name] = entry
            if node.ranks is not None:
                client.nodes[node] = None
                self._rank(node, client)
            if node.parent is None:
                return
            node, source = node.parent, node

    def remove(self, entry: FleetEntry) -> None:
        """Remove a request at its node, and above where it is its client's oldest. O(depth * log)."""
        entry.waits = False
        client = self.clients[entry.request.client]
        node: FleetNode | None = entry.node
        while node is not None and node.oldest.get(client.name) is entry:
            oldest = self._next_oldest(node, client.name)
            if oldest is None:
                del node.oldest[client.name]
                client.nodes.pop(node, None)
            else:
                node.oldest[client.name] = oldest
                if client.opened is Opened.HITS and node.ranks is not None:
                    self._rank(node, client)  # the one before may never have been one here
                if node.parent is not None:
                    self._push(node.parent, oldest, node)
            node = node.parent

    def _next_oldest(self, node: FleetNode, client: ClientId) -> FleetEntry | None:
        held = node.sources.get(client)
        if held is None:
            return None
        if isinstance(held, tuple):
            top = held if _is_true(held, node, client) else None
        else:
            top = held.top(lambda item: _is_true(item, node, client))
        if top is None:
            del node.sources[client]
            return None
        source = top[2]
        return source if isinstance(source, FleetEntry) else source.oldest[client]

    def _push(self, node: FleetNode, entry: FleetEntry, source: FleetEntry | FleetNode) -> None:
        """Push `source`, the entry itself or a child whose oldest request it is, into the node's sources."""
        client = entry.request.client
        item: FleetSource = (entry.order, source.serial, source)
        held = node.sources.get(client)
        if held is None:
            node.sources[client] = item
        elif not isinstance(held, tuple):
            held.push(item, lambda each: _is_true(each, node, client))
        elif not _is_true(held, node, client):
            node.sources[client] = item
        elif held != item:
            heap = node.sources[client] = LazyHeap()
            heap.extend(sorted((held, item)))

    # -- notifications of the trie

    def on_split(self, upper: FleetNode, node: FleetNode) -> None:
        """Fill the node above, which replaces `node` at its parent. O(clients there)."""
        for entry in node.oldest.values():
            self._push(upper, entry, node)
        upper.oldest.update(node.oldest)
        self._replace(upper)
        if node.ranks is not None:
            self.on_warm(upper)

    def on_merged(self, node: FleetNode, child: FleetNode) -> None:
        """Let `child` replace `node` at its parent. O(clients there)."""
        for name in node.oldest:
            self.clients[name].nodes.pop(node, None)
        self._replace(child)

    def on_warm(self, node: FleetNode) -> None:
        """Rank the clients of a node. O(clients there)."""
        node.ranks = LazyHeap()
        for name in node.oldest:
            client = self.clients[name]
            client.nodes[node] = None
            self._rank(node, client)

    def _replace(self, node: FleetNode) -> None:
        """Push a node that took another's position at its parent."""
        assert node.parent is not None
        for entry in node.oldest.values():
            self._push(node.parent, entry, node)


def _is_true(item: FleetSource, node: FleetNode, client: ClientId) -> bool:
    """Return whether an entry of a node's sources is up to date: a source, and its oldest request."""
    order, _, source = item
    if isinstance(source, FleetEntry):
        return source.waits and source.node is node
    entry = source.oldest.get(client)
    return source.parent is node and entry is not None and entry.order == order

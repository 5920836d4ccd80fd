"""WaitingIndex: waiting requests hung on the prefix they match, so that none is ever matched again.

The waiting prompts form a compressed trie of their own (`waiting_trie`), and requests hang at its
stands, grouped by client (`waiting_heaps`). When the cache grows or shrinks by a block, one stand
moves, whether one request hangs there or ten thousand: a prefix of 64 blocks shared by 10,000
requests of two clients costs 64 moves and two heap entries, not 640,000 steps.
"""

from fairlead.core.request import ClientId, Request, RequestId
from fairlead.core.runs import Runs
from fairlead.core.waiting_heaps import WaitingHeaps
from fairlead.core.waiting_trie import Entry, WaitingTrie


class WaitingIndex:
    """Waiting requests by matched prefix; the best one of the *open* clients in O(log n).

    Best: most matched tokens, then earliest arrival. The last prompt token is always recomputed, so
    a match is at most input_len - 1. `block_size` is the tokens in one element of a prompt.
    """

    def __init__(self, *, block_size: int) -> None:
        self._block_size = block_size
        self._entries: dict[RequestId, Entry] = {}
        self._heaps = WaitingHeaps()
        self.trie = WaitingTrie(self._heaps)

    def __len__(self) -> int:
        """Waiting requests, those passed over included."""
        return len(self._entries)

    def __contains__(self, request: Request) -> bool:
        return request.id in self._entries

    def waiting(self, client: ClientId) -> int:
        """How many requests of the client wait, those passed over included. O(1)."""
        return self._heaps.waiting(client)

    def match_len(self, request: Request) -> int:
        """The matched tokens of a waiting request. Pure. O(depth of the trie)."""
        self.trie.catch_up()
        node = self._entries[request.id].node
        while not node.standing:
            assert node.parent is not None
            node = node.parent
        return node.depth * self._block_size

    def add(self, request: Request) -> None:
        """Hang the request on the prefix it matches. O(prompt length + depth * log n)."""
        assert request.id not in self._entries, request.id
        end = min(len(request.prompt), (request.input_len - 1) // self._block_size)
        node = self.trie.place(Runs.of(request.prompt), end)
        node.own += 1
        entry = self._entries[request.id] = Entry(request, node, self.trie.serial())
        self._heaps.join(request.client)
        self._heaps.file(entry)

    def remove(self, request: Request) -> None:
        """Take the request out. O(depth * log n)."""
        entry = self._entries.pop(request.id)
        if entry.visible:
            entry.visible = False
            self._heaps.refresh(entry.node, request.client)
        entry.node.own -= 1
        self.trie.prune(entry.node)
        self._heaps.leave(request.client)

    def hide(self, request: Request) -> None:
        """Leave the request out of `best` until `show`; it goes on waiting. O(depth * log n)."""
        entry = self._entries[request.id]
        assert entry.visible
        entry.visible = False
        self._heaps.refresh(entry.node, request.client)

    def show(self, request: Request) -> None:
        """Undo `hide`."""
        entry = self._entries[request.id]
        assert not entry.visible
        entry.visible = True
        self._heaps.file(entry)

    def open(self, client: ClientId) -> None:
        """The client's requests may be chosen. O(1); it must have some waiting."""
        self._heaps.open(client)

    def close(self, client: ClientId) -> None:
        """They may not. O(1)."""
        self._heaps.close(client)

    def best(self) -> Request | None:
        """The open clients' visible request with the longest match, the oldest of them. O(log n)."""
        self.trie.catch_up()
        return self._heaps.best()

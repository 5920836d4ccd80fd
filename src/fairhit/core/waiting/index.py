"""WaitingIndex: waiting requests hung on the prefix they match, so that none is ever matched again.

The waiting prompts form a compressed trie of their own (`waiting_trie`), and requests hang at its
stands, grouped by client (`waiting_heaps`). When the cache grows or shrinks by a block, one stand
moves, whether one request hangs there or ten thousand: a prefix of 64 blocks shared by 10,000
requests of two clients costs 64 moves and two heap entries, not 640,000 steps.
"""

from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.waiting.heaps import WaitingHeaps
from fairhit.core.waiting.sorted_snapshot import SortedSnapshot
from fairhit.core.waiting.trie import WaitingEntry, WaitingTrie


class WaitingIndex:
    """Waiting requests by matched prefix; the best one of the *open* clients in O(log n).

    Best: most matched tokens, then earliest arrival. The last prompt token is always recomputed, so
    a match is at most input_len - 1. `block_size` is the tokens in one element of a prompt. Who waits
    alone is compared with nobody, and hangs nowhere until a second one comes: most never do.
    """

    def __init__(self, *, block_size: int) -> None:
        self._block_size = block_size
        self._lone: Request | None = None  # all that waits, not hung
        self._lone_open = False  # whether its client is
        self._entries: dict[RequestId, WaitingEntry] = {}  # those that hang
        self._hidden: dict[Request, None] = {}
        self._heaps = WaitingHeaps()
        self._aside = SortedSnapshot(self._heaps, self._entries)
        self.trie = WaitingTrie(self._heaps)

    def __len__(self) -> int:
        """Waiting requests, those passed over included."""
        return len(self._entries) if self._lone is None else 1

    def __contains__(self, request: Request) -> bool:
        if self._lone is not None:
            return self._lone.id == request.id
        return request.id in self._entries

    def waiting(self, client: ClientId) -> int:
        """How many requests of the client wait, those passed over included. O(1)."""
        if self._lone is not None:
            return int(self._lone.client == client)
        return self._heaps.waiting(client)

    def match_len(self, request: Request) -> int:
        """The matched tokens of a waiting request. Changes no answer. O(depth of the trie)."""
        self._hang_lone()
        self.trie.catch_up()
        return self._entries[request.id].node.stand.depth * self._block_size

    def add(self, request: Request) -> None:
        """The request waits. O(prompt length + depth * log n) for all but a lone one."""
        assert request not in self, request.id
        if self._lone is None and not self._entries:
            self._lone, self._lone_open = request, False
        else:
            self._hang_lone()
            self._hang(request)

    def remove(self, request: Request) -> None:
        """Take the request out. O(depth * log n)."""
        if self._lone is not None:
            assert self._lone.id == request.id, request.id
            self._lone = None
            return
        self._hidden.pop(request, None)
        entry = self._entries.pop(request.id)
        if entry.aside or not entry.visible:
            self._aside.show(entry)
        if entry.visible:
            entry.visible = False
            self._heaps.refresh(entry.node, request.client)
        entry.node.own -= 1
        self.trie.prune(entry.node)
        self._heaps.leave(request.client)

    def hide(self, request: Request) -> None:
        """Leave the request out of `best` until `show`; it goes on waiting. O(depth * log n).

        One that waits alone is hung for that, which is O(prompt length).
        """
        self._hang_lone()
        entry = self._entries[request.id]
        assert entry.visible and not entry.aside
        self._hidden[request] = None
        if not self._aside.hide(entry):
            entry.visible = False
            self._heaps.refresh(entry.node, request.client)

    def show(self, request: Request) -> None:
        """Undo `hide`."""
        entry = self._entries[request.id]
        assert entry.aside or not entry.visible
        del self._hidden[request]
        if not self._aside.show(entry):
            entry.visible = True
            self._heaps.file(entry)

    def show_all(self) -> None:
        """Undo every `hide`. O(hidden * depth * log n)."""
        for request in list(self._hidden):
            self.show(request)

    def is_hidden(self, request: Request) -> bool:
        """Return whether the request is hidden. O(1)."""
        return request in self._hidden

    def open(self, client: ClientId) -> None:
        """The client's requests may be chosen. O(1); it must have some waiting."""
        if self._lone is not None:
            assert self._lone.client == client, client
            self._lone_open = True
        else:
            self._heaps.open(client)

    def close(self, client: ClientId) -> None:
        """They may not. O(1)."""
        if self._lone is None:
            self._heaps.close(client)
        elif self._lone.client == client:
            self._lone_open = False

    def best(self) -> Request | None:
        """The open clients' visible request with the longest match, the oldest of them.

        O(log n); O(n log n) a few times while many are hidden: see `SortedSnapshot`.
        """
        if self._lone is not None:
            return self._lone if self._lone_open else None
        self.trie.catch_up()
        return self._aside.best() if self._aside else self._heaps.best()

    def _hang_lone(self) -> None:
        """It waits alone no longer, or something is asked of it that only its place can tell."""
        if (lone := self._lone) is not None:
            self._lone = None
            self._hang(lone)
            if self._lone_open:
                self._heaps.open(lone.client)

    def _hang(self, request: Request) -> None:
        """Hang the request on the prefix it matches. O(prompt length + depth * log n)."""
        end = min(len(request.prompt), (request.input_len - 1) // self._block_size)
        node = self.trie.place(Runs.of(request.prompt), end)
        node.own += 1
        entry = self._entries[request.id] = WaitingEntry(request, node, self.trie.serial())
        self._heaps.join(request.client)
        self._heaps.file(entry)
        self._aside.disturb()

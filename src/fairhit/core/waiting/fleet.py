"""One queue for many engines: the waiting requests by what the engine that asks has cached.

`FleetCaches` is given to a policy as its cache. The policy then orders one queue for all engines: `at` says
which of them the next scheduling pass is for, and `best` of the index is the best request by that engine's
cache. The waiting prompts are in one trie; an engine has anchors in it (`fleet_trie`), and the clients at
each node are ranked once for all engines (`fleet_ranks`).

Why a node may rank all requests at and below it, those of deeper anchors included: where a client has a
request at a deeper anchor, that is the longer match, so what it has at this one is not its best.
"""

from collections.abc import Callable

from fairhit.core.cache.cache_view import Cache, KeepsBlocks, KeepsPaths, PathCache
from fairhit.core.cache.token_runs import Runs
from fairhit.core.cache.trie import descend
from fairhit.core.request import ClientId, Request, RequestId, Unit, WorkerId
from fairhit.core.waiting.fleet_ranks import FleetClient, FleetRanks, Opened
from fairhit.core.waiting.fleet_trie import EngineAnchors, Finder, FleetEntry, FleetNode, FleetTrie
from fairhit.core.waiting.heaps import is_hit

# Clients within their overdraft that are examined at one node for a request cached to nine tenths.
_HITS_EXAMINED = 4


class FleetCaches:
    """The caches of engines that share a queue, and the engine that the next pass is for.

    `finder`, if the host has an index of what its engines hold, saves asking each engine's cache about each
    new prompt.
    """

    def __init__(self, *, finder: Finder | None = None) -> None:
        self._finder = finder
        self._caches: dict[WorkerId, Cache] = {}
        self._index: FleetIndex | None = None  # made by the policy

    def add_engine(self, name: WorkerId, cache: Cache) -> None:
        """Include an engine and follow its cache from now on. O(what it holds of the waiting prompts)."""
        assert name not in self._caches, name
        self._caches[name] = cache
        if self._index is not None:
            self._index.add_engine(name, cache)

    def remove_engine(self, name: WorkerId) -> None:
        """Exclude an engine. O(what it holds of the waiting prompts)."""
        del self._caches[name]
        if self._index is not None:
            self._index.remove_engine(name)

    def at(self, name: WorkerId) -> None:
        """Let the next pass be for the engine `name`. O(1)."""
        if self._index is not None:
            self._index.at(name)

    def make_index(
        self, *, near: int, standing: Callable[[ClientId], int], keeps_wanted: bool
    ) -> "FleetIndex":
        """Return the index of the one policy to which these caches are given."""
        assert self._index is None, "one policy for one queue"
        self._index = FleetIndex(
            near=near, standing=standing, keeps_wanted=keeps_wanted, finder=self._finder
        )
        for name, cache in self._caches.items():
            self._index.add_engine(name, cache)
        return self._index


class FleetIndex:
    """Waiting requests by the matched prefix at each engine; methods as those of `WaitingIndex`.

    `near` and `standing` as there, but `open` must be called again whenever a standing became less. What is
    hidden is hidden at one engine, and with it the younger requests of its client with the same prefix.
    """

    def __init__(
        self,
        *,
        near: int,
        standing: Callable[[ClientId], int],
        keeps_wanted: bool,
        finder: Finder | None = None,
    ) -> None:
        self._near = near
        self._keeps_wanted = keeps_wanted
        self._ranks = FleetRanks(standing)
        self.trie = FleetTrie(self._ranks, finder)
        self._ranks.on_warm(self.trie.root)
        self._block_size = 1  # of all engines
        self._entries: dict[RequestId, FleetEntry] = {}
        self._single: Request | None = None  # the only waiting request: see `WaitingIndex`
        self._engine: EngineAnchors | None = None
        self._served: dict[
            FleetClient, None
        ] = {}  # whose standing is to be read before the next query

    def add_engine(self, name: WorkerId, cache: Cache) -> None:
        """Follow the cache of an engine from now on."""
        self.trie.add_engine(name, cache)
        if self._keeps_wanted:
            if isinstance(cache, KeepsPaths) and isinstance(cache, PathCache):
                cache.keep(self.wanted_len)
            elif isinstance(cache, KeepsBlocks):
                cache.keep(self.is_wanted)
        self._block_size = cache.block_size
        self._ranks.tokens = self.trie.engines[name].tokens

    def remove_engine(self, name: WorkerId) -> None:
        """Forget an engine. O(its anchors)."""
        self.trie.remove_engine(name)

    def at(self, name: WorkerId) -> None:
        """Let the next queries be for the engine `name`. O(1)."""
        self._engine = self.trie.engines[name]

    def __len__(self) -> int:
        """Return the number of waiting requests, hidden ones included."""
        return len(self._entries) if self._single is None else 1

    def __contains__(self, request: Request) -> bool:
        if self._single is not None:
            return self._single.id == request.id
        return request.id in self._entries

    def waiting(self, client: ClientId) -> int:
        """Return how many requests of the client wait, hidden ones included. O(1)."""
        state = self._ranks.clients.get(client)
        return state.waiting if state else 0

    def match_len(self, request: Request) -> int:
        """Return the matched tokens of a waiting request at the engine of `at`. O(depth of the trie)."""
        engine = self._at_engine()
        self._insert_single()
        self.trie.catch_up(engine)
        node = self._entries[request.id].node
        while node.parent is not None and engine not in node.cached:
            node = node.parent
        return engine.tokens(node.start + node.cached.get(engine, 0))

    def add(self, request: Request) -> None:
        """Insert a waiting request. O(prompt length + depth * log n, and engines that hold its own part).

        O(1) for a single one.
        """
        assert request not in self, request.id
        if (state := self._ranks.clients.get(request.client)) is None:
            state = self._ranks.clients[request.client] = FleetClient(request.client)
        state.waiting += 1
        if self._single is None and not self._entries:
            self._single = request
        else:
            self._insert_single()
            self._insert(request)

    def _insert_single(self) -> None:
        if (single := self._single) is not None:
            self._single = None
            self._insert(single)

    def _insert(self, request: Request) -> None:
        end = min(len(request.prompt), (request.input_len - 1) // self._block_size)
        node = self.trie.place(Runs.of(request.prompt), end)
        node.own += 1
        entry = self._entries[request.id] = FleetEntry(request, node, self.trie.serial())
        self._ranks.insert(entry)

    def remove(self, request: Request) -> None:
        """Remove a waiting request, and read its client's standing anew before the next query.

        O(depth * log n, and engines that hold its own part).
        """
        if self._engine is not None:
            self._engine.hidden.pop(request, None)
        if self._single is not None:
            assert self._single.id == request.id, request.id
            self._single = None
        else:
            entry = self._entries.pop(request.id)
            self._ranks.remove(entry)
            entry.node.own -= 1
            self.trie.prune(entry.node)
        state = self._ranks.clients[request.client]
        state.waiting -= 1
        if state.waiting:
            self._served[state] = None
        else:
            del self._ranks.clients[request.client]
            self._served.pop(state, None)

    def hide(self, request: Request) -> None:
        """Leave the request out of `best` at this engine until `show_all`. O(1)."""
        self._at_engine().hidden[request] = None

    def show_all(self) -> None:
        """Undo every `hide` at this engine. O(hidden)."""
        self._at_engine().hidden.clear()

    def is_hidden(self, request: Request) -> bool:
        """Return whether the request is hidden at this engine. O(1)."""
        return request in self._at_engine().hidden

    def open(self, client: ClientId) -> None:
        """Let `best` return requests of the client, if any wait; read its standing anew."""
        self._open(client, Opened.ALL)

    def open_for_hits(self, client: ClientId) -> None:
        """Let `best` return the client's requests of which nine tenths are cached at the engine."""
        self._open(client, Opened.HITS)

    def close(self, client: ClientId) -> None:
        """Leave the client's requests out of `best` until `open`. O(1)."""
        if (state := self._ranks.clients.get(client)) is not None:
            state.opened = Opened.NONE

    def wanted_len(self, tokens: Runs, length: int) -> int:
        """Return how many units of tokens[:length] some waiting prompt begins with. Pure. O(match)."""
        self._insert_single()
        return descend(self.trie.root, tokens, length)[1]

    def is_wanted(self, block: Unit) -> bool:
        """Return whether a waiting prompt begins with what ends with this block. O(1)."""
        self._insert_single()
        return self.trie.has(block)

    def _open(self, client: ClientId, opened: Opened) -> None:
        if (state := self._ranks.clients.get(client)) is not None:
            self._ranks.open(state, opened)

    def best(self) -> Request | None:
        """Return the open clients' request with the longest match at the engine, by step of `near`.

        Within a step the least standing is first, then the longer match, then the earlier arrival.
        O(log n + anchors of the engine).
        """
        engine = self._at_engine()
        if self._single is not None:
            opened = self._ranks.clients[self._single.client].opened
            if opened is not Opened.HITS:
                is_open = opened is Opened.ALL and self._single not in engine.hidden
                return self._single if is_open else None
            self._insert_single()
        for state in self._served:
            self._ranks.open(state, state.opened)
        self._served.clear()
        self.trie.catch_up(engine)
        found: tuple[int, int, int, FleetEntry] | None = None
        found_step = step = 0
        last = 1  # the depth of which `step` is
        for depth, _, node in engine.anchors:
            if not node.ranks and not node.hits:
                continue
            if depth != last:
                last, step = depth, engine.tokens(-depth) // self._near
                if found is not None and step < found_step:
                    return found[3].request
            entry = self._best_at(engine, node, -depth)
            if entry is not None:
                place = self._ranks.clients[entry.request.client].place
                item = (place, depth, entry.order, entry)
                if found is None or item < found:
                    found, found_step = item, step
        if found is not None and found_step:
            return found[3].request
        return self._best_of_root(engine, found)

    def _best_of_root(
        self, engine: EngineAnchors, found: tuple[int, int, int, FleetEntry] | None
    ) -> Request | None:
        """Return the better one of `found` and of the requests of which the engine holds nothing."""
        entry = self._best_at(engine, self.trie.root, 0)
        if entry is not None:
            place = self._ranks.clients[entry.request.client].place
            if found is None or (place, 0, entry.order) < found[:3]:
                return entry.request
        return None if found is None else found[3].request

    def _best_at(self, engine: EngineAnchors, node: FleetNode, depth: int) -> FleetEntry | None:
        """Return the best request at a node of which the engine holds what is above `depth`."""
        passed_over: list[tuple[int, int, ClientId]] = []
        entry = self._ranks.top(node, Opened.ALL)
        while entry is not None and entry.request in engine.hidden:
            assert node.ranks is not None
            passed_over.append(node.ranks.take())
            entry = self._ranks.top(node, Opened.ALL)
        if passed_over:
            assert node.ranks is not None
            node.ranks.restore(passed_over)
        if entry is not None or node.hits is None:
            return entry
        return self._best_hit(engine, node, depth)

    def _best_hit(self, engine: EngineAnchors, node: FleetNode, depth: int) -> FleetEntry | None:
        """Return the best request of clients within their overdraft, of the first few of these.

        It is its client's longest match and cached to nine tenths.
        """
        assert node.hits is not None
        passed_over: list[tuple[int, int, ClientId]] = []
        tokens = engine.tokens(depth)
        entry = self._ranks.top(node, Opened.HITS)
        while entry is not None and not (
            is_hit(entry.request, tokens)
            and entry.request not in engine.hidden
            and _is_longest(engine, entry, depth)
        ):
            passed_over.append(node.hits.take())
            few = len(passed_over) < _HITS_EXAMINED
            entry = self._ranks.top(node, Opened.HITS) if few else None
        node.hits.restore(passed_over)
        return entry

    def _at_engine(self) -> EngineAnchors:
        assert self._engine is not None, "no engine asks"
        return self._engine


def _is_longest(engine: EngineAnchors, entry: FleetEntry, depth: int) -> bool:
    """Return whether the client has no longer match, nor an older one of that depth. O(deeper anchors)."""
    client = entry.request.client
    for negative, _, node in engine.anchors:
        if -negative < depth:
            return True
        other = node.oldest.get(client)
        if other is not None and (negative, other.order) < (-depth, entry.order):
            return False
    return True

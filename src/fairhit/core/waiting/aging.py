"""Ageing inside a client: how much service later requests have taken past its oldest (DESIGN 3.2).

DLPM serves a client's best match first, so a request without a match could be overtaken for ever.
Whatever overtakes a waiting request also overtakes the older ones of its client, so only the oldest
needs a sum. Each waiting request stores what overtook it but not the next younger one; when it is
removed, that amount passes to the next older request.
"""

from collections.abc import Callable, Iterable

from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.service import UNITS_PER_TOKEN, parse_tokens
from fairhit.core.waiting.cache_listener import AnyCache, prefix_index
from fairhit.core.waiting.heaps import no_standing


class PrefixOrder:
    """The waiting requests of the open clients by matched prefix; overdue ones first, if ageing is on.

    `max_overtake`, in tokens: a client's oldest request is overdue once the client's other requests
    were admitted past it for more than that; None turns ageing off. An overdue request that does not
    fit closes its client until `show_all`, or the client's smaller requests would take the memory it
    needs in every scheduling pass. `near`, `standing` and `keeps_wanted` as of `waiting_index`. Costs are
    those of `WaitingIndex`.
    """

    def __init__(
        self,
        cache: AnyCache,
        *,
        max_overtake: int | None = None,
        near: int = 1,
        standing: Callable[[ClientId], int] = no_standing,
        keeps_wanted: bool = False,
    ) -> None:
        self._index = prefix_index(cache, near=near, standing=standing, keeps_wanted=keeps_wanted)
        self._aging = None if max_overtake is None else Aging(limit=max_overtake)
        self._barred: dict[ClientId, None] = {}  # until `show_all`

    def __len__(self) -> int:
        """Return the number of waiting requests, hidden ones included."""
        return len(self._index)

    def count(self, client: ClientId) -> int:
        """Return how many requests of the client wait. O(1)."""
        return self._index.waiting(client)

    def add(self, request: Request) -> None:
        """Insert a waiting request."""
        self._index.add(request)
        if self._aging:
            self._aging.add(request)

    def remove(self, request: Request) -> None:
        """Remove a request that no longer waits."""
        self._index.remove(request)
        if self._aging:
            self._aging.remove(request)
            if not self._index.waiting(request.client):
                self._aging.close(request.client)

    def hide(self, request: Request) -> None:
        """Leave the request out of `best` until `show_all`."""
        self._index.hide(request)
        if self._aging and self._aging.is_due(request):
            self._barred[request.client] = None
            self._index.close(request.client)

    def show_all(self) -> None:
        """Undo every `hide`."""
        self._index.show_all()
        for client in self._barred:
            if self._aging and self._aging.is_open(client):
                self._index.open(client)
        self._barred.clear()

    def open_for_hits(self, client: ClientId) -> None:
        """Let `best` return the client's best request if nine tenths of its prompt are cached."""
        self._index.open_for_hits(client)
        if self._aging:
            self._aging.close(client)

    def open(self, client: ClientId) -> None:
        """Let `best` return requests of the client, which has some waiting; read its standing anew."""
        self._index.open(client)
        if self._aging:
            self._aging.open(client)

    def close(self, client: ClientId) -> None:
        """Leave the client's requests out of `best` until `open`."""
        self._index.close(client)
        if self._aging:
            self._aging.close(client)

    def best(self) -> Request | None:
        """Return the overdue request that is overdue longest, else the longest match of all."""
        if self._aging:
            for client in self._aging.due():
                request = self._aging.oldest(client)
                if not self._index.is_hidden(request):
                    return request
        return self._index.best()

    def admitted(self, request: Request, units: int) -> None:
        """Count `units`, the cost of an admission, against the older requests it overtakes."""
        if self._aging:
            self._aging.overtake(request, units)


class _Waiting:
    """A waiting request between its neighbours of the same client, by age."""

    __slots__ = ("older", "request", "units", "younger")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.units = 0  # admitted past this request and all older ones, but past no younger one
        self.older: _Waiting | None = None
        self.younger: _Waiting | None = None


class Aging:
    """For each client, its oldest waiting request and the service admitted past it.

    `limit` is in tokens; a request overtaken by more is due.
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = parse_tokens(limit, least=0, where="max_overtake") * UNITS_PER_TOKEN
        self._waiting: dict[RequestId, _Waiting] = {}
        self._oldest: dict[ClientId, _Waiting] = {}
        self._youngest: dict[ClientId, _Waiting] = {}
        self._overtaken: dict[ClientId, int] = {}  # units admitted past the client's oldest
        self._open: set[ClientId] = set()
        self._due: dict[ClientId, None] = {}  # open, and overtaken too much; longest due first

    def add(self, request: Request) -> None:
        """Insert a waiting request. O(1) for an arrival, O(client's requests) for one unblocked."""
        entry = self._waiting[request.id] = _Waiting(request)
        self._link(entry, self._next_older(request))

    def overtake(self, request: Request, units: int) -> None:
        """Count the admission of `request` at a cost of `units` against all older ones. O(1)."""
        entry = self._waiting[request.id]
        if entry.older is not None:
            entry.older.units += units
            self._overtaken[request.client] += units
            self._check(request.client)

    def remove(self, request: Request) -> None:
        """Remove a request that no longer waits. O(1)."""
        entry = self._waiting.pop(request.id)
        client = request.client
        older, younger = entry.older, entry.younger
        if older is not None:
            older.units += entry.units
            older.younger = younger
        else:
            self._overtaken[client] -= entry.units
        if younger is not None:
            younger.older = older
        if self._youngest[client] is entry:
            self._set(self._youngest, client, older)
        if self._oldest[client] is entry:
            self._set(self._oldest, client, younger)
        if client not in self._oldest:
            assert self._overtaken.pop(client) == 0
        self._check(client)

    def open(self, client: ClientId) -> None:
        """Let `due` return the client. O(1)."""
        self._open.add(client)
        self._check(client)

    def close(self, client: ClientId) -> None:
        """Leave the client out of `due`. O(1)."""
        self._open.discard(client)
        self._due.pop(client, None)

    def is_open(self, client: ClientId) -> bool:
        """Return whether the client was opened and not closed since. O(1)."""
        return client in self._open

    def due(self) -> Iterable[ClientId]:
        """Return the open clients whose oldest request was overtaken too much, longest due first."""
        return self._due

    def is_due(self, request: Request) -> bool:
        """Return whether the request is the oldest of its client, which is due. O(1)."""
        return request.client in self._due and self._oldest[request.client].request is request

    def oldest(self, client: ClientId) -> Request:
        """Return the client's oldest waiting request."""
        return self._oldest[client].request

    def _next_older(self, request: Request) -> _Waiting | None:
        """Return the entry before the request's, sought from both ends alternately."""
        front, back = self._oldest.get(request.client), self._youngest.get(request.client)
        while back is not None and back.request.order > request.order:
            assert front is not None
            if front.request.order > request.order:
                return front.older
            front, back = front.younger, back.older
        return back

    def _link(self, entry: _Waiting, older: _Waiting | None) -> None:
        client = entry.request.client
        younger = older.younger if older is not None else self._oldest.get(client)
        entry.older, entry.younger = older, younger
        if older is not None:
            older.younger = entry
        else:
            self._oldest[client] = entry
        if younger is not None:
            younger.older = entry
        else:
            self._youngest[client] = entry
        self._overtaken.setdefault(client, 0)

    @staticmethod
    def _set(table: dict[ClientId, _Waiting], client: ClientId, entry: _Waiting | None) -> None:
        if entry is None:
            del table[client]
        else:
            table[client] = entry

    def _check(self, client: ClientId) -> None:
        if client in self._open and self._overtaken.get(client, 0) > self._limit:
            self._due[client] = None
        else:
            self._due.pop(client, None)

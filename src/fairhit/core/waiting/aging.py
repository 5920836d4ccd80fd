"""Ageing inside a client: how much service its later requests have taken past its oldest (DESIGN 3.2).

DLPM serves a client's best match first, so a request nobody matches could be overtaken for ever.
Everything that overtakes a waiting request also overtakes the older ones of its client, so only the
oldest needs a sum. Each waiting request keeps what overtook it but not the next younger one; when
it leaves, that part passes to its elder neighbour.
"""

from collections.abc import Iterable

from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.service import UNITS_PER_TOKEN, parse_tokens


class _Place:
    """A waiting request between its neighbours of the same client, by age."""

    __slots__ = ("elder", "request", "units", "younger")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.units = 0  # overtook this one and its elders, but nobody younger
        self.elder: _Place | None = None
        self.younger: _Place | None = None


class Aging:
    """For each client, its oldest waiting request and the service admitted past it.

    `limit` is in tokens; who was overtaken by more is due.
    """

    def __init__(self, *, limit: int) -> None:
        self._limit = parse_tokens(limit, least=0, where="max_overtake") * UNITS_PER_TOKEN
        self._places: dict[RequestId, _Place] = {}
        self._oldest: dict[ClientId, _Place] = {}
        self._youngest: dict[ClientId, _Place] = {}
        self._passed: dict[ClientId, int] = {}  # units that overtook the client's oldest
        self._open: set[ClientId] = set()
        self._due: dict[ClientId, None] = {}  # open, and overtaken too much; longest due first

    def add(self, request: Request) -> None:
        """It waits. O(1) for an arrival; for one that was held, the places to the nearer end."""
        place = self._places[request.id] = _Place(request)
        self._link(place, self._elder_of(request))

    def overtake(self, request: Request, units: int) -> None:
        """`request` is admitted for `units`: all elder ones were overtaken by that much. O(1)."""
        place = self._places[request.id]
        if place.elder is not None:
            place.elder.units += units
            self._passed[request.client] += units
            self._check(request.client)

    def remove(self, request: Request) -> None:
        """It no longer waits. O(1)."""
        place = self._places.pop(request.id)
        client = request.client
        elder, younger = place.elder, place.younger
        if elder is not None:
            elder.units += place.units
            elder.younger = younger
        else:
            self._passed[client] -= place.units
        if younger is not None:
            younger.elder = elder
        if self._youngest[client] is place:
            self._set(self._youngest, client, elder)
        if self._oldest[client] is place:
            self._set(self._oldest, client, younger)
        if client not in self._oldest:
            assert self._passed.pop(client) == 0
        self._check(client)

    def open(self, client: ClientId) -> None:
        """The client's requests may be chosen. O(1)."""
        self._open.add(client)
        self._check(client)

    def close(self, client: ClientId) -> None:
        """They may not. O(1)."""
        self._open.discard(client)
        self._due.pop(client, None)

    def due(self) -> Iterable[ClientId]:
        """The open clients whose oldest request was overtaken too much, longest due first."""
        return self._due

    def is_due(self, request: Request) -> bool:
        """Whether it is its client's oldest, overtaken too much, and may be chosen. O(1)."""
        return request.client in self._due and self._oldest[request.client].request is request

    def oldest(self, client: ClientId) -> Request:
        """The client's oldest waiting request."""
        return self._oldest[client].request

    def _elder_of(self, request: Request) -> _Place | None:
        """The place before the request's, sought from both ends by turns."""
        front, back = self._oldest.get(request.client), self._youngest.get(request.client)
        while back is not None and back.request.order > request.order:
            assert front is not None
            if front.request.order > request.order:
                return front.elder
            front, back = front.younger, back.elder
        return back

    def _link(self, place: _Place, elder: _Place | None) -> None:
        client = place.request.client
        younger = elder.younger if elder is not None else self._oldest.get(client)
        place.elder, place.younger = elder, younger
        if elder is not None:
            elder.younger = place
        else:
            self._oldest[client] = place
        if younger is not None:
            younger.elder = place
        else:
            self._youngest[client] = place
        self._passed.setdefault(client, 0)

    @staticmethod
    def _set(table: dict[ClientId, _Place], client: ClientId, place: _Place | None) -> None:
        if place is None:
            del table[client]
        else:
            table[client] = place

    def _check(self, client: ClientId) -> None:
        if client in self._open and self._passed.get(client, 0) > self._limit:
            self._due[client] = None
        else:
            self._due.pop(client, None)

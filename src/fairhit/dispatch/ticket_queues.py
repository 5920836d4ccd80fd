"""Tickets that wait, by model and client: whose turn it is, without looking at all of them."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Protocol

from fairhit.core.request import ClientId, WorkerId
from fairhit.dispatch.ticket import Ticket

# Clients looked at when a worker takes what waits elsewhere. Choosing the one that is owed most among
# a few is nearly as good as among all, and costs the same with a hundred thousand of them.
_LOOKS = 4
# Models looked at likewise, in turn: callers name them, where an engine does not list what it serves.
_MODELS = 16

_Line = OrderedDict[Ticket, None]


class Serving(Protocol):
    """Says what a worker can do."""

    @property
    def models(self) -> frozenset[str] | None:
        """What it lists; None: anything may go there."""
        ...

    def serves(self, model: str | None) -> bool:
        """Whether a request for `model` may go there."""
        ...


class TicketQueues:
    """Each client's tickets in their order; the clients of a model in a ring."""

    def __init__(self) -> None:
        self._rings: OrderedDict[str | None, OrderedDict[ClientId, _Line]] = OrderedDict()
        self._lines: dict[ClientId, OrderedDict[str | None, _Line]] = {}  # the same by client
        self._moved: dict[Ticket, None] = {}  # which not every worker may take
        self._pinned: dict[Ticket, None] = {}  # which no other worker may take
        self._counts: dict[ClientId, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Ticket]:
        """All of them, in no order that means anything. O(tickets)."""
        yield from self._moved
        yield from self._pinned
        for ring in self._rings.values():
            for line in ring.values():
                yield from line

    def count(self, client: ClientId) -> int:
        """How many of the client's wait. O(1)."""
        return self._counts.get(client, 0)

    def counts(self) -> Mapping[ClientId, int]:
        """How many wait of each client of whom any do; no copy. O(1)."""
        return self._counts

    def clients(self, its: Serving) -> Iterator[ClientId]:
        """Who waits for what that worker serves, some perhaps twice. O(clients)."""
        for model, ring in self._rings.items():
            if its.serves(model):
                yield from ring

    def pinned_clients(self) -> Iterator[ClientId]:
        """Who waits for the worker whose room this is, and for no other; some perhaps twice."""
        for ticket in self._pinned:
            yield ticket.request.client

    def add(self, ticket: Ticket) -> None:
        """It waits behind its client's others. O(1)."""
        client = ticket.request.client
        if ticket.pinned:
            self._pinned[ticket] = None
        elif ticket.tried:
            self._moved[ticket] = None
        else:
            ring = self._rings.setdefault(ticket.model, OrderedDict())
            line = ring.get(client)
            if line is None:
                line = ring[client] = OrderedDict()
                self._lines.setdefault(client, OrderedDict())[ticket.model] = line
            line[ticket] = None
        self._counts[client] = self._counts.get(client, 0) + 1
        self._size += 1

    def remove(self, ticket: Ticket) -> None:
        """It waits no more. O(1)."""
        client = ticket.request.client
        if ticket in self._pinned:
            del self._pinned[ticket]
        elif ticket in self._moved:
            del self._moved[ticket]
        else:
            ring = self._rings[ticket.model]
            line = ring[client]
            del line[ticket]
            if not line:
                self._close(ticket.model, ring, client)
        left = self._counts.pop(client) - 1
        if left:
            self._counts[client] = left
        self._size -= 1

    def first(self, model: str | None, client: ClientId) -> Ticket | None:
        """The client's oldest ticket for that model. O(1)."""
        ring = self._rings.get(model)
        line = ring.get(client) if ring else None
        return next(iter(line)) if line else None

    def firsts(self, client: ClientId) -> list[Ticket]:
        """The client's oldest ticket for each of a few models, which go to the end of its own. O(1)."""
        lines = self._lines.get(client)
        if lines is None:
            return []
        found = [next(iter(line)) for line in islice(lines.values(), _MODELS)]
        if len(lines) > _MODELS:
            for ticket in found:
                lines.move_to_end(ticket.model)
        return found

    def offers(self, worker: WorkerId, its: Serving, *, newest: bool = False) -> list[Ticket]:
        """What `worker` could take: a ticket of each of a few clients for a few models, which go to the end.

        At least one if there is any. O(models that the worker lists + tickets that have moved).
        """
        offered, rings = [], self._rings
        for model in self._served(its):
            ring = rings[model]
            for client in list(islice(ring, _LOOKS)):
                line = ring[client]
                offered.append(next(reversed(line)) if newest else next(iter(line)))
                ring.move_to_end(client)
            if len(rings) > _MODELS:
                rings.move_to_end(model)
        for ticket in self._moved:
            if worker not in ticket.tried and its.serves(ticket.model):
                offered.append(ticket)
                break
        return offered

    def _served(self, its: Serving) -> list[str | None]:
        """Up to so many models that it serves and somebody waits for, those in front in the ring of models.

        Callers may have named thousands that it does not serve, where another engine does not list its own.
        """
        rings, listed = self._rings, its.models
        if listed is not None and len(listed) < len(rings):
            found: list[str | None] = [None] if None in rings else []
            found += sorted(model for model in listed if model in rings)
            if len(found) <= _MODELS:
                return found
        return list(islice((model for model in rings if its.serves(model)), _MODELS))

    def _close(
        self, model: str | None, ring: OrderedDict[ClientId, _Line], client: ClientId
    ) -> None:
        """None of the client's wait for that model."""
        del ring[client]
        if not ring:
            del self._rings[model]
        lines = self._lines[client]
        del lines[model]
        if not lines:
            del self._lines[client]

"""Tickets that wait, by model and client: whose turn it is, without looking at all of them."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Protocol

from fairlead.core.request import ClientId, WorkerId
from fairlead.dispatch.tickets import Ticket

# Clients looked at when a worker takes what waits elsewhere. Choosing the one that is owed most among
# a few is nearly as good as among all, and costs the same with a hundred thousand of them.
_LOOKS = 4

_Line = OrderedDict[Ticket, None]


class Serving(Protocol):
    """Says what a worker can do."""

    def serves(self, model: str | None) -> bool:
        """Whether a request for `model` may go there."""
        ...


class Room:
    """Each client's tickets in their order; the clients of a model in a ring."""

    def __init__(self) -> None:
        self._rings: dict[str | None, OrderedDict[ClientId, _Line]] = {}
        self._moved: dict[Ticket, None] = {}  # which not every worker may take
        self._counts: dict[ClientId, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Ticket]:
        """All of them, in no order that means anything. O(tickets)."""
        yield from self._moved
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

    def add(self, ticket: Ticket) -> None:
        """It waits behind its client's others. O(1)."""
        client = ticket.request.client
        if ticket.tried:
            self._moved[ticket] = None
        else:
            ring = self._rings.setdefault(ticket.model, OrderedDict())
            ring.setdefault(client, OrderedDict())[ticket] = None
        self._counts[client] = self._counts.get(client, 0) + 1
        self._size += 1

    def remove(self, ticket: Ticket) -> None:
        """It waits no more. O(1)."""
        client = ticket.request.client
        if ticket in self._moved:
            del self._moved[ticket]
        else:
            ring = self._rings[ticket.model]
            del ring[client][ticket]
            if not ring[client]:
                del ring[client]
                if not ring:
                    del self._rings[ticket.model]
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
        """The client's oldest ticket for each model. O(models that somebody waits for)."""
        if client not in self._counts:
            return []
        lines = [ring[client] for ring in self._rings.values() if client in ring]
        return [next(iter(line)) for line in lines]

    def offers(self, worker: WorkerId, its: Serving, *, newest: bool = False) -> list[Ticket]:
        """What `worker` could take: a ticket of each of a few clients, which go to the ring's end.

        At least one if there is any. O(models that somebody waits for + tickets that have moved).
        """
        offered = []
        for model, ring in self._rings.items():
            if its.serves(model):
                for client in [client for client, _ in zip(ring, range(_LOOKS), strict=False)]:
                    line = ring[client]
                    offered.append(next(reversed(line)) if newest else next(iter(line)))
                    ring.move_to_end(client)
        for ticket in self._moved:
            if worker not in ticket.tried and its.serves(ticket.model):
                offered.append(ticket)
                break
        return offered

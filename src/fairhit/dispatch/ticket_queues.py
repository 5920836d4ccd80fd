"""Waiting tickets by model and client: a few candidates for an engine are found without a full scan."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Protocol

from fairhit.core.request import ClientId, WorkerId
from fairhit.dispatch.ticket import Ticket

# Clients examined when an engine takes a ticket from elsewhere. The best of a few clients is nearly as
# good as the best of all, and costs the same with a hundred thousand of them.
_CLIENTS_EXAMINED = 4
# Models examined likewise, in rotation: clients name them where an engine does not list its models.
_MODELS_EXAMINED = 16

_Tickets = OrderedDict[Ticket, None]  # of one client and model, oldest first


class ServesModels(Protocol):
    """The models of an engine."""

    @property
    def models(self) -> frozenset[str] | None:
        """The listed models; None: any request may go there."""
        ...

    def serves(self, model: str | None) -> bool:
        """True if a request for `model` may go there."""
        ...


class TicketQueues:
    """Waiting tickets of each client in order of arrival, with the clients of each model in a ring."""

    def __init__(self) -> None:
        self._rings: OrderedDict[str | None, OrderedDict[ClientId, _Tickets]] = OrderedDict()
        self._by_client: dict[ClientId, OrderedDict[str | None, _Tickets]] = {}  # the same lists
        self._failed_over: dict[
            Ticket, None
        ] = {}  # an engine failed these: not every engine may take them
        self._pinned: dict[Ticket, None] = {}  # no other engine may take these
        self._counts: dict[ClientId, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Ticket]:
        """Iterate over all tickets in no particular order. O(tickets)."""
        yield from self._failed_over
        yield from self._pinned
        for ring in self._rings.values():
            for tickets in ring.values():
                yield from tickets

    def count(self, client: ClientId) -> int:
        """Return the number of tickets of `client`. O(1)."""
        return self._counts.get(client, 0)

    def counts(self) -> Mapping[ClientId, int]:
        """Return the number of tickets of each client that has any; not a copy. O(1)."""
        return self._counts

    def clients(self, engine: ServesModels) -> Iterator[ClientId]:
        """Iterate over the clients with a ticket that `engine` serves, with repetitions. O(clients)."""
        for model, ring in self._rings.items():
            if engine.serves(model):
                yield from ring

    def pinned_clients(self) -> Iterator[ClientId]:
        """Iterate over the clients of pinned tickets, with repetitions. O(pinned tickets)."""
        for ticket in self._pinned:
            yield ticket.request.client

    def add(self, ticket: Ticket) -> None:
        """Append `ticket` to its client's tickets. O(1)."""
        client = ticket.request.client
        if ticket.pinned:
            self._pinned[ticket] = None
        elif ticket.tried:
            self._failed_over[ticket] = None
        else:
            ring = self._rings.setdefault(ticket.model, OrderedDict())
            tickets = ring.get(client)
            if tickets is None:
                tickets = ring[client] = OrderedDict()
                self._by_client.setdefault(client, OrderedDict())[ticket.model] = tickets
            tickets[ticket] = None
        self._counts[client] = self._counts.get(client, 0) + 1
        self._size += 1

    def remove(self, ticket: Ticket) -> None:
        """Remove `ticket`. O(1)."""
        client = ticket.request.client
        if ticket in self._pinned:
            del self._pinned[ticket]
        elif ticket in self._failed_over:
            del self._failed_over[ticket]
        else:
            tickets = self._rings[ticket.model][client]
            del tickets[ticket]
            if not tickets:
                self._drop(ticket.model, client)
        left = self._counts.pop(client) - 1
        if left:
            self._counts[client] = left
        self._size -= 1

    def oldest(self, model: str | None, client: ClientId) -> Ticket | None:
        """Return the client's oldest ticket for `model`. O(1)."""
        ring = self._rings.get(model)
        tickets = ring.get(client) if ring else None
        return next(iter(tickets)) if tickets else None

    def oldest_by_model(self, client: ClientId) -> list[Ticket]:
        """Return the client's oldest ticket for each of up to 16 models, in rotation. O(1)."""
        models = self._by_client.get(client)
        if models is None:
            return []
        found = [next(iter(tickets)) for tickets in islice(models.values(), _MODELS_EXAMINED)]
        if len(models) > _MODELS_EXAMINED:
            for ticket in found:
                models.move_to_end(ticket.model)
        return found

    def candidates(
        self, worker: WorkerId, engine: ServesModels, *, newest: bool = False
    ) -> list[Ticket]:
        """Return tickets that `worker` could take: of up to 16 models, 4 clients each, in rotation.

        At least one if there is any. O(models that the engine lists + tickets that an engine failed).
        """
        found, rings = [], self._rings
        for model in self._served(engine):
            ring = rings[model]
            for client in list(islice(ring, _CLIENTS_EXAMINED)):
                tickets = ring[client]
                found.append(next(reversed(tickets)) if newest else next(iter(tickets)))
                ring.move_to_end(client)
            if len(rings) > _MODELS_EXAMINED:
                rings.move_to_end(model)
        for ticket in self._failed_over:
            if worker not in ticket.tried and engine.serves(ticket.model):
                found.append(ticket)
                break
        return found

    def _served(self, engine: ServesModels) -> list[str | None]:
        """Return up to 16 models that `engine` serves and that have tickets, in the order of the rotation.

        Clients may have named thousands of others, if another engine does not list its models.
        """
        rings, listed = self._rings, engine.models
        if listed is not None and len(listed) < len(rings):
            found: list[str | None] = [None] if None in rings else []
            found += sorted(model for model in listed if model in rings)
            if len(found) <= _MODELS_EXAMINED:
                return found
        return list(islice((model for model in rings if engine.serves(model)), _MODELS_EXAMINED))

    def _drop(self, model: str | None, client: ClientId) -> None:
        """Remove the client's empty list for `model`."""
        ring, models = self._rings[model], self._by_client[client]
        del ring[client], models[model]
        if not ring:
            del self._rings[model]
        if not models:
            del self._by_client[client]

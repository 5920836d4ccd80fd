"""LoRA slot rotation: which adapters may use the LoRA slots while more adapters wait than slots exist.

An engine computes a few adapters at a time. It admits a request only if the request's adapter holds a slot
or a slot is free, and a slot becomes free when the last running request of its adapter ends. So clients that
always have a request waiting would keep their slots for ever, and a policy could not help: a request without
a slot cannot be scheduled.

While a request waits for a slot, slots are assigned to adapters, and the service of each adapter is counted,
summed over its clients. An adapter's tenure lasts until the adapter has received `tenure_len`, and longer if
it has received less than every waiting adapter. Then the adapter is drained: none of its requests is
admitted, its last running request ends, and its slot goes to the waiting adapter with the least service. As
many adapters are drained at once as adapters wait, those with the most service first. An adapter keeps its
slot while it has waiting requests; without any it loses the slot when its last running request ends. Nothing
is preempted.

The service of an adapter is the service of its requests or, if larger, that of its least-served client: so a
client with several adapters gets no larger share, and an adapter with many clients gets no smaller one. A new
adapter starts with the service of the adapter that was assigned a slot last.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from fairhit.core.request import ClientId, RequestId
from fairhit.core.service import (
    UNITS_PER_TOKEN,
    WEIGHT_SCALE,
    Weights,
    divide_half_up,
    system_view,
)

# An adapter that has received less than the waiting ones keeps its slot for this part of a tenure more.
EXTENSIONS_PER_TENURE = 8
# Passes without a waiting request of the adapter that use up a tenure: a client that sends one request after
# the other needs few tokens and much time.
IDLE_PASSES_PER_TENURE = 256
# Passes that use up a tenure in which the adapter's requests were offered a free slot and could not run:
# they wait for something else, say for a connector's answer, and other adapters would wait with them.
DECLINED_PASSES_PER_TENURE = 8
# Waiting clients of an adapter that are compared when a slot is assigned.
CLIENTS_COMPARED = 16
# Clients whose service is remembered, the last served; any other client counts as new.
CLIENTS_REMEMBERED = 1024

_UNLIMITED = sys.maxsize


class Taker(NamedTuple):
    """The client and adapter of a request; adapter None where the model itself takes a slot, as in SGLang."""

    client: ClientId
    adapter: str | None


class LoraSlotRotation:
    """Assigns slots to adapters. `tenure_len` is in tokens of service of weight 1; 0: no rotation."""

    def __init__(self, *, tenure_len: int, weights: Weights | None = None) -> None:
        assert tenure_len >= 0, tenure_len
        self.rotations = 0  # how often an adapter was drained for another one
        self.is_contended = False  # a request waits for a slot; only then service is counted
        # A taker for each adapter that is assigned a slot and has no running request: to be tried first.
        self.reserved: tuple[Taker, ...] = ()
        self._tenure = tenure_len * UNITS_PER_TOKEN
        self._weights = weights or Weights()
        self._slots = _UNLIMITED  # until the first pass
        # Adapters with a slot; True if a request of the adapter waited at each pass.
        self._assigned: dict[str | None, bool] = {}
        self._draining: dict[str | None, None] = {}
        # Adapters whose requests were offered a free slot since the last pass and did not take it.
        self._declined: set[str | None] = set()
        self._waiting: dict[str | None, dict[ClientId, dict[RequestId, None]]] = {}
        self._waiting_takers: dict[RequestId, Taker] = {}
        self._running: dict[RequestId, Taker] = {}
        # Service in units, divided by weight, since a request waits for a slot.
        self._baseline = 0  # of the adapter that was assigned a slot last
        self._of_adapter: dict[str | None, int] = {}
        self._of_client: dict[ClientId, int] = {}
        self._tenure_end: dict[str | None, int] = {}  # the service at which the tenure is over

    @property
    def is_on(self) -> bool:
        """Return whether adapters are ever drained."""
        return self._tenure > 0

    # -- requests -------------------------------------------------------------------------------

    def add_waiting(self, name: RequestId, taker: Taker) -> None:
        """Record a request that lacks nothing but a slot, if it is not recorded yet. O(1)."""
        if self._tenure and self._waiting_takers.get(name) != taker:
            self.remove_waiting(name)
            clients = self._waiting.setdefault(taker.adapter, {})
            clients.setdefault(taker.client, {})[name] = None
            self._waiting_takers[name] = taker

    def remove_waiting(self, name: RequestId) -> None:
        """Remove a request from the waiting ones, if recorded there. O(1)."""
        if (taker := self._waiting_takers.pop(name, None)) is None:
            return
        clients = self._waiting[taker.adapter]
        del clients[taker.client][name]
        if not clients[taker.client]:
            del clients[taker.client]
        if not clients:
            del self._waiting[taker.adapter]

    def remove(self, name: RequestId) -> None:
        """Remove every record of a request that finished or was aborted, running or not. O(1)."""
        self.remove_waiting(name)
        self._running.pop(name, None)

    def on_admit(self, name: RequestId, taker: Taker, extend_len: int) -> None:
        """Record that a request runs, and count its prompt tokens if slots are contended. O(1)."""
        self.remove_waiting(name)
        if not self.is_contended:
            return
        if taker.adapter not in self._assigned:
            self._assign(taker.adapter)
        self._running[name] = taker
        self._count(taker, extend_len)

    def on_output(self, name: RequestId, tokens: int) -> None:
        """Count output tokens of a running request. O(1)."""
        if taker := self._running.get(name):
            self._count(taker, system_view(0, tokens))

    def on_no_slot(self) -> None:
        """Record that a request found no slot: slots are contended from now on. O(1)."""
        self.is_contended = self._tenure > 0

    def on_declined(self, adapter: str | None) -> None:
        """Record that a request of the adapter was offered a free slot and could not run. O(1)."""
        if self.is_contended:
            self._declined.add(adapter)

    # -- slots ----------------------------------------------------------------------------------

    def begin_pass(self, slots: int, running: Mapping[RequestId, Taker]) -> None:
        """Assign free slots, and drain adapters whose tenure is over. `running` are requests with an adapter.

        Call before a scheduling pass while slots are contended. O(running + slots), and O(adapters) more when
        a slot is assigned or a tenure may be over: a few times a tenure for each adapter with a slot. Ties go
        by the order of `_assigned` and `_waiting`.
        """
        for name in running:
            self.remove_waiting(name)
        holders = dict.fromkeys(taker.adapter for taker in running.values())
        slots = max(slots, 1)
        if self._slots_suffice(holders, slots):
            self._reset()
            return
        self._running, self._slots = dict(running), slots
        vacated = self._update_assigned(holders)
        while len(self._assigned) < self._slots and (best := self._least_served(vacated)):
            self._assign_next(best)
        before = self._draining
        # An adapter stays drained only while there are more adapters than slots.
        still = [adapter for adapter in before if adapter in self._assigned]
        self._draining = dict.fromkeys(still[: max(len(self._assigned) - self._slots, 0)])
        self._end_tenures(running, holders)
        self.rotations += len(self._draining.keys() - before.keys())
        self.reserved = tuple(
            Taker(next(iter(self._waiting[adapter])), adapter)
            for adapter in self._assigned
            if adapter not in holders
        )

    def forbids(self, adapter: str | None) -> bool:
        """Return whether no request of the adapter may be admitted: drained, or without a slot. O(1)."""
        if adapter in self._assigned:
            return adapter in self._draining
        return len(self._assigned) >= self._slots

    def differences(
        self,
        waiting: Mapping[RequestId, Taker],
        *,
        perhaps: Mapping[RequestId, Taker],
        live: Collection[RequestId],
    ) -> Iterator[str]:
        """Yield each record that contradicts the engine's; for audits. O(waiting + live).

        Requests of `waiting` lack nothing but a slot and must be recorded, those of `perhaps` may be, and no
        other request is.
        """
        here, expected = self._waiting_takers, waiting if self.is_on else {}
        for name in here.keys() | expected.keys():
            if here.get(name) != expected.get(name, perhaps.get(name) if name in here else None):
                yield f"{name} waits for a slot as {here.get(name)}, not {expected.get(name)}"
        for name in self._running.keys() - set(live):
            yield f"{name} has ended and holds an adapter's slot"
        listed = [
            name
            for clients in self._waiting.values()
            for names in clients.values()
            for name in names
        ]
        if sorted(listed) != sorted(here):
            yield f"adapters list {sorted(listed)}, their requests are {sorted(here)}"
        if unassigned := [str(each) for each in self._draining if each not in self._assigned]:
            yield f"adapters {unassigned} are drained and have no slot"

    # -- inside ---------------------------------------------------------------------------------

    def _slots_suffice(self, holders: Mapping[str | None, None], slots: int) -> bool:
        """Return whether each waiting adapter has a slot or finds a free one. O(slots)."""
        waiting = self._waiting.keys()
        if len(waiting) <= slots and len(waiting | holders.keys()) <= slots:
            return True
        return all(adapter in holders for adapter in waiting)

    def _update_assigned(self, holders: Collection[str | None]) -> list[str | None]:
        """Update which adapters have a slot at this pass; return those that vacated theirs."""
        vacated = []
        for adapter, was_waiting in list(self._assigned.items()):
            is_waiting = adapter in self._waiting
            if adapter in holders:
                self._assigned[adapter] = was_waiting and is_waiting
                if not is_waiting:
                    self._tenure_end[adapter] -= self._tenure // IDLE_PASSES_PER_TENURE
                continue
            if adapter in self._declined:
                self._tenure_end[adapter] -= self._tenure // DECLINED_PASSES_PER_TENURE
            is_over = adapter in self._declined and self._is_tenure_over(adapter)
            if is_over or adapter in self._draining or not (was_waiting and is_waiting):
                vacated.append(adapter)
                self._vacate(adapter)
        self._declined.clear()
        for adapter in holders:
            if adapter not in self._assigned:
                self._assign(adapter)
        return vacated

    def _end_tenures(
        self, running: Mapping[RequestId, Taker], holders: Collection[str | None]
    ) -> None:
        """Drain adapters whose tenure is over, most-served first, one for each waiting adapter."""
        services = self._services_after_tenure(running)
        while services:
            # With fewer slots than before some adapters must go, and not for a new one.
            are_too_many = len(self._assigned) - len(self._draining) > self._slots
            best = None if are_too_many else self._least_served()
            if best is not None:
                self._extend_tenures(services, self._service(best.adapter, [best.client]))
            elif not are_too_many:
                return
            if not services:
                return
            first = max(services, key=services.__getitem__)
            del services[first]
            if first in holders:
                self._draining[first] = None
            else:
                self._vacate(first)
            if best is not None:
                self._assign_next(best)

    def _services_after_tenure(self, running: Mapping[RequestId, Taker]) -> dict[str | None, int]:
        """Return the service of each adapter whose tenure is over and that is not drained yet."""
        clients_of: dict[str | None, list[ClientId]] = {
            adapter: []
            for adapter in self._assigned
            if self._is_tenure_over(adapter) and adapter not in self._draining
        }
        if clients_of:
            for taker in running.values():
                if taker.adapter in clients_of:
                    clients_of[taker.adapter].append(taker.client)
        return {
            adapter: self._service(adapter, clients or self._first_clients(adapter))
            for adapter, clients in clients_of.items()
        }

    def _extend_tenures(self, services: dict[str | None, int], least: int) -> None:
        """Extend the tenure of adapters with less service than `least` that always had waiting requests."""
        for adapter in [each for each in services if services[each] < least]:
            if self._assigned[adapter]:
                extension = self._tenure // EXTENSIONS_PER_TENURE
                self._tenure_end[adapter] = self._of_adapter[adapter] + extension
                del services[adapter]

    def _least_served(self, last: Collection[str | None] = ()) -> Taker | None:
        """Return the least-served waiting taker without a slot; one of `last` only if there is no other."""
        best, least = None, (True, 0, 0)
        for adapter in self._waiting:
            if adapter in self._assigned:
                continue
            client = min(self._first_clients(adapter), key=self._client_service)
            service = self._service(adapter, [client])
            rank = adapter in last, service, self._of_adapter.get(adapter, self._baseline)
            if best is None or rank < least:
                best, least = Taker(client, adapter), rank
        return best

    def _assign_next(self, taker: Taker) -> None:
        """Assign a slot to a waiting adapter; adapters with no more service than that one count as new."""
        self._baseline = max(self._baseline, self._service(taker.adapter, [taker.client]))
        self._assign(taker.adapter)
        for adapter, service in list(self._of_adapter.items()):
            if service <= self._baseline and adapter not in self._assigned:
                del self._of_adapter[adapter]
                self._tenure_end.pop(adapter, None)

    def _assign(self, adapter: str | None) -> None:
        self._assigned[adapter] = True
        service = self._of_adapter.setdefault(adapter, self._baseline)
        self._tenure_end.setdefault(adapter, service + self._tenure)

    def _vacate(self, adapter: str | None) -> None:
        """Free the adapter's slot. A tenure that is not over goes on when the adapter gets a slot again.

        Otherwise an adapter that vacates its slot often would never end its tenure.
        """
        del self._assigned[adapter]
        if self._is_tenure_over(adapter):
            del self._tenure_end[adapter]

    def _is_tenure_over(self, adapter: str | None) -> bool:
        return self._of_adapter[adapter] >= self._tenure_end[adapter]

    def _first_clients(self, adapter: str | None) -> list[ClientId]:
        return list(islice(self._waiting[adapter], CLIENTS_COMPARED))

    def _service(self, adapter: str | None, clients: Iterable[ClientId]) -> int:
        """Return the service of an adapter with these clients."""
        service = self._of_adapter.get(adapter, self._baseline)
        return max(service, min(map(self._client_service, clients)))

    def _client_service(self, client: ClientId) -> int:
        return self._of_client.get(client, self._baseline)

    def _count(self, taker: Taker, tokens: int) -> None:
        """Add tokens to the service of an adapter and of its client."""
        weighted = divide_half_up(
            tokens * UNITS_PER_TOKEN * WEIGHT_SCALE, self._weights.of(taker.client)
        )
        service = self._of_adapter.get(taker.adapter, self._baseline)
        self._of_adapter[taker.adapter] = service + weighted
        self._of_client[taker.client] = self._of_client.pop(taker.client, self._baseline) + weighted
        if len(self._of_client) > CLIENTS_REMEMBERED:
            del self._of_client[next(iter(self._of_client))]

    def _reset(self) -> None:
        """Forget all service: no request waits for a slot."""
        self.is_contended = False
        self.reserved = ()
        self._slots, self._baseline = _UNLIMITED, 0
        self._assigned.clear()
        self._draining.clear()
        self._running.clear()
        self._tenure_end.clear()
        self._declined.clear()
        self._of_adapter.clear()
        self._of_client.clear()

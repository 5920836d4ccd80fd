"""Turns at the slots for LoRA adapters: who waits for one gets it, however busy the others' users are.

An engine computes a few adapters at a time. A request is taken in only if its adapter holds one of these
slots or one is free, and a slot is free once no request of its adapter runs. So users that ask without
pause would keep theirs for ever, and a policy could not help: who waits for a slot is not schedulable.

While somebody waits for one, slots are given to adapters, and what each adapter receives is counted,
whoever of its users it is for. A turn lasts from then until `turn_len` is received, and longer for who has
received less than all that wait. Then the adapter takes nobody in any more, its last request ends, and the
slot is the one's that has received least. So do as many at once as wait, those first that received most. A
slot is kept as long as somebody of its adapter waits: who leaves seats empty loses it when its last request
ends. Nobody is preempted.

What an adapter has received is what its users' requests took, or all that the one of its users received
who received least, if that is more: so several adapters are no larger share for one client, and many
clients none for one adapter. Who comes anew has received what the last one that got a slot had.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from fairlead.core.request import ClientId, RequestId
from fairlead.core.service import (
    UNITS_PER_TOKEN,
    WEIGHT_SCALE,
    Weights,
    divide_half_up,
    system_view,
)

# After how much of a turn it is asked again whether one that was behind has caught up.
QUESTIONS_PER_TURN = 8
# Looks of the engine for whom to take, in vain for the adapter, that end its turn: one caller after the
# other needs few tokens and much time.
LOOKS_UNUSED_PER_TURN = 256
# Looks in which the adapter's requests were offered a free slot and could not run, that end its turn:
# they wait for something else, say for their connector's answer, and other adapters would wait with them.
LOOKS_DECLINED_PER_TURN = 8
# Of an adapter's clients that wait, those compared when a slot is given.
CLIENTS_COMPARED = 16
# Whose service is remembered, the last served; any other counts as if it came anew.
CLIENTS_REMEMBERED = 1024

_UNLIMITED = sys.maxsize


class Taker(NamedTuple):
    """A client's requests for one adapter; None where the model itself takes a slot, as in SGLang."""

    client: ClientId
    adapter: str | None


class AdapterTurns:
    """Counts, and says who gives way. `turn_len` is in tokens of service of weight 1; 0: no turns."""

    def __init__(self, *, turn_len: int, weights: Weights | None = None) -> None:
        assert turn_len >= 0, turn_len
        self.turns = 0  # how often an adapter gave way
        self.is_contended = False  # whether somebody waits for a slot; only then service is counted
        # For whom a slot is kept or emptied, with whoever of it waits: to be tried first.
        self.awaited: tuple[Taker, ...] = ()
        self._turn = turn_len * UNITS_PER_TOKEN
        self._weights = weights or Weights()
        self._slots = _UNLIMITED  # until the first look
        # Whose the slots are; whether somebody of it waited at each look.
        self._held: dict[str | None, bool] = {}
        self._giving: dict[str | None, None] = {}  # who takes nobody in
        # Adapters whose requests were offered a free slot since the last look and did not take it.
        self._declined: set[str | None] = set()
        self._waiting: dict[str | None, dict[ClientId, dict[RequestId, None]]] = {}
        self._taker: dict[RequestId, Taker] = {}  # of those that wait
        self._runs: dict[RequestId, Taker] = {}
        # In units, by weight, since somebody waits for a slot.
        self._level = 0  # what the last one that got a slot had received
        self._received: dict[str | None, int] = {}
        self._of_client: dict[ClientId, int] = {}
        self._due: dict[str | None, int] = {}  # with so much received its turn is over

    @property
    def is_on(self) -> bool:
        """Whether anybody ever gives way."""
        return self._turn > 0

    # -- who comes and goes ---------------------------------------------------------------------

    def wants(self, name: RequestId, taker: Taker) -> None:
        """A request waits and could run if its adapter had a slot. O(1), and again is no error."""
        if self._turn and self._taker.get(name) != taker:
            self.leaves(name)
            clients = self._waiting.setdefault(taker.adapter, {})
            clients.setdefault(taker.client, {})[name] = None
            self._taker[name] = taker

    def leaves(self, name: RequestId) -> None:
        """It waits no more, if it did, or not for a slot alone. O(1)."""
        if (taker := self._taker.pop(name, None)) is None:
            return
        clients = self._waiting[taker.adapter]
        del clients[taker.client][name]
        if not clients[taker.client]:
            del clients[taker.client]
        if not clients:
            del self._waiting[taker.adapter]

    def ended(self, name: RequestId) -> None:
        """Remove what is known of a request that is finished or aborted, running or not. O(1)."""
        self.leaves(name)
        self._runs.pop(name, None)

    def admitted(self, name: RequestId, taker: Taker, extend_len: int) -> None:
        """It runs. O(1)."""
        self.leaves(name)
        if not self.is_contended:
            return
        if taker.adapter not in self._held:
            self._enter(taker.adapter)
        self._runs[name] = taker
        self._add(taker, extend_len)

    def emitted(self, name: RequestId, tokens: int) -> None:
        """It emitted outputs while somebody waits for a slot. O(1)."""
        if taker := self._runs.get(name):
            self._add(taker, system_view(0, tokens))

    def contend(self) -> None:
        """Somebody found no slot. O(1)."""
        self.is_contended = self._turn > 0

    def declined(self, adapter: str | None) -> None:
        """Record that a request of the adapter was offered a free slot and could not run. O(1)."""
        if self.is_contended:
            self._declined.add(adapter)

    # -- whose turn it is -----------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether `look` is to be called before the next requests are taken in. O(1)."""
        return self.is_contended

    @property
    def starved(self) -> Taker | None:
        """The first of those for whom a slot is kept or emptied. O(1)."""
        return self.awaited[0] if self.awaited else None

    def look(self, slots: int, running: Mapping[RequestId, Taker]) -> None:
        """Give free slots away, and see whose turn is over. `running` are those that run with an adapter.

        To be called when the engine has room for a request. O(running + slots), and O(adapters) more when
        a slot is given, or it is asked whether a turn is over: some times a turn, for each that holds one.
        Ties go by their order.
        """
        for name in running:
            self.leaves(name)
        holders = dict.fromkeys(taker.adapter for taker in running.values())
        slots = max(slots, 1)
        if self._is_room_for_all(holders, slots):
            self._forget()
            return
        self._runs, self._slots = dict(running), slots
        left = self._keep(holders)
        while len(self._held) < self._slots and (best := self._choose(left)):
            self._give(best)
        gave = self._giving
        # Whose slot nobody is to have any more goes on.
        still = [adapter for adapter in gave if adapter in self._held]
        self._giving = dict.fromkeys(still[: max(len(self._held) - self._slots, 0)])
        self._end_turns(running, holders)
        self.turns += len(self._giving.keys() - gave.keys())  # the same for another is no more
        self.awaited = tuple(
            Taker(next(iter(self._waiting[adapter])), adapter)
            for adapter in self._held
            if adapter not in holders
        )

    def forbids(self, adapter: str | None) -> bool:
        """Whether nobody may be taken in for it: it gives way, or the slots are others'. O(1)."""
        if adapter in self._held:
            return adapter in self._giving
        return len(self._held) >= self._slots

    def differences(
        self,
        waiting: Mapping[RequestId, Taker],
        *,
        perhaps: Mapping[RequestId, Taker],
        live: Collection[RequestId],
    ) -> Iterator[str]:
        """Each record that contradicts the engine's; for audits. O(waiting + live).

        `waiting` lack nothing but a slot and are registered, those of `perhaps` may be; no other is.
        """
        here, expected = self._taker, waiting if self.is_on else {}
        for name in here.keys() | expected.keys():
            if here.get(name) != expected.get(name, perhaps.get(name) if name in here else None):
                yield f"{name} waits for a slot as {here.get(name)}, not {expected.get(name)}"
        for name in self._runs.keys() - set(live):
            yield f"{name} is gone and holds an adapter's slot"
        listed = [
            name
            for clients in self._waiting.values()
            for names in clients.values()
            for name in names
        ]
        if sorted(listed) != sorted(here):
            yield f"adapters list {sorted(listed)}, their requests are {sorted(here)}"
        if unheld := [str(adapter) for adapter in self._giving if adapter not in self._held]:
            yield f"adapters {unheld} give way and hold no slot"

    # -- inside ---------------------------------------------------------------------------------

    def _is_room_for_all(self, holders: Mapping[str | None, None], slots: int) -> bool:
        """Whether nobody waits for a slot: all that wait have one, or find one free. O(slots)."""
        waiting = self._waiting.keys()
        if len(waiting) <= slots and len(waiting | holders.keys()) <= slots:
            return True
        return all(adapter in holders for adapter in waiting)

    def _keep(self, holders: Collection[str | None]) -> list[str | None]:
        """Who has a slot at this look; those that had one and have left it are returned."""
        left = []
        for adapter, is_kept in list(self._held.items()):
            is_waiting = adapter in self._waiting
            if adapter in holders:
                self._held[adapter] = is_kept and is_waiting
                if not is_waiting:
                    self._due[adapter] -= self._turn // LOOKS_UNUSED_PER_TURN
                continue
            if adapter in self._declined:
                self._due[adapter] -= self._turn // LOOKS_DECLINED_PER_TURN
            is_over = adapter in self._declined and self._received[adapter] >= self._due[adapter]
            if is_over or adapter in self._giving or not (is_kept and is_waiting):
                left.append(adapter)
                self._leave(adapter)
        self._declined.clear()
        for adapter in holders:
            if adapter not in self._held:
                self._enter(adapter)
        return left

    def _end_turns(
        self, running: Mapping[RequestId, Taker], holders: Collection[str | None]
    ) -> None:
        """While one waits, of those whose turn is over who received most gives way to who received least."""
        had = self._had_by_those_over(running)
        while had:
            # With fewer slots than before some have to go, and not for somebody new.
            are_too_many = len(self._held) - len(self._giving) > self._slots
            best = None if are_too_many else self._choose()
            if best is not None:
                self._let_catch_up(had, self._had(best.adapter, [best.client]))
            elif not are_too_many:
                return
            if not had:
                return
            first = max(had, key=had.__getitem__)
            del had[first]
            if first in holders:
                self._giving[first] = None
            else:
                self._leave(first)
            if best is not None:
                self._give(best)

    def _had_by_those_over(self, running: Mapping[RequestId, Taker]) -> dict[str | None, int]:
        users: dict[str | None, list[ClientId]] = {
            adapter: []
            for adapter in self._held
            if self._received[adapter] >= self._due[adapter] and adapter not in self._giving
        }
        if users:
            for taker in running.values():
                if taker.adapter in users:
                    users[taker.adapter].append(taker.client)
        return {
            adapter: self._had(adapter, clients or self._first_clients(adapter))
            for adapter, clients in users.items()
        }

    def _let_catch_up(self, had: dict[str | None, int], least: int) -> None:
        """Those of them that had less than all that wait go on, but for who leaves seats empty."""
        for adapter in [adapter for adapter in had if had[adapter] < least and self._held[adapter]]:
            self._due[adapter] = self._received[adapter] + self._turn // QUESTIONS_PER_TURN
            del had[adapter]

    def _choose(self, last: Collection[str | None] = ()) -> Taker | None:
        """Who waits, has no slot and has received least; of `last` only if there is nobody else."""
        best, fewest = None, (True, 0, 0)
        for adapter in self._waiting:
            if adapter in self._held:
                continue
            client = min(self._first_clients(adapter), key=self._had_client)
            had = self._had(adapter, [client])
            rank = adapter in last, had, self._received.get(adapter, self._level)
            if best is None or rank < fewest:
                best, fewest = Taker(client, adapter), rank
        return best

    def _give(self, taker: Taker) -> None:
        """It may take a slot from now on. Who has received no more than it is as if it came anew."""
        self._level = max(self._level, self._had(taker.adapter, [taker.client]))
        self._enter(taker.adapter)
        for adapter, received in list(self._received.items()):
            if received <= self._level and adapter not in self._held:
                del self._received[adapter]
                self._due.pop(adapter, None)

    def _enter(self, adapter: str | None) -> None:
        self._held[adapter] = True
        received = self._received.setdefault(adapter, self._level)
        self._due.setdefault(adapter, received + self._turn)

    def _leave(self, adapter: str | None) -> None:
        """Its slot is free. Its turn goes on if it comes back before it is over, lest it never be."""
        del self._held[adapter]
        if self._received[adapter] >= self._due[adapter]:
            del self._due[adapter]

    def _first_clients(self, adapter: str | None) -> list[ClientId]:
        return list(islice(self._waiting[adapter], CLIENTS_COMPARED))

    def _had(self, adapter: str | None, clients: Iterable[ClientId]) -> int:
        """What the adapter has received, if these are its users."""
        received = self._received.get(adapter, self._level)
        return max(received, min(map(self._had_client, clients)))

    def _had_client(self, client: ClientId) -> int:
        return self._of_client.get(client, self._level)

    def _add(self, taker: Taker, tokens: int) -> None:
        weighted = divide_half_up(
            tokens * UNITS_PER_TOKEN * WEIGHT_SCALE, self._weights.of(taker.client)
        )
        self._received[taker.adapter] = self._received.get(taker.adapter, self._level) + weighted
        self._of_client[taker.client] = self._of_client.pop(taker.client, self._level) + weighted
        if len(self._of_client) > CLIENTS_REMEMBERED:
            del self._of_client[next(iter(self._of_client))]

    def _forget(self) -> None:
        """Nobody waits for a slot."""
        self.is_contended = False
        self.awaited = ()
        self._slots, self._level = _UNLIMITED, 0
        for part in (self._held, self._giving, self._runs, self._due, self._declined):
            part.clear()
        for received in (self._received, self._of_client):
            received.clear()

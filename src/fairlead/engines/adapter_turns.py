"""Turns at the slots for LoRA adapters: who waits for one gets it, however busy the others' users are.

An engine computes a few adapters at a time. A request is taken in only if its adapter holds one of these
slots or one is free, and a slot is free once no request of its adapter runs. So users that ask without
pause would keep theirs for ever, and a policy could not help: who waits for a slot is not schedulable.

While anybody waits for one, what each taker receives is counted. Where the running taker that received
most is a turn ahead of the waiting one that received least, the former's adapter takes nobody in any more:
its last request ends, and the slot is kept for the latter until it has caught up. Nobody is preempted.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fairlead.core.request import ClientId, RequestId
from fairlead.core.service import (
    UNITS_PER_TOKEN,
    WEIGHT_SCALE,
    Weights,
    divide_half_up,
    system_view,
)

# How often in a turn it is looked who is ahead: bounds what that costs, and delays a turn by as much.
LOOKS_PER_TURN = 8


class Taker(NamedTuple):
    """A client's requests for one adapter; None where the model itself takes a slot, as in SGLang."""

    client: ClientId
    adapter: str | None


class AdapterTurns:
    """Counts, and says who gives way. `turn_len` is in tokens of service of weight 1; 0: no turns.

    Turns are between clients, and of one client between its adapters: several adapters are no larger share.
    """

    def __init__(self, *, turn_len: int, weights: Weights | None = None) -> None:
        assert turn_len >= 0, turn_len
        self.turns = 0  # how often an adapter gave way
        self.starved: Taker | None = (
            None  # for whom a slot is given up, or kept until it has caught up
        )
        self.is_contended = False  # whether somebody waits for a slot; only then service is counted
        self._turn_len = turn_len
        self._weights = weights or Weights()
        self._ahead: Taker | None = None  # whom it is to catch up with
        self._is_draining = False  # whether the adapter of the one ahead still has the slot
        self._is_full = False  # whether no slot is left but the one that is kept
        self._holders: dict[str | None, None] = {}
        self._waiting: dict[Taker, dict[RequestId, None]] = {}
        self._taker: dict[RequestId, Taker] = {}  # of those that wait
        self._runs: dict[RequestId, Taker] = {}
        self._uncounted = 0  # service since it was last looked who is ahead
        self._of: dict[Taker, int] = {}  # service by weight, in units
        self._of_client: dict[ClientId, int] = {}

    # -- who comes and goes ---------------------------------------------------------------------

    def wants(self, name: RequestId, taker: Taker) -> None:
        """A request waits: for the first time, or preempted. O(1)."""
        if self._turn_len:
            self._waiting.setdefault(taker, {})[name] = None
            self._taker[name] = taker

    def leaves(self, name: RequestId) -> None:
        """It waits no more, if it did. O(1)."""
        if (taker := self._taker.pop(name, None)) is not None:
            del self._waiting[taker][name]
            if not self._waiting[taker]:
                del self._waiting[taker]

    def admitted(self, name: RequestId, taker: Taker, extend_len: int) -> None:
        """It runs. O(1)."""
        self.leaves(name)
        if not self.is_contended:
            return
        self._runs[name] = taker
        self._add(taker, extend_len)

    def emitted(self, name: RequestId, tokens: int) -> None:
        """It emitted outputs while somebody waits for a slot. O(1)."""
        if taker := self._runs.get(name):
            self._add(taker, system_view(0, tokens))

    def contend(self) -> None:
        """Somebody found no slot. O(1)."""
        self.is_contended = self._turn_len > 0

    # -- whose turn it is -----------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether `look` is to be called before the next requests are taken in. O(1)."""
        if not self.is_contended:
            return False
        return self.starved is not None or not self._runs or self._is_late

    def look(self, slots: int, running: Mapping[RequestId, Taker]) -> None:
        """See who is ahead of whom: perhaps an adapter gives way from now on. `running` are those that run
        with an adapter. O(running) while one has its turn, else O(running + takers). Ties go by their order.
        """
        self._holders = dict.fromkeys(taker.adapter for taker in running.values())
        if self.starved is not None and self._is_over(running):
            self.starved = self._ahead = None
        if self.starved is None or self._is_late:
            self._compare(slots, running)
        if self.starved is not None:
            assert self._ahead is not None
            self._is_draining = self._is_draining and self._ahead.adapter in self._holders
            self._is_full = len({**self._holders, self.starved.adapter: None}) >= slots

    def forbids(self, adapter: str | None) -> bool:
        """Whether nobody may be taken in for it: it gives way, or would take what another gives up. O(1)."""
        if self.starved is None or adapter == self.starved.adapter:
            return False
        assert self._ahead is not None
        if adapter in self._holders:
            return self._is_draining and adapter == self._ahead.adapter
        return self._is_full

    # -- inside ---------------------------------------------------------------------------------

    @property
    def _is_late(self) -> bool:
        """Whether enough was received since it was last looked who is ahead."""
        return self._uncounted * LOOKS_PER_TURN >= self._turn_len

    def _is_over(self, running: Mapping[RequestId, Taker]) -> bool:
        """Whether whose turn it is has caught up, or one of the two asks for nothing."""
        starved, ahead = self.starved, self._ahead
        assert starved is not None and ahead is not None
        is_there = starved in self._waiting or starved in running.values()
        return not is_there or ahead not in self._of or self._lead(ahead, starved) <= 0

    def _compare(self, slots: int, running: Mapping[RequestId, Taker]) -> None:
        out = [taker for taker in self._waiting if taker.adapter not in self._holders]
        if not out:
            self._forget()
            return
        self._uncounted = 0
        self._runs = dict(running)
        self._carry([*running.values(), *self._waiting])
        if len(self._holders) < max(slots, 1):
            return
        last = min(out, key=lambda taker: (self._of_client[taker.client], self._of[taker]))
        if self.starved is not None and self._lead(last, self.starved) >= 0:
            return  # nobody has received less than whose turn it is
        self.starved = None
        first = max(running.values(), key=lambda taker: self._lead(taker, last))
        if self._lead(first, last) >= self._turn_len * UNITS_PER_TOKEN:
            self.starved, self._ahead = last, first
            self._is_draining = True
            self.turns += 1

    def _add(self, taker: Taker, tokens: int) -> None:
        self._uncounted += tokens
        weighted = divide_half_up(
            tokens * UNITS_PER_TOKEN * WEIGHT_SCALE, self._weights.of(taker.client)
        )
        self._of[taker] = self._of.get(taker, 0) + weighted
        self._of_client[taker.client] = self._of_client.get(taker.client, 0) + weighted

    def _lead(self, one: Taker, other: Taker) -> int:
        """How much more `one` received, by weight, in units."""
        if one.client == other.client:
            return self._of[one] - self._of[other]
        return self._of_client[one.client] - self._of_client[other.client]

    def _carry(self, present: list[Taker]) -> None:
        """Who comes anew starts with the least that anybody has, and who is gone is forgotten.

        So nobody is owed what others received in its absence (VTC's lift, for slots).
        """
        clients = dict.fromkeys(taker.client for taker in present)
        known = [self._of_client[client] for client in clients if client in self._of_client]
        least = min(known, default=0)
        self._of_client = {client: self._of_client.get(client, least) for client in clients}
        leasts: dict[ClientId, int] = {}
        for taker in present:
            if taker in self._of:
                received = self._of[taker]
                leasts[taker.client] = min(leasts.get(taker.client, received), received)
        self._of = {
            taker: self._of.get(taker, leasts.get(taker.client, 0))
            for taker in dict.fromkeys(present)
        }

    def _forget(self) -> None:
        self.is_contended = False
        self.starved = self._ahead = None
        self._uncounted = 0
        for counted in (self._runs, self._of, self._of_client):
            counted.clear()

"""Delay scheduling: a ticket waits a little for the engine that has its prompt cached.

An engine with capacity declines a ticket of whose prompt another one holds much more. The ticket is then held
for that engine: for a time only that one may take it, afterwards each again, and it is held no second time.
Zaharia et al., Delay scheduling, EuroSys 2010, have the rule for a file's blocks in a cluster.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import WorkerId
from fairhit.dispatch.engine import Engine
from fairhit.dispatch.placement import Placement
from fairhit.dispatch.ticket import Ticket

# Prompt tokens that the other engine must hold in addition.
_LEAST = 256
# Microseconds to wait for each of them: four times as long as their prefill at 8,000 tokens/s.
_US_PER_TOKEN = 500

# Takes a ticket that is held, and the microseconds after which to call `Dispatcher.hold_over` with it.
OnHold = Callable[[Ticket, int], None]


class Hold(NamedTuple):
    """The engine for which a ticket is held, and how long at most."""

    engine: WorkerId
    longest_us: int


class DelayScheduling:
    """Decides for which engine a ticket is held; never for longer than `longest_us`."""

    def __init__(
        self, *, engines: Mapping[WorkerId, Engine], placement: Placement, longest_us: int
    ) -> None:
        self._engines = engines
        self._placement = placement
        self._longest_us = longest_us

    def hold(
        self,
        ticket: Ticket,
        name: WorkerId,
        *,
        among: Collection[WorkerId],
        matches: PrefixMatches | None = None,
    ) -> Hold | None:
        """Return the hold for one of `among` that has much more of the prompt cached than `name`, or None.

        Considers the engines with the longest match whose backlog it is worth (`Placement.is_worth`), and
        takes the one with most capacity left. O(chunks of the prompt + engines with that match).
        """
        if ticket.held is not None or ticket.pinned or not self._longest_us:
            return None
        if matches is None:
            matches = self._placement.matches(ticket)
        length, holders = matches.by_length[0] if matches.by_length else (0, ())
        saved = length - matches.of(name)
        if saved < _LEAST:
            return None
        found = [
            other
            for other in holders
            if other in among
            and self._engines[other].is_steady
            and self._placement.is_worth(saved, other, name)
        ]
        if not found:
            return None
        return Hold(min(found, key=self._load), min(saved * _US_PER_TOKEN, self._longest_us))

    def _load(self, name: WorkerId) -> tuple[int, WorkerId]:
        limit = self._engines[name].limit
        assert limit is not None, name
        return limit.in_flight - limit.size, name

"""The lanes of a queue: one for each set of engines that may take the same tickets."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from fairhit.core.ledgers.shared_deficits import Engines
from fairhit.core.request import ClientId, WorkerId
from fairhit.core.waiting.fleet_trie import Finder
from fairhit.dispatch.engine import Engine
from fairhit.dispatch.lane import Lane

# Lanes of an engine that are examined for its next ticket, in rotation.
_EXAMINED = 16
# Waiting clients, and engines of their lanes, in one report to other gateways.
_MOST_LISTED = 1024
_MOST_NAMED = 16_384
# Lanes kept without tickets: a policy without shared deficits has its accounts there.
_IDLE = 256


class Lanes:
    """Lanes by their engines, and the lanes of each engine that is up.

    `schedule` gives a new lane its scheduler.
    """

    def __init__(
        self,
        engines: Mapping[WorkerId, Engine],
        *,
        finder: Finder,
        schedule: Callable[[Lane], None],
    ) -> None:
        self._engines = engines
        self._finder = finder
        self._schedule = schedule
        self._lanes: OrderedDict[frozenset[WorkerId], Lane] = OrderedDict()
        self._of: dict[WorkerId, OrderedDict[Lane, None]] = {}

    def __iter__(self) -> Iterator[Lane]:
        return iter(self._lanes.values())

    @property
    def waiting(self) -> int:
        """Return how many lanes have waiting tickets. O(lanes)."""
        return sum(1 for lane in self if len(lane))

    def clients(self) -> dict[Engines, list[ClientId]]:
        """Return waiting clients by the engines that can be sent their requests. O(clients, lanes' engines).

        Some are missing if there are more than `_MOST_LISTED`, or engines than `_MOST_NAMED`.
        """
        found: dict[Engines, list[ClientId]] = {}
        left, names = _MOST_LISTED, _MOST_NAMED
        for lane in self:
            if not len(lane):
                continue
            engines = tuple(sorted(name for name in lane.engines if self._engines[name].is_open))
            if not engines or len(engines) > names or not left:
                continue
            clients = lane.clients(left)
            left, names = left - len(clients), names - len(engines)
            key = engines if len(engines) < len(self._engines) else ()
            found.setdefault(key, []).extend(clients)
        return found

    def get(self, engines: frozenset[WorkerId]) -> Lane:
        """Return the lane of these engines, made if necessary. O(its engines) then."""
        lane = self._lanes.get(engines)
        if lane is None:
            if len(self._lanes) >= _IDLE:
                self._drop_idle()
            lane = self._lanes[engines] = Lane(engines, self._finder)
            for name in engines:
                view = self._engines[name].view
                assert view is not None, name
                lane.add_engine(name, view)
                self._of[name][lane] = None
            self._schedule(lane)
        return lane

    def open(self, name: WorkerId) -> None:
        """Add an engine that is up, without lanes. O(1)."""
        self._of[name] = OrderedDict()

    def close(self, name: WorkerId) -> None:
        """Remove an engine that is down from its lanes; they keep their tickets. O(its lanes)."""
        for lane in self._of.pop(name, ()):
            lane.remove_engine(name)

    def of(self, name: WorkerId) -> list[Lane]:
        """Return lanes with tickets that the engine may take; of many a few, in rotation. O(its lanes)."""
        lanes = [lane for lane in self._of.get(name, ()) if len(lane)]
        if len(lanes) > _EXAMINED:
            lanes = lanes[:_EXAMINED]
            for lane in lanes:
                self._of[name].move_to_end(lane)
        return lanes

    def waits_for(self, name: WorkerId) -> Iterator[Lane]:
        """Iterate over all lanes with tickets that the engine may take."""
        return (lane for lane in self._of.get(name, ()) if len(lane))

    def drop_lost(self) -> None:
        """Drop lanes without waiting tickets that have an engine which is down. O(lanes)."""
        for engines, lane in list(self._lanes.items()):
            if not engines <= self._of.keys() and not len(lane):
                self._drop(lane)

    def _drop_idle(self) -> None:
        """Drop lanes without tickets, the one unused for longest first, until half may be kept."""
        idle = (lane for lane in list(self._lanes.values()) if lane.is_idle)
        for lane in islice(idle, max(0, len(self._lanes) - _IDLE // 2)):
            self._drop(lane)

    def _drop(self, lane: Lane) -> None:
        """Use a lane no more; its tickets in flight are charged there until they end."""
        lane.close()
        del self._lanes[lane.engines]
        for name in lane.engines:
            if name in self._of:
                self._of[name].pop(lane, None)

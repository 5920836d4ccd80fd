"""Preble's local scheduler: ten groups by hit ratio, each with a share of the admissions (`fcfs-mpq`).

    hit     matched / prompt tokens, when the request arrived; it never changes group
    group   ceil(10 hit) - 1, and 0 without a hit

A scheduling pass serves one group, the next lower one that is not empty, cyclically: at most
10 (group + 1) requests, oldest first. That is fair among hit ratios, not among clients.
"""

from fairhit.core.cache.cache_view import Cache
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.waiting.arrival_queue import ArrivalQueue
from fairhit.core.waiting.cache_listener import waiting_index

GROUPS = 10
# Admissions in a pass for each step of a group's rank: the groups' shares are 100 : 90 : ... : 10.
SHARE = 10


class PrebleGroups:
    """The oldest request of the group being served; groups with better matches have larger shares."""

    def __init__(self, *, cache: Cache) -> None:
        # Always empty between calls: used only to match an arriving prompt.
        self._index = waiting_index(cache)
        self._queues = [ArrivalQueue() for _ in range(GROUPS)]
        self._groups: dict[RequestId, int] = {}
        self._cursor = 0  # the group served last
        self._serving: int | None = None
        self._left = 0  # admissions left in the pass

    def add(self, request: Request) -> None:
        """Insert the request into the group of its hit ratio. O(prompt)."""
        self._index.add(request)
        matched = self._index.match_len(request)
        self._index.remove(request)
        group = self._groups[request.id] = max(0, -(-GROUPS * matched // request.input_len) - 1)
        self._queues[group].add(request)

    def remove(self, request: Request) -> None:
        """See `Policy.remove`."""
        self._queues[self._groups.pop(request.id)].remove(request)

    def begin_pass(self) -> None:
        """Begin a pass, which serves the next group."""
        if self._serving is not None:
            self._queues[self._serving].show_all()
        self._serving = None

    def next(self) -> Request | None:
        """Return the oldest request of the group, until its share of the pass is used up."""
        if self._serving is None:
            self._next_group()
        if self._serving is None or not self._left:
            return None
        return self._queues[self._serving].first()

    def skip(self, request: Request) -> None:
        """Skip the request; later ones of the group may still fit."""
        self._queues[self._groups[request.id]].hide(request)

    def on_admit(self, request: Request, *, extend_len: int) -> None:
        """Use one admission of the group's share."""
        self.remove(request)
        self._left = max(0, self._left - 1)

    def on_decode(self, request: Request, *, before: int, tokens: int) -> None:
        """Charge nothing."""

    def credit(self, client: ClientId) -> int:
        """Return 0 for every client, so that the newest request of all is preempted first."""
        return 0

    def _next_group(self) -> None:
        """Move the cursor down, from 0 back to 9, to the next group with requests. O(1)."""
        for step in range(1, GROUPS + 1):
            group = (self._cursor - step) % GROUPS
            if self._queues[group]:
                self._cursor = self._serving = group
                self._left = SHARE * (group + 1)
                return

"""A sorted snapshot of the index, for scheduling passes that skip a large share of the requests.

Hiding a request in the heaps and showing it again is O(depth * log n); a pass that skips hundreds, as
memory is full and the number of skips has no limit, would do that to all of them. The snapshot sorts
the other requests once and walks them, as the paper prints it. A pass that goes on admitting would
sort at each admission, so after a few sorts the hidden requests are hidden in the heaps instead.

Measured in the simulator, ideal engine, memory short, skips without limit: 2.1 to 2.7 times less CPU
a request (bursts of 300 to 3,000 requests; steady load beyond what memory holds).
"""

from collections.abc import Mapping

from fairhit.core.request import Request, RequestId
from fairhit.core.waiting.heaps import WaitingHeaps
from fairhit.core.waiting.trie import WaitingEntry

# Sorting the rest costs about as much as hiding and showing an eighth of it in the heaps.
_SHARE = 8
_FEW = 2  # so many are always hidden in the heaps
# Sorts per pass; afterwards the heaps hide all hidden requests until the next pass.
_MAX_SORTS = 3


class SortedSnapshot:
    """Requests hidden here and not in the heaps, and the best of the others.

    Used only while more than 1/8 of the waiting requests are hidden, or were in the last pass: a
    bounded number of skips costs what it does in the heaps. A *period* lasts from one moment at which
    no request is hidden to the next.
    """

    def __init__(
        self, heaps: WaitingHeaps, entries: Mapping[RequestId, WaitingEntry], *, enabled: bool
    ) -> None:
        self._enabled = enabled  # not where clients' standings are part of the order: they change
        self._heaps = heaps
        self._entries = entries
        self._hidden = 0  # here or in the heaps
        self._most = 0  # hidden at once in this period
        self._most_before = 0  # in the last period
        self._here = 0  # hidden here
        self._sorts = 0  # in this period
        # (depth, -order, entry) of open, visible requests, the best one last; None if out of date.
        self._sorted: list[tuple[int, int, WaitingEntry]] | None = None

    def __len__(self) -> int:
        """Return how many requests are hidden here. O(1)."""
        return self._here

    def hide(self, entry: WaitingEntry) -> bool:
        """Hide the entry here; return False if the heaps must hide it. O(1)."""
        if not self._hidden:
            self._most, self._most_before = 0, self._most
            self._sorts = 0
        self._hidden += 1
        self._most = max(self._most, self._hidden)
        many = max(self._most, self._most_before)
        if (
            not self._enabled
            or many <= _FEW
            or many * _SHARE <= len(self._entries)
            or self._sorts > _MAX_SORTS
        ):
            return False
        entry.in_snapshot = True
        self._here += 1
        return True

    def show(self, entry: WaitingEntry) -> bool:
        """Show or drop a hidden entry; return False if the heaps hid it. O(1)."""
        self._hidden -= 1
        self._sorted = None
        if not entry.in_snapshot:
            return False
        entry.in_snapshot = False
        self._here -= 1
        return True

    def invalidate(self) -> None:
        """Note that a request was inserted. O(1)."""
        self._sorted = None

    def best(self) -> Request | None:
        """Return the best request that is open and not hidden.

        O(1); O(n log n) after a change in the index, at most a few times a period.
        """
        if self._sorted is None or self._heaps.changed:
            self._sorts += 1
            if self._sorts > _MAX_SORTS:
                self._give_up()
                return self._heaps.best()
            self._heaps.refresh_tops()
            self._sorted = self._sort()
        left = self._sorted
        while left:
            entry = left[-1][2]
            is_open = self._heaps.is_open(entry.request.client)
            if entry.visible and not entry.in_snapshot and is_open:
                return entry.request
            left.pop()
        return None

    def _give_up(self) -> None:
        """Hide in the heaps what is hidden here. O(hidden * depth * log n)."""
        for entry in self._entries.values():
            if entry.in_snapshot:
                entry.in_snapshot = entry.visible = False
                self._heaps.refresh(entry.node, entry.request.client)
        self._here, self._sorted = 0, None

    def _sort(self) -> list[tuple[int, int, WaitingEntry]]:
        is_open = self._heaps.is_open
        entries = [
            (entry.node.anchor.depth, -entry.order, entry)
            for entry in self._entries.values()
            if entry.visible and not entry.in_snapshot and is_open(entry.request.client)
        ]
        entries.sort()
        return entries

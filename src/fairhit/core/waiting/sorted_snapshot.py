"""Many waiting requests left out for a moment: put aside, and the others walked in one sorted line.

Leaving one out of the heaps and entering it again is O(depth * log n); a look that passes over
hundreds, as its memory is full and its misfits have no limit, would do that to all of them. Here it
sorts the rest once and walks it, as the papers print it. A look that goes on admitting would sort at
each admission; it gets its hidden ones back into the heaps, where an admission is O(log n).
"""

from collections.abc import Mapping

from fairhit.core.request import Request, RequestId
from fairhit.core.waiting.heaps import WaitingHeaps
from fairhit.core.waiting.trie import WaitingEntry

# Sorting the rest costs about as much as hiding and showing an eighth of it; of a few, nothing.
_SHARE = 8
_FEW = 2
# How often the rest is sorted within one look; then the heaps have all of them until the next one.
_MAX_SORTS = 3


class SortedSnapshot:
    """Hidden requests of which the heaps do not know; who is best without them.

    Whoever hides fewer than an eighth of what waits, at most, from one time that nothing is hidden
    to the next, is not put aside: a bounded number of misfits costs what it does in the heaps.
    """

    def __init__(self, heaps: WaitingHeaps, entries: Mapping[RequestId, WaitingEntry]) -> None:
        self._heaps = heaps
        self._entries = entries
        self._hidden = 0  # here or in the heaps
        self._most = 0  # that were hidden at once, since nothing was
        self._most_before = 0  # the same, up to then
        self._here = 0
        self._sorts = 0  # since nothing was hidden
        # (depth, -order, entry) of those that are open and not hidden, the best one last; None if it
        # may not be true.
        self._line: list[tuple[int, int, WaitingEntry]] | None = None

    def __len__(self) -> int:
        """How many are hidden here. O(1)."""
        return self._here

    def hide(self, entry: WaitingEntry) -> bool:
        """One more is hidden; False if the heaps must do it. O(1)."""
        if not self._hidden:
            self._most, self._most_before = 0, self._most
            self._sorts = 0
        self._hidden += 1
        self._most = max(self._most, self._hidden)
        many = max(self._most, self._most_before)
        if many <= _FEW or many * _SHARE <= len(self._entries) or self._sorts > _MAX_SORTS:
            return False
        entry.aside = True
        self._here += 1
        return True

    def show(self, entry: WaitingEntry) -> bool:
        """One is hidden no more, or gone; False if the heaps hid it. O(1)."""
        self._hidden -= 1
        self._line = None
        if not entry.aside:
            return False
        entry.aside = False
        self._here -= 1
        return True

    def disturb(self) -> None:
        """There is somebody new. O(1)."""
        self._line = None

    def best(self) -> Request | None:
        """The best that is open and not hidden. O(1); O(n log n) after a change of any other's place.

        The latter at most a few times from one time that nothing is hidden to the next.
        """
        if self._line is None or self._heaps.changed:
            self._sorts += 1
            if self._sorts > _MAX_SORTS:
                self._give_up()
                return self._heaps.best()
            self._heaps.settle()
            self._line = self._sorted()
        line = self._line
        while line:
            entry = line[-1][2]
            if entry.visible and not entry.aside and self._heaps.is_open(entry.request.client):
                return entry.request
            line.pop()
        return None

    def _give_up(self) -> None:
        """The heaps leave out all who are hidden. O(hidden * depth * log n)."""
        for entry in self._entries.values():
            if entry.aside:
                entry.aside = entry.visible = False
                self._heaps.refresh(entry.node, entry.request.client)
        self._here, self._line = 0, None

    def _sorted(self) -> list[tuple[int, int, WaitingEntry]]:
        is_open = self._heaps.is_open
        line = [
            (entry.node.stand.depth, -entry.order, entry)
            for entry in self._entries.values()
            if entry.visible and not entry.aside and is_open(entry.request.client)
        ]
        line.sort()
        return line

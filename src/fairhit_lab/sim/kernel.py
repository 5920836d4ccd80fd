"""The event kernel: one heap of (time, priority, sequence) and its loop; nothing else."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

# (when, which of those at one instant comes first, in the order of entry, what to do, with what)
_Entry: TypeAlias = tuple[int, int, int, Callable[[Any], None], Any]


class Kernel:
    """Calls actions in order of time, then of priority (smaller first), then of entry."""

    def __init__(self) -> None:
        self.now_us = 0
        self.stopped = False  # set it to end `run` before its next action
        self._heap: list[_Entry] = []
        self._sequence = 0

    def at(self, time_us: int, priority: int, action: Callable[[Any], None], what: Any) -> None:
        """Call `action(what)` at `time_us`, which is not in the past. O(log entries)."""
        assert time_us >= self.now_us, (time_us, self.now_us)
        self._sequence += 1
        heappush(self._heap, (time_us, priority, self._sequence, action, what))

    def comes_before(self, priority: int) -> bool:
        """Whether something else is still to come at this instant, before `priority`. Pure. O(1)."""
        if not self._heap:
            return False
        first = self._heap[0]
        return first[0] == self.now_us and first[1] < priority

    def run(self) -> None:
        """Until nothing is left to do, or `stopped`."""
        heap = self._heap
        while heap and not self.stopped:
            self.now_us, _, _, action, what = heappop(heap)
            action(what)

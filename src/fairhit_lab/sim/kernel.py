"""The event kernel: one heap of (time, priority, sequence) and its loop; nothing else."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

# (time in microseconds, priority within that instant, sequence number, action, its argument)
_Entry: TypeAlias = tuple[int, int, int, Callable[[Any], None], Any]


class Kernel:
    """Calls actions in order of time, then of priority (smaller first), then of scheduling."""

    def __init__(self) -> None:
        self.now_us = 0
        self.stopped = False  # set it to end `run` before its next action
        self._heap: list[_Entry] = []
        self._sequence = 0

    def at(self, time_us: int, priority: int, action: Callable[[Any], None], argument: Any) -> None:
        """Call `action(argument)` at `time_us`, which is not in the past. O(log entries)."""
        assert time_us >= self.now_us, (time_us, self.now_us)
        self._sequence += 1
        heappush(self._heap, (time_us, priority, self._sequence, action, argument))

    def comes_before(self, priority: int) -> bool:
        """Return whether an action with a smaller priority is scheduled at this instant. Pure. O(1)."""
        if not self._heap:
            return False
        first = self._heap[0]
        return first[0] == self.now_us and first[1] < priority

    def run(self) -> None:
        """Call the scheduled actions until none is left, or `stopped` is set."""
        heap = self._heap
        while heap and not self.stopped:
            self.now_us, _, _, action, argument = heappop(heap)
            action(argument)

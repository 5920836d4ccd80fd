"""A heap with lazy deletion: an entry is valid or stale, which its owner can tell from the entry.

Stale entries are removed when they reach the top, or all at once when they may be most of the heap. So the
heap never has more than twice its valid entries and a constant.
"""

from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from typing import Any, TypeVar

Item = TypeVar("Item", bound=tuple[Any, ...])

_SLACK = 64


class LazyHeap(list[Item]):
    """A heap of tuples, smallest first; the same tuple may be in it several times."""

    __slots__ = ("_limit",)

    def __init__(self) -> None:
        super().__init__()
        self._limit = _SLACK

    def push(self, item: Item, is_valid: Callable[[Item], bool]) -> None:
        """Add `item`. O(log n) amortised."""
        heappush(self, item)
        if len(self) > self._limit:
            self[:] = sorted({each for each in self if is_valid(each)})
            self._limit = 2 * len(self) + _SLACK

    def top(self, is_valid: Callable[[Item], bool]) -> Item | None:
        """Return the smallest valid item without removing it. O(log n) amortised."""
        while self and not is_valid(self[0]):
            heappop(self)
        return self[0] if self else None

    def drop(self) -> None:
        """Remove the item that `top` returned. O(log n)."""
        heappop(self)

    def replace_top(self, item: Item) -> None:
        """Replace the smallest item. O(log n)."""
        heapreplace(self, item)

    def take(self) -> Item:
        """Remove the smallest item, and its equals; return it. O(equals * log n)."""
        item = heappop(self)
        while self and self[0] == item:
            heappop(self)
        return item

    def restore(self, items: list[Item]) -> None:
        """Add items that `take` removed. O(items * log n)."""
        for item in items:
            heappush(self, item)

"""A heap whose entries are never searched for: each is true or stale, which its owner can tell.

Stale entries go when they reach the top, or all together when they may be most of the heap; so it
never holds more than twice its true entries and a constant, whatever happens below the top.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeVar

Item = TypeVar("Item", bound=tuple[Any, ...])

_SLACK = 64


class LazyHeap(list[Item]):
    """A heap of tuples, smallest first; an entry may be in it several times."""

    __slots__ = ("_limit",)

    def __init__(self) -> None:
        super().__init__()
        self._limit = _SLACK

    def push(self, item: Item, is_true: Callable[[Item], bool]) -> None:
        """Enter the item. O(log n), amortised over the clean-ups."""
        heappush(self, item)
        if len(self) > self._limit:
            self[:] = sorted({each for each in self if is_true(each)})
            self._limit = 2 * len(self) + _SLACK

    def top(self, is_true: Callable[[Item], bool]) -> Item | None:
        """The smallest true item; it stays. O(log n) amortised."""
        while self and not is_true(self[0]):
            heappop(self)
        return self[0] if self else None

    def drop(self) -> None:
        """Take out the item that `top` gave. O(log n)."""
        heappop(self)

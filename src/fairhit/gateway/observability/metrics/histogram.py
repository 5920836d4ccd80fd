"""A histogram of whole numbers with a very cheap `observe`."""

from bisect import bisect_left, bisect_right

# Upper bounds in microseconds, from the gateway's own latency to the longest responses.
TIMES_US = tuple(
    int(seconds * 1_000_000)
    for seconds in (
        0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600,
    )
)  # fmt: skip
# The same for one output token.
TOKEN_TIMES_US = tuple(
    int(seconds * 1_000_000)
    for seconds in (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5)
)
# In tokens.
LENGTHS = (1, 8, 32, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 1048576)


class Histogram:
    """Counts by bucket; `bounds` are inclusive upper bounds, with one more bucket above the last.

    `observe(value)` costs an append. Values are sorted into buckets some hundred at a time, which is five
    times cheaper than one by one: readers do so themselves, a writer calls `fold` now and then.
    """

    __slots__ = ("_buckets", "_pending", "_sum", "bounds", "observe")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self._buckets = [0] * (len(bounds) + 1)
        self._sum = 0
        self._pending: list[int] = []  # not in a bucket yet
        self.observe = self._pending.append  # O(1)

    def __len__(self) -> int:
        """Number of values that `fold` would sort. O(1)."""
        return len(self._pending)

    def fold(self) -> None:
        """Sort observed values into the buckets. O(n log n) in the values since the last call."""
        pending = self._pending
        if len(pending) < len(self.bounds):
            for value in pending:
                self._buckets[bisect_left(self.bounds, value)] += 1
            self._sum += sum(pending)
            pending.clear()
            return
        pending.sort()
        below = 0
        for at, bound in enumerate(self.bounds):
            up_to = bisect_right(pending, bound, below)
            self._buckets[at] += up_to - below
            below = up_to
        self._buckets[-1] += len(pending) - below
        self._sum += sum(pending)
        pending.clear()

    @property
    def buckets(self) -> list[int]:
        """Number of values in each bucket."""
        self.fold()
        return self._buckets

    @property
    def sum(self) -> int:
        """Sum of all values."""
        self.fold()
        return self._sum

    @property
    def count(self) -> int:
        """Number of all values. O(bounds)."""
        return sum(self.buckets)

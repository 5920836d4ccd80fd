"""A histogram of whole numbers whose observation costs next to nothing."""

from bisect import bisect_left, bisect_right

# Upper bounds in microseconds: from what a gateway adds to the longest answers.
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
    """`bounds` are upper ones, included; what is above the last is in a bucket of its own.

    `observe(value)` costs an append; values go to their buckets some hundred at a time, which is five
    times cheaper than one by one. Whoever reads sees all of them; who observes says `fold` now and then.
    """

    __slots__ = ("_buckets", "_fresh", "_sum", "bounds", "observe")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self._buckets = [0] * (len(bounds) + 1)
        self._sum = 0
        self._fresh: list[int] = []  # not in a bucket yet
        self.observe = self._fresh.append  # O(1)

    def __len__(self) -> int:
        """Values that wait to be folded. O(1)."""
        return len(self._fresh)

    def fold(self) -> None:
        """Put what was observed where it belongs. O(n log n) in the values since the last time."""
        fresh = self._fresh
        if len(fresh) < len(self.bounds):
            for value in fresh:
                self._buckets[bisect_left(self.bounds, value)] += 1
            self._sum += sum(fresh)
            fresh.clear()
            return
        fresh.sort()
        below = 0
        for at, bound in enumerate(self.bounds):
            up_to = bisect_right(fresh, bound, below)
            self._buckets[at] += up_to - below
            below = up_to
        self._buckets[-1] += len(fresh) - below
        self._sum += sum(fresh)
        fresh.clear()

    @property
    def buckets(self) -> list[int]:
        """How many are in each."""
        self.fold()
        return self._buckets

    @property
    def sum(self) -> int:
        """Of all values."""
        self.fold()
        return self._sum

    @property
    def count(self) -> int:
        """How many there were. O(bounds)."""
        return sum(self.buckets)

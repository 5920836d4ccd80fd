"""A histogram of whole numbers whose observation costs two integer additions and a search."""

from bisect import bisect_left

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
    """`bounds` are upper ones, included; what is above the last is in a bucket of its own."""

    __slots__ = ("bounds", "buckets", "sum")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0

    def observe(self, value: int) -> None:
        """One more of this value. O(log bounds)."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many there were. O(bounds)."""
        return sum(self.buckets)

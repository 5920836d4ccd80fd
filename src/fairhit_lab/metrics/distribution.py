"""Percentiles of whole numbers in bounded memory: exact while they are few, within 0.4 % after that."""

from array import array
from bisect import insort
from collections.abc import Iterable

# So many samples are kept as they are: 8 KiB.
EXACT = 1024
# Then a bucket per 1/128 of a power of two; its middle is at most 1/256 off.
PRECISION_BITS = 7


class Distribution:
    """Count, sum, maximum and percentiles of integers >= 0.

    Up to EXACT samples percentiles are exact. Beyond, each is off by at most 1/256 of itself; count,
    total and largest stay exact. The order of samples never matters.
    """

    __slots__ = ("_buckets", "_few", "_folded", "_largest", "_total")

    def __init__(self) -> None:
        self._few = array("q")  # the latest, not in what follows
        self._buckets: dict[int, int] | None = None
        self._folded = 0
        self._total = 0
        self._largest = 0

    def add(self, value: int) -> None:
        """Add a sample. O(1) amortised."""
        few = self._few
        few.append(value)
        if len(few) > EXACT:
            self._fold()

    def _fold(self) -> None:
        """Put the latest samples into buckets."""
        few, buckets = self._few, self._buckets
        if buckets is None:
            buckets = self._buckets = {}
        for value in few:
            bucket = _bucket(value)
            buckets[bucket] = buckets.get(bucket, 0) + 1
        self._folded += len(few)
        self._total += sum(few)
        self._largest = max(self._largest, *few)
        self._few = array("q")

    @property
    def count(self) -> int:
        """Number of samples. O(1)."""
        return self._folded + len(self._few)

    @property
    def total(self) -> int:
        """Sum of the samples. O(samples kept)."""
        return self._total + sum(self._few)

    @property
    def largest(self) -> int:
        """The largest of them, 0 if there is none. O(samples kept)."""
        return max(self._largest, max(self._few, default=0))

    def merge(self, other: "Distribution") -> None:
        """Add the samples of `other`. O(samples kept)."""
        self._few.extend(other._few)
        if len(self._few) > EXACT:
            self._fold()
        if other._buckets is None:
            return
        if self._few:
            self._fold()
        buckets = self._buckets = {} if self._buckets is None else self._buckets
        for bucket, count in other._buckets.items():
            buckets[bucket] = buckets.get(bucket, 0) + count
        self._folded += other._folded
        self._total += other._total
        self._largest = max(self._largest, other._largest)

    def percentiles(self, percents: Iterable[int]) -> list[int]:
        """For each percent, the smallest sample that so many percent do not exceed; 0 if there is none."""
        ranks = [max(1, -(-percent * self.count // 100)) for percent in percents]
        if not self.count:
            return [0] * len(ranks)
        if self._buckets is None:
            ordered = sorted(self._few)
            return [ordered[rank - 1] for rank in ranks]
        if self._few:
            self._fold()
        return [min(self._largest, value) for value in self._at(ranks)]

    def _at(self, ranks: list[int]) -> list[int]:
        assert self._buckets is not None
        found: dict[int, int] = {}
        missing: list[int] = []
        for rank in ranks:
            insort(missing, rank)
        below = 0
        for bucket in sorted(self._buckets):
            below += self._buckets[bucket]
            while missing and missing[0] <= below:
                found[missing.pop(0)] = _middle(bucket)
        return [found[rank] for rank in ranks]


def _bucket(value: int) -> int:
    """Small values are their own bucket; of others the leading bits and how many follow."""
    shift = value.bit_length() - PRECISION_BITS - 1
    if shift <= 0:
        return value
    return (shift << (PRECISION_BITS + 1)) + (value >> shift)


def _middle(bucket: int) -> int:
    shift = bucket >> (PRECISION_BITS + 1)
    lead = bucket & ((1 << (PRECISION_BITS + 1)) - 1)
    return (lead << shift) + ((1 << shift) >> 1)

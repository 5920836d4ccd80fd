"""Percentiles of whole numbers in bounded memory: exact while they are few, within 0.4 % after that."""

from array import array
from bisect import insort
from collections.abc import Iterable

# So many samples are kept as they are: 8 KiB.
EXACT = 1024
# Then a bucket per 1/128 of a power of two; its middle is at most 1/256 off.
PRECISION_BITS = 7


class Distribution:
    """How many, their sum, the largest, and percentiles, of integers >= 0.

    Up to EXACT samples percentiles are exact. Beyond, each is off by at most 1/256 of itself; count,
    mean and largest stay exact. The order of samples never matters.
    """

    __slots__ = ("_buckets", "_few", "count", "largest", "total")

    def __init__(self) -> None:
        self._few = array("q")
        self._buckets: dict[int, int] | None = None
        self.count = 0
        self.total = 0
        self.largest = 0

    def add(self, value: int) -> None:
        """One more sample. O(1)."""
        assert value >= 0, value
        self.count += 1
        self.total += value
        self.largest = max(self.largest, value)
        if self._buckets is not None:
            bucket = _bucket(value)
            self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
            return
        self._few.append(value)
        if self.count > EXACT:
            self._spill()

    def _spill(self) -> None:
        buckets: dict[int, int] = {}
        for value in self._few:
            bucket = _bucket(value)
            buckets[bucket] = buckets.get(bucket, 0) + 1
        self._buckets = buckets
        self._few = array("q")

    def merge(self, other: "Distribution") -> None:
        """All of the other's samples, too. O(samples kept)."""
        if other._buckets is None:
            for value in other._few:
                self.add(value)
            return
        if self._buckets is None:
            self._spill()
        assert self._buckets is not None
        for bucket, count in other._buckets.items():
            self._buckets[bucket] = self._buckets.get(bucket, 0) + count
        self.count += other.count
        self.total += other.total
        self.largest = max(self.largest, other.largest)

    def percentiles(self, percents: Iterable[int]) -> list[int]:
        """For each percent, the smallest sample that so many percent do not exceed; 0 if there is none."""
        ranks = [max(1, -(-percent * self.count // 100)) for percent in percents]
        if not self.count:
            return [0] * len(ranks)
        if self._buckets is None:
            ordered = sorted(self._few)
            return [ordered[rank - 1] for rank in ranks]
        return [min(self.largest, value) for value in self._at(ranks)]

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

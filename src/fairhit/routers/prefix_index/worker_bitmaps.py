"""Workers that hold a unit, as the bits of one integer per unit, so that one walk matches all workers."""

from collections.abc import Sequence

from fairhit.core.cache.prefix_matches import PrefixMatches, WorkersOfLength
from fairhit.core.request import Unit, WorkerId

# Sets of workers kept by their bits; beyond that number the table starts anew.
_MAX_SETS = 512


class WorkerBitmaps:
    """The bit of each worker that is up, and for each unit the bits of the workers that hold it."""

    def __init__(self) -> None:
        # No unit has a zero here. Callers set bits directly: a method call for each unit of each prompt
        # would cost more than the change.
        self.bits: dict[Unit, int] = {}
        self._workers: dict[WorkerId, int] = {}
        self._all = 0
        self._sets: dict[int, frozenset[WorkerId]] = {}

    def add_worker(self, worker: WorkerId) -> int:
        """Add `worker`, which holds nothing, and return its bit, the lowest free one. O(1)."""
        assert worker not in self._workers, worker
        bit = ~self._all & (self._all + 1)
        self._workers[worker] = bit
        self._all |= bit
        return bit

    def drop_worker(self, worker: WorkerId) -> None:
        """Remove `worker`; the caller has to `release` its units. O(sets kept)."""
        self._all &= ~self._workers.pop(worker)
        self._sets.clear()

    def release(self, unit: Unit, bit: int) -> None:
        """Clear the worker's bit of `unit`. O(1)."""
        rest = self.bits[unit] & ~bit
        if rest:
            self.bits[unit] = rest
        else:
            del self.bits[unit]

    def match(self, units: Sequence[Unit]) -> PrefixMatches:
        """Find how many leading units each worker holds. Pure. O(longest match)."""
        by_length: list[WorkersOfLength] = []
        bits, alive, depth = self.bits, self._all, 0
        for unit in units:
            still = bits.get(unit, 0) & alive
            if still != alive:
                if depth:
                    by_length.append((depth, self._set_of(alive)))
                alive = still
                if not still:
                    break
            depth += 1
        if alive and depth:
            by_length.append((depth, self._set_of(alive)))
        by_length.reverse()
        return PrefixMatches(by_length)

    def _set_of(self, bits: int) -> frozenset[WorkerId]:
        """Return the workers with these bits. O(1) for a set that is kept, else O(workers)."""
        workers = self._sets.get(bits)
        if workers is None:
            if len(self._sets) >= _MAX_SETS:
                self._sets.clear()
            workers = frozenset([name for name, bit in self._workers.items() if bits & bit])
            self._sets[bits] = workers
        return workers

"""Workers that hold a unit, as the bits of one integer per unit, so that one walk matches all workers."""

from collections.abc import Sequence
from itertools import compress
from typing import Final

from fairhit.core.cache.prefix_matches import PrefixMatches, WorkersOfLength
from fairhit.core.request import Unit, WorkerId

# Characters "0" and "1" as the numbers 0 and 1.
_DIGITS: Final = bytes.maketrans(b"01", b"\x00\x01")
# Sets of workers kept by their bits; beyond that number the table starts anew.
_MAX_SETS = 512


class WorkerBitmaps:
    """The bit of each worker that is up, and for each unit the bits of the workers that hold it."""

    def __init__(self) -> None:
        # No unit has a zero here. Callers set bits directly: a method call for each unit of each prompt
        # would cost more than the change.
        self.bits: dict[Unit, int] = {}
        self._workers: list[WorkerId] = []  # by the number of their bit, removed ones included
        self._all = 0
        self._sets: dict[int, frozenset[WorkerId]] = {}

    def add_worker(self, worker: WorkerId) -> int:
        """Add a worker, which holds nothing, and return its bit, the lowest free one. O(1)."""
        bit = ~self._all & (self._all + 1)
        number = bit.bit_length() - 1
        self._workers[number : number + 1] = [worker]
        self._all |= bit
        return bit

    def drop_worker(self, bit: int) -> None:
        """Remove the worker with this bit; the caller has to `release` its units. O(sets kept)."""
        assert self._all & bit, bit
        self._all &= ~bit
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
        """Return the workers with these bits. O(1) for a set that is kept, else O(workers) at C speed."""
        workers = self._sets.get(bits)
        if workers is None:
            if len(self._sets) >= _MAX_SETS:
                self._sets.clear()
            digits = f"{bits:b}".encode().translate(_DIGITS)[::-1]
            workers = self._sets[bits] = frozenset(compress(self._workers, digits))
        return workers

"""Which workers hold what: the bits of one integer for each unit, so that one walk matches all workers."""

from collections.abc import Sequence

from fairhit.core.cache.prefix_matches import Level, PrefixMatches
from fairhit.core.request import Unit, WorkerId

# Sets of workers that are remembered as such; one is made anew where it is asked for after that many.
_MAX_NAMED = 512


class WorkerBitmaps:
    """The workers that are up, each with its bit, and the bits of the holders of each unit."""

    def __init__(self) -> None:
        # No unit has a zero here. Whoever adds a bit writes it itself: a call for each unit of each
        # prompt would cost more than what it does.
        self.bits: dict[Unit, int] = {}
        self._workers: dict[WorkerId, int] = {}
        self._all = 0
        self._named: dict[int, frozenset[WorkerId]] = {}

    def add_worker(self, worker: WorkerId) -> int:
        """`worker` is up and holds nothing; its bit, the lowest that is free. O(1)."""
        assert worker not in self._workers, worker
        bit = ~self._all & (self._all + 1)
        self._workers[worker] = bit
        self._all |= bit
        return bit

    def drop_worker(self, worker: WorkerId) -> None:
        """`worker` is gone; its units are the caller's to `release`. O(sets remembered)."""
        self._all &= ~self._workers.pop(worker)
        self._named.clear()

    def release(self, unit: Unit, bit: int) -> None:
        """The worker with this bit holds the unit no longer. O(1)."""
        rest = self.bits[unit] & ~bit
        if rest:
            self.bits[unit] = rest
        else:
            del self.bits[unit]

    def match(self, units: Sequence[Unit]) -> PrefixMatches:
        """How many leading units each worker holds. Changes no answer. O(longest match)."""
        levels: list[Level] = []
        held, alive, depth = self.bits, self._all, 0
        for unit in units:
            still = held.get(unit, 0) & alive
            if still != alive:
                if depth:
                    levels.append((depth, self._names(alive)))
                alive = still
                if not still:
                    break
            depth += 1
        if alive and depth:
            levels.append((depth, self._names(alive)))
        levels.reverse()
        return PrefixMatches(levels)

    def _names(self, bits: int) -> frozenset[WorkerId]:
        """The workers with these bits. O(1) where they were asked for before, O(workers) if not."""
        named = self._named.get(bits)
        if named is None:
            if len(self._named) >= _MAX_NAMED:
                self._named.clear()
            named = frozenset([name for name, bit in self._workers.items() if bits & bit])
            self._named[bits] = named
        return named

"""A set of strings that keeps 8 bytes of each, for ids of traces larger than memory."""

from array import array

SMALLEST = 1 << 10


class HashSet:
    """Grows only. It holds 64-bit hashes in one array, at most half full: 16 to 32 bytes a string.

    Two different strings pass for one with a chance of n^2 / 2^65: 3 in 10^8 for a million strings.
    Python salts the hashes, so no file can meet it on purpose.
    """

    __slots__ = ("_mask", "_table", "size")

    def __init__(self) -> None:
        self.size = 0
        self._empty(SMALLEST)

    def _empty(self, slots: int) -> None:
        self._table = array("q", bytes(8 * slots))
        self._mask = slots - 1

    def __contains__(self, text: str) -> bool:
        return self._table[self._slot(hash(text) or 1)] != 0

    def add(self, text: str) -> bool:
        """Put it in; False if it was there. O(1) amortised."""
        value = hash(text) or 1  # 0 marks a free slot
        table, mask = self._table, self._mask
        slot = value & mask
        while there := table[slot]:
            if there == value:
                return False
            slot = (slot + 1) & mask
        table[slot] = value
        self.size += 1
        if 2 * self.size > mask:
            self._grow()
        return True

    def _slot(self, value: int) -> int:
        """Slot of the value, or the free slot where it belongs."""
        table, mask = self._table, self._mask
        slot = value & mask
        while (there := table[slot]) and there != value:
            slot = (slot + 1) & mask
        return slot

    def _grow(self) -> None:
        before = self._table
        self._empty(2 * len(before))
        for value in before:
            if value:
                self._table[self._slot(value)] = value

"""An engine's blocks that are shorter than ours, down to a token each: a number for each hash, not an object.

SGLang's pages are of one token unless told otherwise, so that a prompt of 20,000 tokens comes as as many
hashes. Any of them may be asked for again: a prompt may part from another after any token.
"""

from collections import Counter
from collections.abc import Sequence
from zlib import crc32

from fairlead.core.blocked_tokens import TOKEN_BYTES, block_key

# Blocks of one run. A run's tokens are kept as long as one of its blocks is.
_RUN_BITS = 8
_RUN_LEN = 1 << _RUN_BITS


class _Run:
    """Consecutive blocks of `size` bytes; the chain is at `length` tokens and `crc` where they begin."""

    __slots__ = ("crc", "left", "length", "size", "tokens")

    def __init__(self, length: int, crc: int, size: int, tokens: bytes) -> None:
        self.length = length
        self.crc = crc
        self.size = size
        self.tokens = tokens
        self.left = len(tokens) // size  # blocks that are not gone


class FineBlocks:
    """Hashes of blocks shorter than `block_len` tokens, and the keys of ours that end within them."""

    def __init__(self, *, block_len: int) -> None:
        self._size = block_len * TOKEN_BYTES
        # Hash -> the number of its run, and its place in it.
        self._numbers: dict[int | bytes, int] = {}
        self._runs: dict[int, _Run] = {}
        self._keys: dict[int, int] = {}  # by the same number; one at most, as the block is shorter
        self._next_run = 0

    def __len__(self) -> int:
        """Hashes remembered. O(1)."""
        return len(self._numbers)

    def __contains__(self, engine_hash: int | bytes) -> bool:
        return engine_hash in self._numbers

    def are_unknown(self, hashes: Sequence[int | bytes]) -> bool:
        """Whether none of them is known, and none comes twice. O(hashes)."""
        fresh = set(hashes)
        return len(fresh) == len(hashes) and self._numbers.keys().isdisjoint(fresh)

    def place(self, engine_hash: int | bytes) -> tuple[int, int]:
        """Where the chain is at the end of a block: tokens and CRC. O(run)."""
        number = self._numbers[engine_hash]
        run = self._runs[number >> _RUN_BITS]
        end = ((number & (_RUN_LEN - 1)) + 1) * run.size
        return run.length + end // TOKEN_BYTES, crc32(run.tokens[:end], run.crc)

    def add(
        self, hashes: Sequence[int | bytes], tokens: bytes, *, length: int, crc: int
    ) -> list[int]:
        """Consecutive blocks that are all new; the keys of ours that end within them. O(tokens).

        The chain is at `length` tokens and `crc` before them.
        """
        size = len(tokens) // len(hashes)
        assert 0 < size < self._size and len(tokens) == size * len(hashes), (size, len(tokens))
        found = []
        for first in range(0, len(hashes), _RUN_LEN):
            part = tokens[first * size : (first + _RUN_LEN) * size]
            base = self._next_run << _RUN_BITS
            self._next_run += 1
            self._runs[base >> _RUN_BITS] = _Run(length, crc, size, part)
            numbers = range(base, base + len(part) // size)
            self._numbers.update(zip(hashes[first : first + _RUN_LEN], numbers, strict=True))
            at = 0
            end = self._size - length * TOKEN_BYTES % self._size
            while end <= len(part):
                crc = crc32(part[at:end], crc)
                depth = (length * TOKEN_BYTES + end) // self._size - 1
                key = self._keys[base + (end - 1) // size] = block_key(depth, crc)
                found.append(key)
                at, end = end, end + self._size
            crc = crc32(part[at:], crc)
            length += len(part) // TOKEN_BYTES
        return found

    def remove(self, hashes: Sequence[int | bytes]) -> list[int]:
        """Forget those that are known; the keys of ours that ended within them. O(hashes)."""
        numbers = self._numbers
        gone = [number for one in hashes if (number := numbers.pop(one, -1)) >= 0]
        for run_number, count in Counter([number >> _RUN_BITS for number in gone]).items():
            run = self._runs[run_number]
            run.left -= count
            if not run.left:
                del self._runs[run_number]
        return [self._keys.pop(number) for number in gone if number in self._keys]

    def clear(self) -> list[int]:
        """Forget all; the keys of ours that ended within them. O(blocks)."""
        keys = list(self._keys.values())
        self._numbers.clear()
        self._runs.clear()
        self._keys.clear()
        return keys

    def check(self) -> None:
        """Every invariant. O(blocks)."""
        numbers = set(self._numbers.values())
        assert len(numbers) == len(self._numbers) and numbers >= self._keys.keys()
        left = Counter(number >> _RUN_BITS for number in numbers)
        assert left == {number: run.left for number, run in self._runs.items()}

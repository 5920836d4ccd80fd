"""An engine's blocks that are shorter than ours, down to a token each: a number for each hash, not an object.

SGLang's pages are of one token unless told otherwise, so that a prompt of 20,000 tokens comes as as many
hashes, all in one event or each in its own. Any of them may be asked for again: a prompt may part from
another after any token.
"""

from collections import Counter
from collections.abc import Sequence
from zlib import crc32

from fairhit.core.cache.token_blocks import TOKEN_BYTES, block_key

# Blocks of one run. A run's tokens are kept as long as one of its blocks is.
_RUN_BITS = 8
_RUN_LEN = 1 << _RUN_BITS


class _Run:
    """Consecutive blocks of `size` bytes; the chain is at `length` tokens and `crc` where they begin."""

    __slots__ = ("crc", "end_crc", "left", "length", "size", "tokens")

    def __init__(self, length: int, crc: int, size: int) -> None:
        self.length = length
        self.crc = self.end_crc = crc
        self.size = size
        self.tokens = b""
        self.left = 0  # blocks that are not gone


class FineBlocks:
    """Hashes of blocks shorter than `block_len` tokens, and the keys of ours that end within them."""

    def __init__(self, *, block_len: int) -> None:
        self._size = block_len * TOKEN_BYTES
        # Hash -> the number of its run, and its place in it.
        self.numbers: dict[int | bytes, int] = {}
        self._runs: dict[int, _Run] = {}
        self._keys: dict[int, int] = {}  # by the same number; one at most, as the block is shorter
        self._next_run = 0

    def __len__(self) -> int:
        """Hashes remembered. O(1)."""
        return len(self.numbers)

    def __contains__(self, engine_hash: int | bytes) -> bool:
        return engine_hash in self.numbers

    def are_unknown(self, hashes: Sequence[int | bytes]) -> bool:
        """Whether none of them is known, and none comes twice. O(hashes)."""
        if len(hashes) == 1:
            return hashes[0] not in self.numbers
        fresh = set(hashes)
        return len(fresh) == len(hashes) and self.numbers.keys().isdisjoint(fresh)

    def place(self, engine_hash: int | bytes) -> tuple[int, int] | None:
        """Where the chain is at the end of a block, if it is known: tokens and CRC.

        O(run), and O(1) at its end.
        """
        number = self.numbers.get(engine_hash)
        if number is None:
            return None
        run = self._runs[number >> _RUN_BITS]
        end = ((number & (_RUN_LEN - 1)) + 1) * run.size
        crc = run.end_crc if end == len(run.tokens) else crc32(run.tokens[:end], run.crc)
        return run.length + end // TOKEN_BYTES, crc

    def add(
        self, hashes: Sequence[int | bytes], tokens: bytes, *, length: int, crc: int
    ) -> list[int]:
        """Consecutive blocks that are all new; the keys of ours that end within them. O(tokens).

        The chain is at `length` tokens and `crc` before them.
        """
        size = len(tokens) // len(hashes)
        assert 0 < size < self._size and len(tokens) == size * len(hashes), (size, len(tokens))
        if len(hashes) == 1:
            return self._add_one(hashes[0], tokens, length, crc)
        found: list[int] = []
        first = 0
        while first < len(hashes):
            run = self._last_run(length, crc, size)
            used = len(run.tokens) // size
            named = hashes[first : first + _RUN_LEN - used]
            part = tokens[first * size : (first + len(named)) * size]
            first += len(named)
            number = ((self._next_run - 1) << _RUN_BITS) + used
            self.numbers.update(zip(named, range(number, number + len(named)), strict=True))
            crc = self._add_keys(part, number, size, length=length, crc=crc, found=found)
            length += len(part) // TOKEN_BYTES
            run.tokens += part
            run.left += len(named)
            run.end_crc = crc
        return found

    def _add_one(self, engine_hash: int | bytes, block: bytes, length: int, crc: int) -> list[int]:
        """The same for one block: engines may say each in an event of its own."""
        size = len(block)
        run = self._last_run(length, crc, size)
        number = ((self._next_run - 1) << _RUN_BITS) + len(run.tokens) // size
        self.numbers[engine_hash] = number
        found: list[int] = []
        if length * TOKEN_BYTES % self._size + size < self._size:
            run.end_crc = crc32(block, crc)
        else:
            run.end_crc = self._add_keys(block, number, size, length=length, crc=crc, found=found)
        run.tokens += block
        run.left += 1
        return found

    def _last_run(self, length: int, crc: int, size: int) -> _Run:
        """The last run if it ends where the chain is: engines may say one block at a time; or a new one."""
        run = self._runs.get(self._next_run - 1)
        if run is not None and run.end_crc == crc and run.size == size:
            held = len(run.tokens)
            if held < _RUN_LEN * size and run.length + held // TOKEN_BYTES == length:
                return run
        run = self._runs[self._next_run] = _Run(length, crc, size)
        self._next_run += 1
        return run

    def _add_keys(
        self, part: bytes, number: int, size: int, *, length: int, crc: int, found: list[int]
    ) -> int:
        """Keys of ours that end within the blocks of `part`, from `number` on; the CRC after them."""
        at = 0
        end = self._size - length * TOKEN_BYTES % self._size
        while end <= len(part):
            crc = crc32(part[at:end], crc)
            depth = (length * TOKEN_BYTES + end) // self._size - 1
            key = self._keys[number + (end - 1) // size] = block_key(depth, crc)
            found.append(key)
            at, end = end, end + self._size
        return crc32(part[at:], crc)

    def remove(self, hashes: Sequence[int | bytes]) -> list[int]:
        """Forget those that are known; the keys of ours that ended within them. O(hashes)."""
        numbers = self.numbers
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
        self.numbers.clear()
        self._runs.clear()
        self._keys.clear()
        return keys

    def check(self) -> None:
        """Every invariant. O(blocks)."""
        numbers = set(self.numbers.values())
        assert len(numbers) == len(self.numbers) and numbers >= self._keys.keys()
        left = Counter(number >> _RUN_BITS for number in numbers)
        assert left == {number: run.left for number, run in self._runs.items()}
        for run in self._runs.values():
            assert 0 < run.left <= len(run.tokens) // run.size <= _RUN_LEN
            assert run.end_crc == crc32(run.tokens, run.crc)

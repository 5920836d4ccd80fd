"""Mirror of an engine's prefix cache, kept by its KV events: engine block hashes as keys of the index.

An event names a block by the engine's own hash. Only the event that stores the block has its tokens and the
hash of its parent. So for each hash the mirror keeps the chain value at the end of the block, from which
child blocks are keyed, and the keys that a removal withdraws.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias
from zlib import crc32

from fairhit.core.cache.token_blocks import BLOCK_LEN, TOKEN_BYTES, block_key, chain_start
from fairhit.core.request import WorkerId
from fairhit.routers.prefix_index.precise import PrecisePrefixIndex

EngineHash: TypeAlias = int | bytes

# Blocks of a `_Run`, which keeps the tokens of all its blocks as long as one of them is cached.
_RUN_BITS = 8
_RUN_LEN = 1 << _RUN_BITS


class Stored(NamedTuple):
    """An event: consecutive blocks were cached. `parent` is None where they begin a prompt."""

    hashes: Sequence[EngineHash]
    parent: EngineHash | None
    tokens: Sequence[int]
    block_len: int  # in tokens
    adapter: str = ""
    salt: str = ""
    # Per block whatever else splits the cache, such as images or embeddings, or None.
    extras: Sequence[object] = ()


class _BlockEnd(NamedTuple):
    """The chain at the end of an engine's block, and the keys of the index's blocks that end in it."""

    length: int  # tokens from the beginning of the prompt
    crc: int
    keys: tuple[int, ...]


class _Run:
    """Consecutive blocks of `size` bytes, after `length` tokens of the prompt with the chain value `crc`."""

    __slots__ = ("crc", "end_crc", "left", "length", "size", "tokens")

    def __init__(self, length: int, crc: int, size: int) -> None:
        self.length = length
        self.crc = self.end_crc = crc
        self.size = size
        self.tokens = b""
        self.left = 0  # blocks that are cached


class FineBlocks:
    """Blocks shorter than the index's `block_len` tokens: a number per hash instead of an object.

    SGLang's pages have one token by default, so that a prompt of 20,000 tokens is stored under as many
    hashes, in one event or in one event each. Any of them may become a parent: prompts may part after any
    token.
    """

    def __init__(self, *, block_len: int) -> None:
        self._size = block_len * TOKEN_BYTES
        # Hash -> the number of its run, and its position in the run in the low bits.
        self.numbers: dict[EngineHash, int] = {}
        self._runs: dict[int, _Run] = {}
        self._keys: dict[int, int] = {}  # by the number of the block; at most one ends in each
        self._next_run = 0

    def are_unknown(self, hashes: Sequence[EngineHash]) -> bool:
        """Return whether no hash is known and no hash is repeated. O(hashes)."""
        if len(hashes) == 1:
            return hashes[0] not in self.numbers
        fresh = set(hashes)
        return len(fresh) == len(hashes) and self.numbers.keys().isdisjoint(fresh)

    def end_of(self, engine_hash: EngineHash) -> tuple[int, int] | None:
        """Return the tokens and the chain value at the end of a block; None if it is unknown.

        O(run); O(1) at the end of the run.
        """
        number = self.numbers.get(engine_hash)
        if number is None:
            return None
        run = self._runs[number >> _RUN_BITS]
        end = ((number & (_RUN_LEN - 1)) + 1) * run.size
        crc = run.end_crc if end == len(run.tokens) else crc32(run.tokens[:end], run.crc)
        return run.length + end // TOKEN_BYTES, crc

    def add(
        self, hashes: Sequence[EngineHash], tokens: bytes, *, length: int, crc: int
    ) -> list[int]:
        """Add consecutive new blocks; return the keys of the index's blocks that end in them. O(tokens).

        The blocks come after `length` tokens of the prompt, with the chain value `crc`.
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

    def _add_one(self, engine_hash: EngineHash, block: bytes, length: int, crc: int) -> list[int]:
        """Add one block: engines may report each in an event of its own."""
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
        """Return the last run if the next block continues it, else a new run."""
        run = self._runs.get(self._next_run - 1)
        if run is not None and run.end_crc == crc and run.size == size:
            used = len(run.tokens)
            if used < _RUN_LEN * size and run.length + used // TOKEN_BYTES == length:
                return run
        run = self._runs[self._next_run] = _Run(length, crc, size)
        self._next_run += 1
        return run

    def _add_keys(
        self, part: bytes, number: int, size: int, *, length: int, crc: int, found: list[int]
    ) -> int:
        """Add to `found` the keys that end in the blocks of `part`; return the chain value after them."""
        at = 0
        end = self._size - length * TOKEN_BYTES % self._size
        while end <= len(part):
            crc = crc32(part[at:end], crc)
            depth = (length * TOKEN_BYTES + end) // self._size - 1
            key = self._keys[number + (end - 1) // size] = block_key(depth, crc)
            found.append(key)
            at, end = end, end + self._size
        return crc32(part[at:], crc)

    def remove(self, hashes: Sequence[EngineHash]) -> list[int]:
        """Remove the known hashes; return the keys that ended in their blocks. O(hashes)."""
        numbers = self.numbers
        removed = [number for one in hashes if (number := numbers.pop(one, -1)) >= 0]
        for run_number, count in Counter([number >> _RUN_BITS for number in removed]).items():
            run = self._runs[run_number]
            run.left -= count
            if not run.left:
                del self._runs[run_number]
        return [self._keys.pop(number) for number in removed if number in self._keys]

    def clear(self) -> list[int]:
        """Remove all; return the keys that ended in their blocks. O(blocks)."""
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


class KVEventMirror:
    """The blocks of one cache of `worker`, which has one cache per data-parallel rank.

    At most `capacity` hashes are kept; further blocks are counted in `beyond` and ignored. A block that is
    stored several times (copies, memory tiers) is withdrawn when all of them are removed.
    """

    def __init__(
        self,
        *,
        index: PrecisePrefixIndex,
        worker: WorkerId,
        block_len: int = BLOCK_LEN,
        capacity: int = 1 << 18,
    ) -> None:
        assert block_len >= 1 and capacity >= 1, (block_len, capacity)
        self._index = index
        self._worker = worker
        self._block_len = block_len
        self._size = block_len * TOKEN_BYTES
        self._capacity = capacity
        self._ends: dict[EngineHash, _BlockEnd] = {}
        self._fine = FineBlocks(block_len=block_len)  # blocks shorter than the index's
        self._copies: dict[EngineHash, int] = {}  # of blocks stored more than once
        self.orphaned = 0  # blocks whose parent is unknown
        self.beyond = 0  # blocks beyond the capacity

    def __len__(self) -> int:
        """Number of hashes kept. O(1)."""
        return len(self._ends) + len(self._fine.numbers)

    def stored(self, event: Stored) -> None:
        """Apply the event. O(tokens). Raises ValueError for one that cannot be true."""
        tokens = _as_bytes(event.tokens)
        if not event.hashes:
            return
        size = event.block_len * TOKEN_BYTES
        fill = size >= 1 and len(tokens) == size * len(event.hashes)
        # A memory tier below the GPU reports a block from the GPU by its hash alone, without tokens.
        if not fill and not all(map(self._knows, event.hashes)):
            raise ValueError("token_ids that do not fill the blocks")
        parent = self._parent_of(event)
        if parent is None and not self._knows(event.hashes[0]):
            self.orphaned += len(event.hashes)
        elif parent is not None and fill and size < self._size and self._are_plain(event):
            self._store_fine(event.hashes, tokens, parent)
        else:
            self._store_each(event, tokens, size, parent)

    def removed(self, hashes: Sequence[EngineHash]) -> None:
        """Remove blocks, or copies of them; hashes that are not kept are ignored. O(hashes)."""
        last = self._last_copies(hashes) if self._copies else hashes
        for key in self._fine.remove(last):
            self._index.withdraw(self._worker, key)
        if self._ends:
            for engine_hash in last:
                end = self._ends.pop(engine_hash, None)
                for key in end.keys if end is not None else ():
                    self._index.withdraw(self._worker, key)

    def clear(self) -> None:
        """Remove all blocks, and withdraw them from the index. O(blocks)."""
        for end in self._ends.values():
            for key in end.keys:
                self._index.withdraw(self._worker, key)
        for key in self._fine.clear():
            self._index.withdraw(self._worker, key)
        self.abandon()

    def abandon(self) -> None:
        """Remove all blocks and leave the index alone, which has dropped the worker. O(blocks)."""
        self._ends.clear()
        self._fine.clear()
        self._copies.clear()

    def check(self) -> None:
        """Every invariant. O(blocks)."""
        assert len(self) <= self._capacity
        self._fine.check()
        for engine_hash, copies in self._copies.items():
            assert copies >= 2 and self._knows(engine_hash), engine_hash
        for end in self._ends.values():
            assert all(key >> 32 < end.length // self._block_len for key in end.keys), end

    def _parent_of(self, event: Stored) -> _BlockEnd | None:
        """Return the end of the block before the first stored one; None if it is unknown."""
        if event.parent is None:
            return _BlockEnd(0, chain_start(event.adapter, event.salt), ())
        return self._find(event.parent)

    def _knows(self, engine_hash: EngineHash) -> bool:
        return engine_hash in self._ends or engine_hash in self._fine.numbers

    def _find(self, engine_hash: EngineHash) -> _BlockEnd | None:
        found = self._ends.get(engine_hash)
        if found is None and (end := self._fine.end_of(engine_hash)) is not None:
            return _BlockEnd(*end, ())
        return found

    def _are_plain(self, event: Stored) -> bool:
        """Return whether all blocks of the event are new and identified by their tokens alone."""
        if event.extras and any(extra is not None for extra in event.extras):
            return False
        if not self._fine.are_unknown(event.hashes):
            return False
        return not self._ends or self._ends.keys().isdisjoint(event.hashes)

    def _store_fine(self, hashes: Sequence[EngineHash], tokens: bytes, parent: _BlockEnd) -> None:
        free = self._capacity - len(self)
        if free < len(hashes):
            self.beyond += len(hashes) - free
            size = len(tokens) // len(hashes)
            hashes, tokens = hashes[:free], tokens[: free * size]
        if free:
            for key in self._fine.add(hashes, tokens, length=parent.length, crc=parent.crc):
                self._index.confirm(self._worker, key)

    def _store_each(
        self, event: Stored, tokens: bytes, size: int, parent: _BlockEnd | None
    ) -> None:
        """Store the blocks one by one, as some of them may be known already."""
        known: EngineHash | None = None  # the last block stored, if it was known before
        for number, engine_hash in enumerate(event.hashes):
            if self._knows(engine_hash):
                self._copies[engine_hash] = self._copies.get(engine_hash, 1) + 1
                known = engine_hash
                continue
            if known is not None:
                parent, known = self._find(known), None
            assert parent is not None, "the event has the tokens of unknown blocks"
            extra = event.extras[number] if number < len(event.extras) else None
            block = tokens[number * size : (number + 1) * size]
            if len(self) >= self._capacity:
                self.beyond += len(event.hashes) - number
                return
            parent = self._ends[engine_hash] = self._end_after(parent, block, extra)
            for key in parent.keys:
                self._index.confirm(self._worker, key)

    def _last_copies(self, hashes: Sequence[EngineHash]) -> list[EngineHash]:
        """Count the removal of `hashes`; return those of which no copy is left."""
        last = []
        for engine_hash in hashes:
            copies = self._copies.pop(engine_hash, 1)
            if copies > 2:
                self._copies[engine_hash] = copies - 1
            elif copies == 1:
                last.append(engine_hash)
        return last

    def _end_after(self, parent: _BlockEnd, block: bytes, extra: object) -> _BlockEnd:
        """Return the end of `block`, the child of `parent`, with the keys that end in it."""
        length, crc, _ = parent
        if extra is not None:
            crc = crc32(repr(extra).encode("utf-8", "backslashreplace"), crc)
        if len(block) == self._size and length % self._block_len == 0:  # as long as the index's
            crc = crc32(block, crc)
            key = block_key(length // self._block_len, crc)
            return _BlockEnd(length + self._block_len, crc, (key,))
        keys = []
        at, end = 0, len(block)
        while at < end:
            step = min(end - at, (self._block_len - length % self._block_len) * TOKEN_BYTES)
            crc = crc32(block[at : at + step] if step < end else block, crc)
            at += step
            length += step // TOKEN_BYTES
            if length % self._block_len == 0:
                keys.append(block_key(length // self._block_len - 1, crc))
        return _BlockEnd(length, crc, tuple(keys))


def _as_bytes(tokens: Sequence[int]) -> bytes:
    try:
        return array("I", tokens).tobytes()
    except (TypeError, OverflowError):
        raise ValueError("tokens that are not token numbers") from None

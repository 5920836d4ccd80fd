"""One engine's cache as its events tell it: its hashes of blocks, kept as our keys in the index.

An event names a block by the engine's own hash and says what it is only once, when it is stored: its
tokens and the hash of the block before. So each hash is remembered with the place its chain has reached,
and what comes later, the next block or the removal, is looked up by it.
"""

from array import array
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias
from zlib import crc32

from fairhit.core.cache.token_blocks import BLOCK_LEN, TOKEN_BYTES, block_key, chain_start
from fairhit.core.request import WorkerId
from fairhit.routers.prefix_index.fine_blocks import FineBlocks
from fairhit.routers.prefix_index.precise import PrecisePrefixIndex

EngineHash: TypeAlias = int | bytes


class Stored(NamedTuple):
    """Consecutive blocks that an engine has cached; `parent` None: they begin a prompt."""

    hashes: Sequence[EngineHash]
    parent: EngineHash | None
    tokens: Sequence[int]
    block_len: int  # in tokens
    adapter: str = ""
    salt: str = ""
    # What else splits the cache, one entry a block: images, embeddings. None: nothing.
    extras: Sequence[object] = ()


class _Place(NamedTuple):
    """Where the chain is at the end of a block, and the keys of ours that end within it."""

    length: int  # in tokens
    crc: int
    keys: tuple[int, ...]


class KVEventMirror:
    """The blocks of one cache of `worker`, which may have several: one for each data-parallel rank.

    At most `capacity` hashes are remembered; what is stored beyond is as if it had not been said.
    A block that is stored twice, as copies or in several tiers, is gone when both are removed.
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
        self._places: dict[EngineHash, _Place] = {}
        self._fine = FineBlocks(block_len=block_len)  # those that are shorter than ours, at first
        self._copies: dict[EngineHash, int] = {}  # more than one
        self.unplaced = 0  # blocks whose beginning was never heard of
        self.beyond = 0  # blocks for which there was no room

    def __len__(self) -> int:
        """Hashes remembered. O(1)."""
        return len(self._places) + len(self._fine.numbers)

    def stored(self, event: Stored) -> None:
        """Blocks are cached now. O(tokens). Raises ValueError for what cannot be."""
        tokens = _as_bytes(event.tokens)
        if not event.hashes:
            return
        size = event.block_len * TOKEN_BYTES
        fill = size >= 1 and len(tokens) == size * len(event.hashes)
        # Tiers below the GPU name a block they got from it by its hash alone.
        if not fill and not all(map(self._knows, event.hashes)):
            raise ValueError("token_ids that do not fill the blocks")
        place = self._begin(event)
        if place is None and not self._knows(event.hashes[0]):
            self.unplaced += len(event.hashes)
        elif place is not None and fill and size < self._size and self._are_plain(event):
            self._store_fine(event.hashes, tokens, place)
        else:
            self._store_each(event, tokens, size, place)

    def removed(self, hashes: Sequence[EngineHash]) -> None:
        """Blocks, or copies of them, are gone; of those not remembered nothing was said. O(hashes)."""
        gone = self._last_copies(hashes) if self._copies else hashes
        for key in self._fine.remove(gone):
            self._index.withdraw(self._worker, key)
        if self._places:
            for engine_hash in gone:
                place = self._places.pop(engine_hash, None)
                for key in place.keys if place is not None else ():
                    self._index.withdraw(self._worker, key)

    def clear(self) -> None:
        """Everything is gone. O(blocks)."""
        for place in self._places.values():
            for key in place.keys:
                self._index.withdraw(self._worker, key)
        for key in self._fine.clear():
            self._index.withdraw(self._worker, key)
        self.abandon()

    def abandon(self) -> None:
        """Forget all; the index has dropped the worker, or is told by `clear`. O(blocks)."""
        self._places.clear()
        self._fine.clear()
        self._copies.clear()

    def check(self) -> None:
        """Every invariant. O(blocks)."""
        assert len(self) <= self._capacity
        self._fine.check()
        for engine_hash, copies in self._copies.items():
            assert copies >= 2 and self._knows(engine_hash), engine_hash
        for place in self._places.values():
            assert all(key >> 32 < place.length // self._block_len for key in place.keys), place

    def _begin(self, event: Stored) -> _Place | None:
        """Where the first of the blocks begins; None: nobody said."""
        if event.parent is None:
            return _Place(0, chain_start(event.adapter, event.salt), ())
        return self._find(event.parent)

    def _knows(self, engine_hash: EngineHash) -> bool:
        return engine_hash in self._places or engine_hash in self._fine.numbers

    def _find(self, engine_hash: EngineHash) -> _Place | None:
        found = self._places.get(engine_hash)
        if found is None and (place := self._fine.place(engine_hash)) is not None:
            return _Place(*place, ())
        return found

    def _are_plain(self, event: Stored) -> bool:
        """Whether all of them are new, and nothing but their tokens tells them apart."""
        if event.extras and any(extra is not None for extra in event.extras):
            return False
        if not self._fine.are_unknown(event.hashes):
            return False
        return not self._places or self._places.keys().isdisjoint(event.hashes)

    def _store_fine(self, hashes: Sequence[EngineHash], tokens: bytes, place: _Place) -> None:
        room = self._capacity - len(self)
        if room < len(hashes):
            self.beyond += len(hashes) - room
            size = len(tokens) // len(hashes)
            hashes, tokens = hashes[:room], tokens[: room * size]
        if room:
            for key in self._fine.add(hashes, tokens, length=place.length, crc=place.crc):
                self._index.confirm(self._worker, key)

    def _store_each(self, event: Stored, tokens: bytes, size: int, place: _Place | None) -> None:
        """One after the other, as some of them may be known already."""
        known: EngineHash | None = None  # at the end of which the chain is
        for number, engine_hash in enumerate(event.hashes):
            if self._knows(engine_hash):
                self._copies[engine_hash] = self._copies.get(engine_hash, 1) + 1
                known = engine_hash
                continue
            if known is not None:
                place, known = self._find(known), None
            assert place is not None, "unknown hashes have their tokens with them"
            extra = event.extras[number] if number < len(event.extras) else None
            block = tokens[number * size : (number + 1) * size]
            place = self._remember(engine_hash, self._after(place, block, extra))
            if place is None:
                self.beyond += len(event.hashes) - number
                return

    def _last_copies(self, hashes: Sequence[EngineHash]) -> list[EngineHash]:
        """Those of which no other copy is left, once these are gone."""
        gone = []
        for engine_hash in hashes:
            copies = self._copies.pop(engine_hash, 1)
            if copies > 2:
                self._copies[engine_hash] = copies - 1
            elif copies == 1:
                gone.append(engine_hash)
        return gone

    def _after(self, place: _Place, block: bytes, extra: object) -> _Place:
        """The place at the end of `block`. Blocks of ours that end within it are its keys."""
        length, crc, _ = place
        if extra is not None:
            crc = crc32(repr(extra).encode("utf-8", "backslashreplace"), crc)
        if len(block) == self._size and length % self._block_len == 0:  # its blocks are as ours
            crc = crc32(block, crc)
            key = block_key(length // self._block_len, crc)
            return _Place(length + self._block_len, crc, (key,))
        keys = []
        at, end = 0, len(block)
        while at < end:
            step = min(end - at, (self._block_len - length % self._block_len) * TOKEN_BYTES)
            crc = crc32(block[at : at + step] if step < end else block, crc)
            at += step
            length += step // TOKEN_BYTES
            if length % self._block_len == 0:
                keys.append(block_key(length // self._block_len - 1, crc))
        return _Place(length, crc, tuple(keys))

    def _remember(self, engine_hash: EngineHash, place: _Place) -> _Place | None:
        if len(self) >= self._capacity:
            return None
        self._places[engine_hash] = place
        for key in place.keys:
            self._index.confirm(self._worker, key)
        return place


def _as_bytes(tokens: Sequence[int]) -> bytes:
    try:
        return array("I", tokens).tobytes()
    except (TypeError, OverflowError):
        raise ValueError("tokens that are no token numbers") from None

"""Approximate prefix index: hashed chunks of text per worker, for engines that report no KV events.

Entries are made at dispatch, evicted least recently used first and never confirmed (DESIGN 3.4). A text is
cut at fixed positions; the key of a chunk is a checksum of the text up to its end, chained from chunk to
chunk. Two texts whose checksums collide send a request to an engine that has cached less of
it than estimated; no answer depends on that. Callers cannot provoke it without the `seed` of the first
checksum.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple, Protocol, TypeAlias
from zlib import crc32

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.request import Unit, WorkerId
from fairhit.routers.prefix_index.worker_bitmaps import WorkerBitmaps

# Bytes of the chunks of a text, from its beginning: small where short prompts part, larger behind, so that
# the error of a match is below a quarter and 80 KB are 41 chunks. Text beyond 16 MiB is ignored.
_SIZES: Final = [256] * 4 + [512] * 6 + [1024] * 16 + [4096] * 4091
_ENDS: Final = tuple(accumulate(_SIZES))
# Bytes from which a memoryview costs less than copies of the chunks.
_LONG: Final = 8192

# Checksum of some bytes given that of all bytes before them; 64 bits at most.
Checksum: TypeAlias = Callable[[bytes | memoryview, int], int]


class ChunkedText(NamedTuple):
    """A text as the keys of its full chunks, and the bytes of the last chunk if it is not full.

    The keys of a prefix are a prefix of the keys.
    """

    chunks: tuple[int, ...] = ()
    tail: bytes = b""

    def extended(self, more: bytes, checksum: Checksum = crc32, *, seed: int = 0) -> "ChunkedText":
        """Return the text followed by `more`; `checksum` and `seed` must be those used before. O(more)."""
        text = self.tail + more if self.tail else more
        known = self.chunks
        begin = _ENDS[len(known) - 1] if known else 0
        count = bisect_right(_ENDS, begin + len(text))
        if count == len(known):
            return ChunkedText(known, text)
        value, at, chunks = known[-1] if known else seed, 0, [*known]
        data = text if len(text) < _LONG else memoryview(text)
        for size in _SIZES[len(known) : count]:
            value = checksum(data[at : at + size], value)
            chunks.append(value)
            at += size
        return ChunkedText(tuple(chunks), text[at:])


def chunks_len(chunks: int) -> int:
    """Return the length in bytes of the first `chunks` chunks of a text."""
    return _ENDS[chunks - 1] if chunks else 0


class Follower(Protocol):
    """Receives the evictions of an index, after each happened."""

    def evicted(self, worker: WorkerId, chunk: Unit) -> None:
        """Receive an eviction: `worker` is over its capacity, and used this chunk least recently."""
        ...


class ApproximatePrefixIndex:
    """The chunks sent to each worker last, at most `capacity` per worker."""

    def __init__(self, *, capacity: int = 32_768) -> None:
        assert capacity >= 1, capacity
        self._capacity = capacity
        self._bitmaps = WorkerBitmaps()
        self._recency: dict[WorkerId, OrderedDict[Unit, None]] = {}  # oldest first
        self._bits: dict[WorkerId, int] = {}
        self._followers: list[Follower] = []

    def follow(self, follower: Follower) -> None:
        """Call `follower` for every eviction from now on; not when a worker is dropped."""
        self._followers.append(follower)

    def add_worker(self, worker: WorkerId) -> None:
        """Add `worker` with an empty cache. O(1)."""
        assert worker not in self._bits, worker
        self._bits[worker] = self._bitmaps.add_worker(worker)
        self._recency[worker] = OrderedDict()

    def drop_worker(self, worker: WorkerId) -> None:
        """Remove `worker` and all its chunks. O(its chunks)."""
        bit = self._bits.pop(worker)
        self._bitmaps.drop_worker(bit)
        for chunk in self._recency.pop(worker):
            self._bitmaps.release(chunk, bit)

    def covered(self, chunks: int) -> int:
        """Return the length in bytes of the first `chunks` chunks of a text. O(1)."""
        return chunks_len(chunks)

    def match(self, chunks: Sequence[Unit]) -> PrefixMatches:
        """Find how many leading chunks each worker holds. Pure. O(longest match)."""
        return self._bitmaps.match(chunks)

    def insert(self, worker: WorkerId, chunks: Sequence[Unit]) -> int:
        """Enter the chunks of a text sent to `worker`; return how many leading ones fit. O(chunks).

        The last chunk is touched first, so that the end of a text is evicted before its beginning.
        """
        bit, recency, bits = self._bits[worker], self._recency[worker], self._bitmaps.bits
        for chunk in reversed(chunks):
            if chunk in recency:
                recency.move_to_end(chunk)
            else:
                recency[chunk] = None
                bits[chunk] = bits.get(chunk, 0) | bit
        while len(recency) > self._capacity:
            oldest, _ = recency.popitem(last=False)
            self._bitmaps.release(oldest, bit)
            for follower in self._followers:
                follower.evicted(worker, oldest)
        return min(len(chunks), self._capacity)

    def size(self, worker: WorkerId) -> int:
        """Return the number of chunks of `worker`. O(1)."""
        return len(self._recency[worker])

    def check(self) -> None:
        """Every invariant. O(index)."""
        expected: dict[Unit, int] = {}
        for worker, recency in self._recency.items():
            assert len(recency) <= self._capacity, worker
            for chunk in recency:
                expected[chunk] = expected.get(chunk, 0) | self._bits[worker]
        assert expected == self._bitmaps.bits

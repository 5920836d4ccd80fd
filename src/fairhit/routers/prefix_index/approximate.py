"""Which worker has probably cached how much of a text: a prefix index over hashed chunks.

The gateway's stand-in for the engines' caches where nobody tells it their contents: approximate,
least recently used first, never confirmed (DESIGN 3.4). A text is cut at fixed positions, and each
chunk stands for the text up to its end: its depth, and a checksum that is chained from chunk to chunk.
Two texts that collide send a request to an engine that has less of it cached than thought, and where
engines do not report what they had, it is charged less; no answer depends on it. By chance that is
rare; whoever must not do it on purpose may not know the `seed` of the first checksum.
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

# Bytes in the chunks of a text, from its beginning: small where short prompts part, larger behind,
# so that a match is known to within a quarter and 80 KB are 41 chunks. What comes after 16 MiB no
# longer counts: no prompt is that long.
_SIZES: Final = [256] * 4 + [512] * 6 + [1024] * 16 + [4096] * 4091
_ENDS: Final = tuple(accumulate(_SIZES))
# Depth in the high bits, where a chunk begins, where it ends.
_SUM_BITS: Final = 64
_CUTS: Final = tuple((n << _SUM_BITS, end - _SIZES[n], end) for n, end in enumerate(_ENDS))
# From here on a slice that is a view costs less than a copy.
_LONG: Final = 8192

# Of a piece, begun with the checksum of what is before it; 64 bits at most.
Checksum: TypeAlias = Callable[[bytes | memoryview, int], int]


class ChunkedText(NamedTuple):
    """A text as its full chunks, and the bytes that fill none yet.

    The chunks of a prefix are a prefix of the chunks.
    """

    chunks: tuple[int, ...] = ()
    tail: bytes = b""

    def extended(self, more: bytes, checksum: Checksum = crc32, *, seed: int = 0) -> "ChunkedText":
        """The text with `more` after it, by the same `checksum` and `seed` as ever. O(more)."""
        text = self.tail + more if self.tail else more
        known = self.chunks
        begin = _ENDS[len(known) - 1] if known else 0
        count = bisect_right(_ENDS, begin + len(text))
        if count == len(known):
            return ChunkedText(known, text)
        value = known[-1] & ((1 << _SUM_BITS) - 1) if known else seed
        data = text if len(text) < _LONG else memoryview(text)
        added = [
            depth | (value := checksum(data[start - begin : end - begin], value))
            for depth, start, end in _CUTS[len(known) : count]
        ]
        return ChunkedText((*known, *added), text[_ENDS[count - 1] - begin :])


def chunks_len(chunks: int) -> int:
    """How many bytes the first `chunks` chunks of a text cover."""
    return _ENDS[chunks - 1] if chunks else 0


class Follower(Protocol):
    """Hears of what an index has forgotten, after it has."""

    def evicted(self, worker: WorkerId, chunk: Unit) -> None:
        """`worker` had this chunk longest unused, and is over its capacity."""
        ...


class ApproximatePrefixIndex:
    """The chunks each worker has seen lately, at most `capacity` of them per worker."""

    def __init__(self, *, capacity: int = 32_768) -> None:
        assert capacity >= 1, capacity
        self._capacity = capacity
        self._holders = WorkerBitmaps()
        self._recency: dict[WorkerId, OrderedDict[Unit, None]] = {}  # oldest first
        self._bits: dict[WorkerId, int] = {}
        self._followers: list[Follower] = []

    def follow(self, follower: Follower) -> None:
        """From now on `follower` hears of every eviction; not of a worker that is dropped."""
        self._followers.append(follower)

    def add_worker(self, worker: WorkerId) -> None:
        """`worker` is up with an empty cache. O(1)."""
        self._bits[worker] = self._holders.add_worker(worker)
        self._recency[worker] = OrderedDict()

    def drop_worker(self, worker: WorkerId) -> None:
        """`worker` is gone with all it had. O(its chunks)."""
        self._holders.drop_worker(worker)
        bit = self._bits.pop(worker)
        for chunk in self._recency.pop(worker):
            self._holders.release(chunk, bit)

    def covered(self, chunks: int) -> int:
        """Bytes of text in the first so many chunks. O(1)."""
        return chunks_len(chunks)

    def match(self, chunks: Sequence[Unit]) -> PrefixMatches:
        """How many leading chunks each worker holds. Changes no answer. O(longest match)."""
        return self._holders.match(chunks)

    def insert(self, worker: WorkerId, chunks: Sequence[Unit]) -> int:
        """`worker` has these chunks now; how many leading ones fit. O(chunks).

        The deepest is touched first, so that the tail of a text is evicted before its head.
        """
        bit, recency, holders = self._bits[worker], self._recency[worker], self._holders.bits
        for chunk in reversed(chunks):
            if chunk in recency:
                recency.move_to_end(chunk)
            else:
                recency[chunk] = None
                holders[chunk] = holders.get(chunk, 0) | bit
        while len(recency) > self._capacity:
            oldest, _ = recency.popitem(last=False)
            self._holders.release(oldest, bit)
            for follower in self._followers:
                follower.evicted(worker, oldest)
        return min(len(chunks), self._capacity)

    def size(self, worker: WorkerId) -> int:
        """How many chunks `worker` holds. O(1)."""
        return len(self._recency[worker])

    def check(self) -> None:
        """Every invariant. O(index)."""
        expected: dict[Unit, int] = {}
        for worker, recency in self._recency.items():
            assert len(recency) <= self._capacity, worker
            for chunk in recency:
                expected[chunk] = expected.get(chunk, 0) | self._bits[worker]
        assert expected == self._holders.bits

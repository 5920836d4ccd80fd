"""Which worker has probably cached how much of a text: a prefix index over hashed chunks.

The gateway's stand-in for the engines' caches where nobody tells it their contents: approximate,
least recently used first, never confirmed (DESIGN 3.4). A text is cut at fixed positions and each
chunk's hash covers all before it, so that equal hashes mean equal prefixes. The built-in hash is
seeded per process; hashes are only ever compared, so no result depends on the seed.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from fairlead.core.request import Unit, WorkerId

# Bytes in a chunk: small at the front, where short prompts part, and larger behind, where a chunk
# more or less is a small error and each one costs about half a microsecond.
_FINE = 256
_FINE_CHUNKS = 16
_COARSE = 1024


@dataclass(frozen=True, slots=True)
class ChunkedText:
    """A text as the chained hashes of its full chunks, and the bytes that fill none yet.

    The hashes of a prefix are a prefix of the hashes.
    """

    hashes: tuple[int, ...] = ()
    tail: bytes = b""

    def extended(self, more: bytes) -> "ChunkedText":
        """This text with `more` after it. O(more)."""
        text = self.tail + more if self.tail else more
        hashes = list(self.hashes)
        previous = hashes[-1] if hashes else 0
        at = 0
        size = _size(len(hashes))
        while at + size <= len(text):
            previous = hash((previous, text[at : at + size]))
            hashes.append(previous)
            at += size
            size = _size(len(hashes))
        return ChunkedText(tuple(hashes), text[at:])


def chunks_len(chunks: int) -> int:
    """How many bytes the first `chunks` chunks of a text cover."""
    fine = min(chunks, _FINE_CHUNKS)
    return fine * _FINE + (chunks - fine) * _COARSE


def _size(number: int) -> int:
    """Bytes of chunk `number`, counted from 0."""
    return _FINE if number < _FINE_CHUNKS else _COARSE


class ChunkIndex:
    """The chunks each worker has seen lately, at most `capacity` of them per worker.

    A chunk's workers are the bits of one integer, so one walk down a text matches all workers.
    """

    def __init__(self, *, capacity: int = 32_768) -> None:
        assert capacity >= 1, capacity
        self._capacity = capacity
        self._workers: dict[WorkerId, int] = {}  # its bit
        self._holders: dict[Unit, int] = {}  # chunk -> bits of the workers that hold it
        self._recency: dict[WorkerId, OrderedDict[Unit, None]] = {}  # oldest first

    def add_worker(self, worker: WorkerId) -> None:
        """`worker` is up with an empty cache. O(workers)."""
        assert worker not in self._workers, worker
        taken = 0
        for bit in self._workers.values():
            taken |= bit
        self._workers[worker] = ~taken & (taken + 1)  # the lowest free bit
        self._recency[worker] = OrderedDict()

    def drop_worker(self, worker: WorkerId) -> None:
        """`worker` is gone with all it had. O(its chunks)."""
        bit = self._workers.pop(worker)
        for chunk in self._recency.pop(worker):
            self._release(chunk, bit)

    def match(self, chunks: Sequence[Unit]) -> dict[WorkerId, int]:
        """How many leading chunks each worker holds. Pure. O(longest match + workers)."""
        holders = self._holders
        alive = depth = 0
        for bit in self._workers.values():
            alive |= bit
        matched = dict.fromkeys(self._workers, 0)
        for chunk in chunks:
            still = holders.get(chunk, 0) & alive
            if still != alive:
                self._note(matched, alive & ~still, depth)
                alive = still
                if not alive:
                    return matched
            depth += 1
        self._note(matched, alive, depth)
        return matched

    def insert(self, worker: WorkerId, chunks: Sequence[Unit]) -> None:
        """`worker` has seen these chunks now. O(chunks).

        The deepest is touched first, so that the tail of a text is evicted before its head.
        """
        bit = self._workers[worker]
        recency, holders = self._recency[worker], self._holders
        for chunk in reversed(chunks):
            if chunk in recency:
                recency.move_to_end(chunk)
            else:
                recency[chunk] = None
                holders[chunk] = holders.get(chunk, 0) | bit
        while len(recency) > self._capacity:
            oldest, _ = recency.popitem(last=False)
            self._release(oldest, bit)

    def size(self, worker: WorkerId) -> int:
        """How many chunks `worker` holds. O(1)."""
        return len(self._recency[worker])

    def check(self) -> None:
        """Every invariant. O(index)."""
        expected: dict[Unit, int] = {}
        for worker, recency in self._recency.items():
            assert len(recency) <= self._capacity, worker
            for chunk in recency:
                expected[chunk] = expected.get(chunk, 0) | self._workers[worker]
        assert expected == self._holders

    def _note(self, matched: dict[WorkerId, int], bits: int, depth: int) -> None:
        for worker, bit in self._workers.items():
            if bits & bit:
                matched[worker] = depth

    def _release(self, chunk: Unit, bit: int) -> None:
        rest = self._holders[chunk] & ~bit
        if rest:
            self._holders[chunk] = rest
        else:
            del self._holders[chunk]

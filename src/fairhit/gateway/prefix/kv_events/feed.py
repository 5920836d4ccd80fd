"""One publisher's batches, taken in order: what follows, what was seen before, what is missing.

No sockets and no clock here. Batches are numbered from 0 when an engine starts. One that follows is
applied. One that is late by its number was seen before, unless it is younger than what was seen: then
the engine has begun anew.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from zlib import crc32

from fairhit.core.request import WorkerId
from fairhit.gateway.http.read_budget import ITERATION
from fairhit.gateway.prefix.kv_events.messages import Batch, BlocksRemoved, BlocksStored, read_batch
from fairhit.routers.prefix_index.kv_event_mirror import KVEventMirror
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex

# Data-parallel ranks that one publisher may speak for.
_MAX_RANKS = 64


class BatchOutcome(Enum):
    """What became of a batch."""

    TAKEN = auto()
    SEEN = auto()  # before; nothing happened
    MISSING = auto()  # something before it; not taken
    ANEW = auto()  # the engine has started again: all was forgotten, and this batch is to be taken


@dataclass(slots=True)
class Counts:
    """What has happened to one publisher's messages, ever."""

    batches: int = 0
    malformed: int = 0
    gaps: int = 0
    replays: int = 0
    restarts: int = 0
    resets: int = 0  # times all blocks were dropped


@dataclass(slots=True)
class Feed:
    """The cache of one engine, or of one of its ranks, as one publisher tells it."""

    index: PrecisePrefixIndex
    worker: WorkerId
    block_len: int
    capacity: int
    changed: Callable[[], None]  # `knowledge` is another
    complain: Callable[[str], None]  # about what could not be read
    counts: Counts = field(default_factory=Counts)
    knowledge: Knowledge = Knowledge.NONE
    following: int | None = None  # the number of the next batch; None: nothing is known
    _last_s: float = float("-inf")
    _last_digest: int | None = None
    was_complete: bool = False  # before `doubt`
    _ranks: dict[int, KVEventMirror] = field(default_factory=dict)
    _skipped: set[int] = field(default_factory=set)  # groups of layers that are not matched

    def receive(self, number: int, payload: bytes) -> BatchOutcome:
        """A batch has come. O(its tokens)."""
        if self.following is not None and number > self.following:
            return BatchOutcome.MISSING
        try:
            if len(payload) > ITERATION:
                raise ValueError(f"a batch of over {ITERATION} bytes is not read")
            batch = read_batch(payload)
        except ValueError as error:
            self._passed(number, payload, self._last_s)
            self._could_not_read(str(error))
            return BatchOutcome.TAKEN
        if self.following is not None and number < self.following:
            if batch.time_s <= self._last_s:
                return BatchOutcome.SEEN
            self.counts.restarts += 1
            self.forget()
            return BatchOutcome.ANEW
        if self.following is None:
            self._know(Knowledge.PARTIAL if number else Knowledge.COMPLETE)
        self._passed(number, payload, batch.time_s)
        self._apply(batch)
        return BatchOutcome.TAKEN

    def nothing_yet(self) -> None:
        """The publisher keeps all it has said, and that is nothing: the cache is empty."""
        assert self.following is None, self.following
        self.following = 0
        self._know(Knowledge.COMPLETE)

    def is_last(self, number: int, payload: bytes) -> bool:
        """Whether this is the batch that was taken last: so it is the same engine still."""
        followed = self.following is not None and number == self.following - 1
        return followed and crc32(payload) == self._last_digest

    def doubt(self) -> None:
        """The connection is lost: what is confirmed may be out of date."""
        self.was_complete = self.was_complete or self.knowledge is Knowledge.COMPLETE
        if self.was_complete:
            self._know(Knowledge.PARTIAL)

    def trust(self) -> None:
        """The same engine goes on, and nothing was missed since `doubt`."""
        if self.was_complete:
            self.was_complete = False
            self._know(Knowledge.COMPLETE)

    def forget(self) -> None:
        """Nothing is known any more; guesses are guesses again. O(blocks)."""
        if self.following is not None or self.knowledge is not Knowledge.NONE:
            self.counts.resets += 1
        for blocks in self._ranks.values():
            blocks.clear()
        self._reset()
        self._know(Knowledge.NONE)

    def abandon(self) -> None:
        """As `forget`, and the index has dropped the worker already."""
        for blocks in self._ranks.values():
            blocks.abandon()
        self._reset()

    def __len__(self) -> int:
        """Hashes remembered."""
        return sum(len(blocks) for blocks in self._ranks.values())

    def unplaced(self) -> int:
        """Blocks that could not be placed, for want of a beginning or of room."""
        return sum(blocks.orphaned + blocks.beyond for blocks in self._ranks.values())

    def _reset(self) -> None:
        self.following = self._last_digest = None
        self.was_complete = False
        self._last_s = float("-inf")

    def _passed(self, number: int, payload: bytes, time_s: float) -> None:
        self.following = number + 1
        self._last_digest, self._last_s = crc32(payload), time_s
        self.counts.batches += 1

    def _know(self, knowledge: Knowledge) -> None:
        if knowledge is not self.knowledge:
            self.knowledge = knowledge
            self.changed()

    def _could_not_read(self, why: str) -> None:
        """Something was said and not understood: what is not confirmed may be there."""
        self.counts.malformed += 1
        self.complain(why)
        self._know(Knowledge.PARTIAL)

    def _apply(self, batch: Batch) -> None:
        if batch.unreadable:
            self._could_not_read(batch.unreadable)
        blocks = self._ranks.get(batch.rank)
        if blocks is None:
            if len(self._ranks) >= _MAX_RANKS:
                self._could_not_read(f"more than {_MAX_RANKS} data-parallel ranks")
                return
            blocks = self._ranks[batch.rank] = KVEventMirror(
                index=self.index,
                worker=self.worker,
                block_len=self.block_len,
                capacity=self.capacity,
            )
        for event in batch.events:
            if isinstance(event, BlocksStored):
                self._store(blocks, event)
            elif isinstance(event, BlocksRemoved):
                if event.group not in self._skipped:
                    blocks.removed(event.hashes)
            else:
                blocks.clear()
                if len(self._ranks) == 1:
                    self._know(Knowledge.COMPLETE)

    def _store(self, blocks: KVEventMirror, event: BlocksStored) -> None:
        """Of several groups of layers the one with full attention counts, or the first."""
        full = event.group == 0 if event.full is None else event.full
        if not full:
            self._skipped.add(event.group)
            return
        stored = event.blocks
        if stored.block_len > self.block_len:
            self.index.set_stride(self.worker, stored.block_len // self.block_len)
        before = blocks.orphaned + blocks.beyond
        try:
            blocks.stored(stored)
        except ValueError as error:
            self._could_not_read(str(error))
        if blocks.orphaned + blocks.beyond > before:
            self._know(Knowledge.PARTIAL)  # it has what we cannot tell

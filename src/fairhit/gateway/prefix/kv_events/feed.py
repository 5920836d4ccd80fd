"""Applies the batches of one publisher in order, and detects gaps, duplicates and restarts.

No sockets and no clock here. An engine numbers its batches from 0. The next number is applied. A lower
number is a duplicate, unless the batch is newer by its time: then the engine has restarted.
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

# Data-parallel ranks that one publisher may report.
_MAX_RANKS = 64


class BatchOutcome(Enum):
    """Outcome of receiving a batch."""

    APPLIED = auto()
    DUPLICATE = auto()  # nothing changed
    GAP = auto()  # an earlier batch is missing; not applied
    RESTARTED = auto()  # all blocks were dropped; the batch is to be received again


@dataclass(slots=True)
class Counts:
    """Counts of one publisher since the start."""

    batches: int = 0
    malformed: int = 0
    gaps: int = 0
    replays: int = 0
    restarts: int = 0
    resets: int = 0  # times all blocks were dropped


@dataclass(slots=True)
class Feed:
    """Mirrors the cache of one engine, or of one data-parallel rank, from one publisher."""

    index: PrecisePrefixIndex
    worker: WorkerId
    block_len: int
    capacity: int
    on_change: Callable[[], None]  # called when `knowledge` changes
    on_error: Callable[[str], None]  # called with what could not be read
    counts: Counts = field(default_factory=Counts)
    knowledge: Knowledge = Knowledge.NONE
    next_number: int | None = None  # of the next batch; None: unknown
    _last_s: float = float("-inf")
    _last_digest: int | None = None
    was_complete: bool = False  # before `mark_stale`
    _ranks: dict[int, KVEventMirror] = field(default_factory=dict)
    _skipped: set[int] = field(default_factory=set)  # groups of layers that are not mirrored

    def receive(self, number: int, payload: bytes) -> BatchOutcome:
        """Apply a batch if it is the next one. O(its tokens)."""
        if self.next_number is not None and number > self.next_number:
            return BatchOutcome.GAP
        try:
            if len(payload) > ITERATION:
                raise ValueError(f"a batch of over {ITERATION} bytes is too long")
            batch = read_batch(payload)
        except ValueError as error:
            self._advance(number, payload, self._last_s)
            self._on_unreadable(str(error))
            return BatchOutcome.APPLIED
        if self.next_number is not None and number < self.next_number:
            if batch.time_s <= self._last_s:
                return BatchOutcome.DUPLICATE
            self.counts.restarts += 1
            self.reset()
            return BatchOutcome.RESTARTED
        if self.next_number is None:
            self._set_knowledge(Knowledge.PARTIAL if number else Knowledge.COMPLETE)
        self._advance(number, payload, batch.time_s)
        self._apply(batch)
        return BatchOutcome.APPLIED

    def mark_empty(self) -> None:
        """Mark the cache as known and empty: the publisher replays all its batches, and has none."""
        assert self.next_number is None, self.next_number
        self.next_number = 0
        self._set_knowledge(Knowledge.COMPLETE)

    def is_last(self, number: int, payload: bytes) -> bool:
        """True if this is the batch that was applied last: the engine has not restarted."""
        is_previous = self.next_number is not None and number == self.next_number - 1
        return is_previous and crc32(payload) == self._last_digest

    def mark_stale(self) -> None:
        """Mark the blocks as possibly out of date: the connection is lost."""
        self.was_complete = self.was_complete or self.knowledge is Knowledge.COMPLETE
        if self.was_complete:
            self._set_knowledge(Knowledge.PARTIAL)

    def mark_current(self) -> None:
        """Undo `mark_stale`: the engine has not restarted, and no batch was missed."""
        if self.was_complete:
            self.was_complete = False
            self._set_knowledge(Knowledge.COMPLETE)

    def reset(self) -> None:
        """Drop all confirmed blocks; optimistic ones are kept as such. O(blocks)."""
        if self.next_number is not None or self.knowledge is not Knowledge.NONE:
            self.counts.resets += 1
        for blocks in self._ranks.values():
            blocks.clear()
        self._restart()
        self._set_knowledge(Knowledge.NONE)

    def abandon(self) -> None:
        """Release all blocks after the index has dropped the engine."""
        for blocks in self._ranks.values():
            blocks.abandon()
        self._restart()

    def __len__(self) -> int:
        """Number of the engine's hashes that are kept."""
        return sum(len(blocks) for blocks in self._ranks.values())

    def orphaned(self) -> int:
        """Number of blocks not mirrored: their parent is unknown, or the capacity is exceeded."""
        return sum(blocks.orphaned + blocks.beyond for blocks in self._ranks.values())

    def _restart(self) -> None:
        self.next_number = self._last_digest = None
        self.was_complete = False
        self._last_s = float("-inf")

    def _advance(self, number: int, payload: bytes, time_s: float) -> None:
        self.next_number = number + 1
        self._last_digest, self._last_s = crc32(payload), time_s
        self.counts.batches += 1

    def _set_knowledge(self, knowledge: Knowledge) -> None:
        if knowledge is not self.knowledge:
            self.knowledge = knowledge
            self.on_change()

    def _on_unreadable(self, problem: str) -> None:
        """Count an unreadable event: the cache may hold blocks that are not confirmed."""
        self.counts.malformed += 1
        self.on_error(problem)
        self._set_knowledge(Knowledge.PARTIAL)

    def _apply(self, batch: Batch) -> None:
        if batch.unreadable:
            self._on_unreadable(batch.unreadable)
        blocks = self._ranks.get(batch.rank)
        if blocks is None:
            if len(self._ranks) >= _MAX_RANKS:
                self._on_unreadable(f"more than {_MAX_RANKS} data-parallel ranks")
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
                    self._set_knowledge(Knowledge.COMPLETE)

    def _store(self, blocks: KVEventMirror, event: BlocksStored) -> None:
        """Mirror the group of layers with full attention, or else the first group."""
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
            self._on_unreadable(str(error))
        if blocks.orphaned + blocks.beyond > before:
            self._set_knowledge(Knowledge.PARTIAL)  # the cache has more than is mirrored

"""Precise prefix index: blocks of tokens per worker, confirmed by the engines' KV events.

A block that an event confirmed is held until an event withdraws it. A block that was only sent to the
worker is an *optimistic entry* until it is confirmed, denied or expired (DESIGN 3.4). An entry is denied if
no event confirms it soon after admission, and only where every event since the cache was empty has been
seen.
"""

from collections import OrderedDict
from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.token_blocks import BLOCK_LEN, TOKEN_BYTES
from fairhit.core.request import Unit, WorkerId
from fairhit.routers.prefix_index.worker_bitmaps import WorkerBitmaps

# From the engine's first byte, which shows that the prompt was admitted, to the denial of what no event has
# confirmed: events follow within a step or two.
_GRACE_US = 2_000_000
# From dispatch to the expiry of entries whose request never began: its engine failed, its caller left.
_TIMEOUT_US = 300_000_000


class Knowledge(IntEnum):
    """Completeness of what is known of a worker's cache from its events."""

    NONE = 0  # no events: optimistic entries only, evicted least recently used first
    PARTIAL = 1  # confirmed blocks are cached, and others may be
    COMPLETE = 2  # every event since the cache was empty has been applied


class CacheListener(Protocol):
    """Receives additions and removals of workers."""

    def worker_added(self, worker: WorkerId) -> None:
        """Receive an addition; nothing is known of the cache of `worker`."""
        ...

    def worker_dropped(self, worker: WorkerId) -> None:
        """Receive a removal."""
        ...


class TokenFollower(Protocol):
    """Receives confirmed blocks and removed blocks; not optimistic entries."""

    def stored(self, worker: WorkerId, block: Unit) -> None:
        """Receive a block that an event confirmed."""
        ...

    def evicted(self, worker: WorkerId, block: Unit) -> None:
        """Receive a block that was withdrawn, denied, expired or evicted from the optimistic entries."""
        ...


class _Cache:
    """Blocks of one worker: confirmed, or optimistic in one of three states."""

    __slots__ = (
        "admitted", "bit", "confirmed", "denied", "expired", "knowledge", "sent", "unverifiable",
    )  # fmt: skip

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.knowledge = Knowledge.NONE
        self.confirmed: dict[Unit, int] = {}  # copies in the engine
        self.unverifiable: OrderedDict[Unit, None] = OrderedDict()  # cannot be denied; oldest first
        self.sent: OrderedDict[Unit, int] = OrderedDict()  # not admitted yet: time of expiry
        self.admitted: OrderedDict[Unit, int] = OrderedDict()  # time of denial
        self.denied = self.expired = 0

    def optimistic(self) -> int:
        return len(self.unverifiable) + len(self.sent) + len(self.admitted)


class PrecisePrefixIndex:
    """The blocks of each worker: at most `capacity` optimistic ones, and those that events confirm.

    The caller limits the confirmed ones. Time does not pass between two calls of `advance`.
    """

    def __init__(self, *, capacity: int = 32_768, block_len: int = BLOCK_LEN) -> None:
        assert capacity >= 1, capacity
        self._capacity = capacity
        self._block_bytes = block_len * TOKEN_BYTES
        self._now_us = 0
        self._caches: dict[WorkerId, _Cache] = {}
        self._bitmaps = WorkerBitmaps()
        # Blocks of the index per block of the engine, if more than one.
        self._strides: dict[WorkerId, int] = {}
        self._listeners: list[CacheListener] = []
        self._followers: list[TokenFollower] = []

    def follow(self, follower: TokenFollower) -> None:
        """Call `follower` for every block from now on; not for those of a dropped worker."""
        self._followers.append(follower)

    def listen(self, listener: CacheListener) -> None:
        """Call `listener` for each worker added or dropped from now on."""
        self._listeners.append(listener)

    def add_worker(self, worker: WorkerId) -> None:
        """Add `worker`, about whose cache nothing is known. O(listeners)."""
        assert worker not in self._caches, worker
        self._caches[worker] = _Cache(self._bitmaps.add_worker(worker))
        for listener in self._listeners:
            listener.worker_added(worker)

    def drop_worker(self, worker: WorkerId) -> None:
        """Remove `worker` and all its blocks. O(its blocks)."""
        cache = self._caches.pop(worker)
        self._strides.pop(worker, None)
        self._bitmaps.drop_worker(cache.bit)
        for blocks in (cache.confirmed, cache.unverifiable, cache.sent, cache.admitted):
            for block in blocks:
                self._bitmaps.release(block, cache.bit)
        for listener in self._listeners:
            listener.worker_dropped(worker)

    # -- queries

    def covered(self, blocks: int) -> int:
        """Return the bytes of the token numbers of `blocks` blocks. O(1)."""
        return blocks * self._block_bytes

    def match(self, blocks: Sequence[Unit]) -> PrefixMatches:
        """Find how many leading blocks each worker holds, rounded down to blocks of its engine. Pure.

        O(longest match); O(workers) if an engine's blocks are longer than the index's.
        """
        found, strides = self._bitmaps.match(blocks), self._strides
        if not strides:
            return found
        lengths = {worker: found.of(worker) for worker in self._caches}
        for worker, stride in strides.items():
            lengths[worker] -= lengths[worker] % stride
        return PrefixMatches.of_each(lengths)

    def knowledge(self, worker: WorkerId) -> Knowledge:
        """Return how much of the cache of `worker` is known. O(1)."""
        return self._caches[worker].knowledge

    def size(self, worker: WorkerId) -> int:
        """Return the number of blocks of `worker`, optimistic ones included. O(1)."""
        cache = self._caches[worker]
        return len(cache.confirmed) + cache.optimistic()

    def confirmed(self, worker: WorkerId) -> int:
        """Return the number of confirmed blocks of `worker`. O(1)."""
        return len(self._caches[worker].confirmed)

    def disproved(self, worker: WorkerId) -> tuple[int, int]:
        """Return the numbers of optimistic entries that were denied and that expired. O(1)."""
        cache = self._caches[worker]
        return cache.denied, cache.expired

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._caches

    # -- optimistic entries

    def insert(self, worker: WorkerId, blocks: Sequence[Unit]) -> int:
        """Enter the blocks of a prompt sent to `worker`; return how many leading ones fit. O(blocks).

        The last block is touched first, so that the end of a prompt is evicted before its beginning.
        """
        cache = self._caches[worker]
        complete, bits = cache.knowledge is Knowledge.COMPLETE, self._bitmaps.bits
        for block in reversed(blocks):
            if block not in cache.confirmed:
                if complete and _exact(block):
                    cache.admitted.pop(block, None)
                    cache.sent[block] = self._now_us + _TIMEOUT_US
                    cache.sent.move_to_end(block)
                else:
                    cache.unverifiable[block] = None
                    cache.unverifiable.move_to_end(block)
                bits[block] = bits.get(block, 0) | cache.bit
        if cache.optimistic() <= self._capacity:
            return len(blocks)
        while cache.optimistic() > self._capacity:
            self._evict_oldest(worker, cache)
        last = blocks[-1]
        if last not in cache.confirmed and bits.get(last, 0) & cache.bit:
            return len(blocks)  # the last one is evicted first, and it is there
        gaps = (at for at, block in enumerate(blocks) if not bits.get(block, 0) & cache.bit)
        return next(gaps, len(blocks))

    def admitted(self, worker: WorkerId, blocks: Sequence[Unit]) -> None:
        """Note that `worker` has begun to answer: these blocks are denied unless confirmed soon.

        O(blocks); O(1) if no entry of the worker is in the state before.
        """
        cache = self._caches.get(worker)
        if cache is None or not cache.sent:
            return
        for block in blocks:
            if block in cache.sent:
                del cache.sent[block]
                cache.admitted[block] = self._now_us + _GRACE_US

    def advance(self, now_us: int) -> None:
        """Advance the time to `now_us`; deny and expire overdue entries. O(workers + entries removed)."""
        assert now_us >= self._now_us, (now_us, self._now_us)
        self._now_us = now_us
        for worker, cache in self._caches.items():
            cache.denied += self._expire(worker, cache.admitted)
            cache.expired += self._expire(worker, cache.sent)

    # -- events

    def confirm(self, worker: WorkerId, block: Unit) -> None:
        """Count a copy of the block that the engine has stored. O(1)."""
        cache = self._caches[worker]
        copies = cache.confirmed.get(block, 0)
        cache.confirmed[block] = copies + 1
        if not copies:
            for entries in (cache.unverifiable, cache.sent, cache.admitted):
                if entries:
                    entries.pop(block, None)
            bits = self._bitmaps.bits
            bits[block] = bits.get(block, 0) | cache.bit
            for follower in self._followers:
                follower.stored(worker, block)

    def withdraw(self, worker: WorkerId, block: Unit) -> None:
        """Count a copy of the block as removed by the engine; the last one removes the block. O(1)."""
        cache = self._caches[worker]
        copies = cache.confirmed.pop(block)
        assert copies >= 1, block
        if copies > 1:
            cache.confirmed[block] = copies - 1
        else:
            self._release(worker, block)

    def learn(self, worker: WorkerId, knowledge: Knowledge) -> None:
        """Set how much of the cache is known from now on. O(optimistic entries) when that changes.

        With COMPLETE entries that could not be denied before are denied unless confirmed soon. With NONE all
        confirmed blocks must have been withdrawn.
        """
        cache = self._caches[worker]
        if knowledge is cache.knowledge:
            return
        assert knowledge is not Knowledge.NONE or not cache.confirmed, worker
        cache.knowledge = knowledge
        if knowledge is Knowledge.COMPLETE:
            for block in [block for block in cache.unverifiable if _exact(block)]:
                del cache.unverifiable[block]
                cache.admitted[block] = self._now_us + _GRACE_US
            return
        for blocks in (cache.sent, cache.admitted):
            for block in blocks:
                cache.unverifiable[block] = None
            blocks.clear()

    def set_stride(self, worker: WorkerId, stride: int) -> None:
        """Set how many blocks of the index are one of the engine's; only whole ones match. O(1)."""
        assert stride >= 1, stride
        assert worker in self._caches, worker
        if stride > 1:
            self._strides[worker] = stride
        else:
            self._strides.pop(worker, None)

    def check(self) -> None:
        """Every invariant. O(index)."""
        expected: dict[Unit, int] = {}
        for worker, cache in self._caches.items():
            assert cache.optimistic() <= self._capacity, worker
            parts = (cache.confirmed, cache.unverifiable, cache.sent, cache.admitted)
            for blocks in parts:
                for block in blocks:
                    assert not expected.get(block, 0) & cache.bit, (worker, block)
                    expected[block] = expected.get(block, 0) | cache.bit
            assert all(copies >= 1 for copies in cache.confirmed.values()), worker
            complete = cache.knowledge is Knowledge.COMPLETE
            assert complete or not (cache.sent or cache.admitted), worker
            for deadlines in (list(cache.sent.values()), list(cache.admitted.values())):
                assert deadlines == sorted(deadlines), worker
        assert expected == self._bitmaps.bits

    def _expire(self, worker: WorkerId, blocks: OrderedDict[Unit, int]) -> int:
        count = 0
        while blocks:
            block, deadline_us = next(iter(blocks.items()))
            if deadline_us > self._now_us:
                break
            del blocks[block]
            self._release(worker, block)
            count += 1
        return count

    def _evict_oldest(self, worker: WorkerId, cache: _Cache) -> None:
        """Evict an optimistic entry; those that cannot be denied first, as they are the least certain."""
        for blocks in (cache.unverifiable, cache.admitted, cache.sent):
            if blocks:
                block, _ = blocks.popitem(last=False)
                self._release(worker, block)
                return

    def _release(self, worker: WorkerId, block: Unit) -> None:
        self._bitmaps.release(block, self._caches[worker].bit)
        for follower in self._followers:
            follower.evicted(worker, block)


def _exact(block: Unit) -> bool:
    """Return whether an event can confirm the block: see `BlockedTokens`."""
    return isinstance(block, int) and block >= 0

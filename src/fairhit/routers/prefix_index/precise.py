"""Which worker has cached how much of a prompt, in blocks of tokens: what engines report, and guesses.

What an engine's events confirm is held until they withdraw it. What was only sent there is a guess:
optimistic until it is confirmed, denied or expired (DESIGN 3.4). A guess can be denied only where
silence means something: where every event since the cache was empty has been seen.
"""

from collections import OrderedDict
from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.token_blocks import BLOCK_LEN, TOKEN_BYTES
from fairhit.core.request import Unit, WorkerId
from fairhit.routers.prefix_index.worker_bitmaps import WorkerBitmaps

# The engine's first byte says that the prompt was admitted; its events come within a step or two.
_GRACE_US = 2_000_000
# A guess whose request never began: its engine failed, its caller left.
_PATIENCE_US = 300_000_000


class Knowledge(IntEnum):
    """How much of a worker's cache its events have told."""

    NONE = 0  # no events: guesses only, the least recently used goes
    PARTIAL = 1  # what is confirmed is there, but there may be more
    COMPLETE = 2  # every event since the cache was empty


class CacheListener(Protocol):
    """Hears of workers that come and go."""

    def worker_added(self, worker: WorkerId) -> None:
        """It is up, and nothing is known of its cache."""
        ...

    def worker_dropped(self, worker: WorkerId) -> None:
        """It is gone."""
        ...


class TokenFollower(Protocol):
    """Hears of blocks that workers turn out to have, or no longer have; not of guesses."""

    def stored(self, worker: WorkerId, block: Unit) -> None:
        """The engine says that it has the block."""
        ...

    def evicted(self, worker: WorkerId, block: Unit) -> None:
        """It has it no longer, or never had: nobody holds it for this worker now."""
        ...


class _Cache:
    """One worker's blocks; a block is confirmed, or in one of the other three, or in none."""

    __slots__ = (
        "bit", "confirmed", "denied", "due", "expired", "guessed", "knowledge", "waiting",
    )  # fmt: skip

    def __init__(self, bit: int) -> None:
        self.bit = bit
        self.knowledge = Knowledge.NONE
        self.confirmed: dict[Unit, int] = {}  # how often; an engine may hold copies
        self.guessed: OrderedDict[Unit, None] = OrderedDict()  # oldest first; cannot be denied
        self.waiting: OrderedDict[Unit, int] = OrderedDict()  # sent: when it expires
        self.due: OrderedDict[Unit, int] = OrderedDict()  # begun: when it is denied
        self.denied = self.expired = 0

    def guesses(self) -> int:
        return len(self.guessed) + len(self.waiting) + len(self.due)


class PrecisePrefixIndex:
    """The blocks each worker has: at most `capacity` guesses, and what its events confirm.

    The caller bounds what is confirmed. Time stands still between two calls of `advance`.
    """

    def __init__(self, *, capacity: int = 32_768, block_len: int = BLOCK_LEN) -> None:
        assert capacity >= 1, capacity
        self._capacity = capacity
        self._block_bytes = block_len * TOKEN_BYTES
        self._now_us = 0
        self._caches: dict[WorkerId, _Cache] = {}
        self._holders = WorkerBitmaps()
        # Blocks of ours to one of the engine's, if more than one.
        self._strides: dict[WorkerId, int] = {}
        self._listeners: list[CacheListener] = []
        self._followers: list[TokenFollower] = []

    def follow(self, follower: TokenFollower) -> None:
        """From now on `follower` hears of every block; not of a worker that is dropped."""
        self._followers.append(follower)

    def listen(self, listener: CacheListener) -> None:
        """From now on `listener` hears of workers that come and go."""
        self._listeners.append(listener)

    def add_worker(self, worker: WorkerId) -> None:
        """`worker` is up with a cache nobody knows. O(listeners)."""
        self._caches[worker] = _Cache(self._holders.add_worker(worker))
        for listener in self._listeners:
            listener.worker_added(worker)

    def drop_worker(self, worker: WorkerId) -> None:
        """`worker` is gone with all it had. O(its blocks)."""
        cache = self._caches.pop(worker)
        self._strides.pop(worker, None)
        self._holders.drop_worker(worker)
        for blocks in (cache.confirmed, cache.guessed, cache.waiting, cache.due):
            for block in blocks:
                self._holders.release(block, cache.bit)
        for listener in self._listeners:
            listener.worker_dropped(worker)

    # -- what is asked

    def covered(self, blocks: int) -> int:
        """Bytes of the tokens in the first so many blocks. O(1)."""
        return blocks * self._block_bytes

    def match(self, blocks: Sequence[Unit]) -> PrefixMatches:
        """How many leading blocks each worker holds, in whole blocks of its engine's.

        Changes no answer. O(longest match), and O(workers) where an engine's blocks are longer.
        """
        found, strides = self._holders.match(blocks), self._strides
        if not strides:
            return found
        lengths = {worker: found.of(worker) for worker in self._caches}
        for worker, stride in strides.items():
            lengths[worker] -= lengths[worker] % stride
        return PrefixMatches.of_each(lengths)

    def knowledge(self, worker: WorkerId) -> Knowledge:
        """How much of its cache is known. O(1)."""
        return self._caches[worker].knowledge

    def size(self, worker: WorkerId) -> int:
        """How many blocks `worker` holds, guesses included. O(1)."""
        cache = self._caches[worker]
        return len(cache.confirmed) + cache.guesses()

    def confirmed(self, worker: WorkerId) -> int:
        """How many of them its events have confirmed. O(1)."""
        return len(self._caches[worker].confirmed)

    def disproved(self, worker: WorkerId) -> tuple[int, int]:
        """How many guesses were denied by silence, and how many expired. O(1)."""
        cache = self._caches[worker]
        return cache.denied, cache.expired

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._caches

    # -- what is guessed

    def insert(self, worker: WorkerId, blocks: Sequence[Unit]) -> int:
        """`worker` will have these blocks: a prompt is sent there; how many leading ones fit. O(blocks).

        The deepest is touched first, so that the tail of a prompt is forgotten before its head.
        """
        cache = self._caches[worker]
        complete, holders = cache.knowledge is Knowledge.COMPLETE, self._holders.bits
        for block in reversed(blocks):
            if block not in cache.confirmed:
                if complete and _exact(block):
                    cache.due.pop(block, None)
                    cache.waiting[block] = self._now_us + _PATIENCE_US
                    cache.waiting.move_to_end(block)
                else:
                    cache.guessed[block] = None
                    cache.guessed.move_to_end(block)
                holders[block] = holders.get(block, 0) | cache.bit
        if cache.guesses() <= self._capacity:
            return len(blocks)
        while cache.guesses() > self._capacity:
            self._forget_oldest(worker, cache)
        last = blocks[-1]
        if last not in cache.confirmed and holders.get(last, 0) & cache.bit:
            return len(blocks)  # of its guesses the deepest goes first, and this one is left
        gaps = (at for at, block in enumerate(blocks) if not holders.get(block, 0) & cache.bit)
        return next(gaps, len(blocks))

    def admitted(self, worker: WorkerId, blocks: Sequence[Unit]) -> None:
        """`worker` has begun to answer, so it has these blocks, or will soon have said nothing.

        O(blocks); O(1) where nothing waits to be confirmed.
        """
        cache = self._caches.get(worker)
        if cache is None or not cache.waiting:
            return
        for block in blocks:
            if block in cache.waiting:
                del cache.waiting[block]
                cache.due[block] = self._now_us + _GRACE_US

    def advance(self, now_us: int) -> None:
        """It is `now_us`: what is overdue is denied. O(workers + what is denied)."""
        assert now_us >= self._now_us, (now_us, self._now_us)
        self._now_us = now_us
        for worker, cache in self._caches.items():
            cache.denied += self._expire(worker, cache.due)
            cache.expired += self._expire(worker, cache.waiting)

    # -- what is known

    def confirm(self, worker: WorkerId, block: Unit) -> None:
        """The engine has stored the block, once more perhaps. O(1)."""
        cache = self._caches[worker]
        copies = cache.confirmed.get(block, 0)
        cache.confirmed[block] = copies + 1
        if not copies:
            for guesses in (cache.guessed, cache.waiting, cache.due):
                if guesses:
                    guesses.pop(block, None)
            holders = self._holders.bits
            holders[block] = holders.get(block, 0) | cache.bit
            for follower in self._followers:
                follower.stored(worker, block)

    def withdraw(self, worker: WorkerId, block: Unit) -> None:
        """The engine has removed a block it had stored. O(1)."""
        cache = self._caches[worker]
        copies = cache.confirmed.pop(block)
        assert copies >= 1, block
        if copies > 1:
            cache.confirmed[block] = copies - 1
        else:
            self._release(worker, block)

    def learn(self, worker: WorkerId, knowledge: Knowledge) -> None:
        """How much of the cache is known from now on. O(guesses) when that changes.

        Guesses made while little was known have had their time when all is known, and are denied soon.
        With NONE the confirmed blocks must have been withdrawn: what is left is optimistic again.
        """
        cache = self._caches[worker]
        if knowledge is cache.knowledge:
            return
        assert knowledge is not Knowledge.NONE or not cache.confirmed, worker
        cache.knowledge = knowledge
        if knowledge is Knowledge.COMPLETE:
            for block in [block for block in cache.guessed if _exact(block)]:
                del cache.guessed[block]
                cache.due[block] = self._now_us + _GRACE_US
            return
        for blocks in (cache.waiting, cache.due):
            for block in blocks:
                cache.guessed[block] = None
            blocks.clear()

    def set_stride(self, worker: WorkerId, stride: int) -> None:
        """A block of the engine's is `stride` of ours, and only whole ones can be matched. O(1)."""
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
            assert cache.guesses() <= self._capacity, worker
            parts = (cache.confirmed, cache.guessed, cache.waiting, cache.due)
            for blocks in parts:
                for block in blocks:
                    assert not expected.get(block, 0) & cache.bit, (worker, block)
                    expected[block] = expected.get(block, 0) | cache.bit
            assert all(copies >= 1 for copies in cache.confirmed.values()), worker
            complete = cache.knowledge is Knowledge.COMPLETE
            assert complete or not (cache.waiting or cache.due), worker
            for deadlines in (list(cache.waiting.values()), list(cache.due.values())):
                assert deadlines == sorted(deadlines), worker
        assert expected == self._holders.bits

    # -- inside

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

    def _forget_oldest(self, worker: WorkerId, cache: _Cache) -> None:
        """Guesses that cannot be denied go first: they are the least certain."""
        for blocks in (cache.guessed, cache.due, cache.waiting):
            if blocks:
                block, _ = blocks.popitem(last=False)
                self._release(worker, block)
                return

    def _release(self, worker: WorkerId, block: Unit) -> None:
        self._holders.release(block, self._caches[worker].bit)
        for follower in self._followers:
            follower.evicted(worker, block)


def _exact(block: Unit) -> bool:
    """Whether an engine can confirm it: see `BlockedTokens`."""
    return isinstance(block, int) and block >= 0

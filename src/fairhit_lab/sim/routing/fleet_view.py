"""The replicas' caches as a router knows them: requests sent, at once, and cache events, after a delay."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.request import Request, Unit, WorkerId
from fairhit_lab.sim.event_order import CACHE_EVENTS
from fairhit_lab.sim.kernel import Kernel
from fairhit_lab.sim.routing.fleet_tree import FleetTree

# A method of the tree, and its arguments.
_Change: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]


class CacheEvents(Protocol):
    """Receives the changes of workers' caches."""

    def grew(self, worker: WorkerId, tokens: Sequence[Unit], length: int) -> None:
        """Receive that `worker` has all of `tokens[:length]` cached now."""
        ...

    def shrank(self, worker: WorkerId, tokens: Sequence[Unit], length: int) -> None:
        """Receive that `worker` has only `tokens[:length]` of `tokens` cached."""
        ...

    def ended(self, request: Request) -> None:
        """Receive that a request has ended, after the events of what its worker keeps of it."""
        ...


class FleetView:
    """The prefix tree over all workers that are up; a worker's cache events are applied `delay_us` later.

    A request sent by the router is entered at once.
    """

    def __init__(self, *, kernel: Kernel, delay_us: int) -> None:
        assert delay_us >= 0, delay_us
        self.tree = FleetTree()
        self._kernel = kernel
        self._delay_us = delay_us
        self._followers: dict[WorkerId, CacheFollower] = {}

    def add_worker(self, worker: WorkerId, cache: RadixTree) -> None:
        """Add `worker` with `cache`, which is empty. O(1)."""
        assert not cache.size
        self.tree.add_worker(worker)
        follower = CacheFollower(self.tree, worker, self._kernel, self._delay_us)
        self._followers[worker] = follower
        cache.listen(follower)

    def remove_worker(self, worker: WorkerId) -> None:
        """Remove `worker`; its delayed events are dropped. O(what it held)."""
        self._followers.pop(worker).stopped = True
        self.tree.drop_worker(worker)

    def matches(self, request: Request) -> PrefixMatches:
        """Find how much of the prompt each worker holds; the last token is always computed."""
        return self.tree.match(request.prompt, request.input_len - 1)

    def sent(self, request: Request, worker: WorkerId) -> None:
        """Enter the prompt of `request`, dispatched to `worker`."""
        self.tree.sent(request, worker)

    def ended(self, request: Request, worker: WorkerId) -> None:
        """Remove the optimistic entry of `request`, after the events of what `worker` keeps of it."""
        follower = self._followers.get(worker)
        if follower is not None:
            follower.ended(request)


class CacheFollower:
    """Passes one worker's events on, delayed; the events of one instant are delivered together."""

    __slots__ = ("_delay_us", "_due_us", "_kernel", "_pending", "_tree", "_worker", "stopped")

    def __init__(self, tree: CacheEvents, worker: WorkerId, kernel: Kernel, delay_us: int) -> None:
        self._tree = tree
        self._worker = worker
        self._kernel = kernel
        self._delay_us = delay_us
        self._due_us = -1
        self._pending: list[_Change] = []
        self.stopped = False

    def grew(self, tokens: Sequence[Unit], length: int) -> None:
        """See `TreeListener`."""
        if self._delay_us:
            self._delay(self._tree.grew, self._worker, tokens, length)
        else:
            self._tree.grew(self._worker, tokens, length)

    def shrank(self, tokens: Sequence[Unit], length: int) -> None:
        """See `TreeListener`."""
        if self._delay_us:
            self._delay(self._tree.shrank, self._worker, tokens, length)
        else:
            self._tree.shrank(self._worker, tokens, length)

    def ended(self, request: Request) -> None:
        """Pass the end of a request on, after the events so far."""
        if self._delay_us:
            self._delay(self._tree.ended, request)
        else:
            self._tree.ended(request)

    def _delay(self, method: Callable[..., None], *arguments: object) -> None:
        due_us = self._kernel.now_us + self._delay_us
        if self._due_us != due_us:
            self._pending, self._due_us = [], due_us
            self._kernel.at(due_us, CACHE_EVENTS, self._deliver, self._pending)
        self._pending.append((method, arguments))

    def _deliver(self, changes: list[_Change]) -> None:
        if not self.stopped:
            for method, arguments in changes:
                method(*arguments)

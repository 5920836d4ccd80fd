"""What a router may know of the replicas' caches: what it sent, and their news, some time later."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.request import Request, Unit, WorkerId
from fairhit_lab.sim.event_order import NEWS
from fairhit_lab.sim.kernel import Kernel
from fairhit_lab.sim.routing.fleet_tree import FleetTree

# What to tell the tree, and with what.
_News: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]


class FleetView:
    """Follows the caches of the workers that are up; what one does is known `delay_us` later.

    What the router itself does is known at once: what was sent to a worker is expected there.
    """

    def __init__(self, *, kernel: Kernel, delay_us: int) -> None:
        assert delay_us >= 0, delay_us
        self.tree = FleetTree()
        self._kernel = kernel
        self._delay_us = delay_us
        self._lives: dict[WorkerId, _Life] = {}

    def add_worker(self, worker: WorkerId, cache: RadixTree) -> None:
        """`worker` is up with `cache`, which is empty. O(1)."""
        assert not cache.size
        self.tree.add_worker(worker)
        life = _Life(self.tree, worker)
        if self._delay_us:
            life = _FarLife(self.tree, worker, self._kernel, self._delay_us)
        self._lives[worker] = life
        cache.listen(life)

    def remove_worker(self, worker: WorkerId) -> None:
        """`worker` is gone, and its last news never come. O(what it held)."""
        self._lives.pop(worker).over = True
        self.tree.drop_worker(worker)

    def matches(self, request: Request) -> PrefixMatches:
        """Who is known to hold how much of its prompt; the last token is always computed."""
        return self.tree.match(request.prompt, request.input_len - 1)

    def sent(self, request: Request, worker: WorkerId) -> None:
        """It is on its way to `worker`."""
        self.tree.sent(request, worker)

    def ended(self, request: Request, worker: WorkerId) -> None:
        """`worker` has served or refused it; what it keeps of it, it has said before that."""
        life = self._lives.get(worker)
        if life is not None:
            life.ended(request)


class _Life:
    """One worker from its start to its failure: hears its cache, and the tree hears of it at once."""

    __slots__ = ("_tree", "_worker", "over")

    def __init__(self, tree: FleetTree, worker: WorkerId) -> None:
        self._tree = tree
        self._worker = worker
        self.over = False

    def grew(self, tokens: Sequence[Unit], length: int) -> None:
        self._tree.grew(self._worker, tokens, length)

    def shrank(self, tokens: Sequence[Unit], length: int) -> None:
        self._tree.shrank(self._worker, tokens, length)

    def ended(self, request: Request) -> None:
        self._tree.ended(request)


class _FarLife(_Life):
    """The same with the news on their way for a while; those of one instant travel together."""

    __slots__ = ("_delay_us", "_due_us", "_kernel", "_posted")

    def __init__(self, tree: FleetTree, worker: WorkerId, kernel: Kernel, delay_us: int) -> None:
        super().__init__(tree, worker)
        self._kernel = kernel
        self._delay_us = delay_us
        self._due_us = -1
        self._posted: list[_News] = []

    def grew(self, tokens: Sequence[Unit], length: int) -> None:
        self._post(self._tree.grew, self._worker, tokens, length)

    def shrank(self, tokens: Sequence[Unit], length: int) -> None:
        self._post(self._tree.shrank, self._worker, tokens, length)

    def ended(self, request: Request) -> None:
        self._post(self._tree.ended, request)

    def _post(self, what: Callable[..., None], *about: object) -> None:
        due_us = self._kernel.now_us + self._delay_us
        if self._due_us != due_us:
            self._posted, self._due_us = [], due_us
            self._kernel.at(due_us, NEWS, self._deliver, self._posted)
        self._posted.append((what, about))

    def _deliver(self, posted: list[_News]) -> None:
        if not self.over:
            for what, about in posted:
                what(*about)

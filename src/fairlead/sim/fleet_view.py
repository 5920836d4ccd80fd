"""What a router may know of the replicas' caches: what it sent, and their news, some time later."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from fairlead.core.fleet_tree import FleetTree
from fairlead.core.matches import Matches
from fairlead.core.radix_tree import RadixTree
from fairlead.core.request import Request, Unit, WorkerId
from fairlead.sim.instant import NEWS
from fairlead.sim.kernel import Kernel

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
        self._lives[worker] = life = _Life(self, worker)
        cache.listen(life)

    def remove_worker(self, worker: WorkerId) -> None:
        """`worker` is gone, and its last news never come. O(what it held)."""
        del self._lives[worker]
        self.tree.remove_worker(worker)

    def matches(self, request: Request) -> Matches:
        """Who is known to hold how much of its prompt; the last token is always computed."""
        return self.tree.match(request.prompt, request.input_len - 1)

    def sent(self, request: Request, worker: WorkerId) -> None:
        """It is on its way to `worker`."""
        self.tree.expect(request, worker, self._kernel.now_us)

    def ended(self, request: Request, worker: WorkerId) -> None:
        """`worker` has served or refused it; what it keeps of it, it has said before that."""
        life = self._lives.get(worker)
        if life is not None:
            life.tell(self.tree.arrived, request)

    def post(self, life: "_Life", news: _News) -> None:
        """Something happened at a worker; everything of one instant travels together."""
        if not self._delay_us:
            what, about = news
            what(*about)
            return
        due_us = self._kernel.now_us + self._delay_us
        if not life.posted or life.due_us != due_us:
            life.posted, life.due_us = [], due_us
            self._kernel.at(due_us, NEWS, self._deliver, (life, life.posted))
        life.posted.append(news)

    def _deliver(self, mail: "tuple[_Life, list[_News]]") -> None:
        life, posted = mail
        if self._lives.get(life.worker) is life:
            for what, about in posted:
                what(*about)


class _Life:
    """One worker from its start to its failure: hears its cache."""

    __slots__ = ("_view", "due_us", "posted", "worker")

    def __init__(self, view: FleetView, worker: WorkerId) -> None:
        self._view = view
        self.worker = worker
        self.posted: list[_News] = []
        self.due_us = 0

    def tell(self, what: Callable[..., None], *about: object) -> None:
        self._view.post(self, (what, about))

    def grew(self, tokens: Sequence[Unit], length: int) -> None:
        self.tell(self._view.tree.grew, self.worker, tokens, length)

    def shrank(self, tokens: Sequence[Unit], length: int) -> None:
        self.tell(self._view.tree.shrank, self.worker, tokens, length)

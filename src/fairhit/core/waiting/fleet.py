"""One queue for many engines: the waiting requests by what the engine that asks has cached.

`FleetCaches` is given to a policy as its cache. The policy then orders one queue for all engines: `at` says
which of them the next scheduling pass is for, and `best` of the index is the best request by that engine's
cache.
"""

from collections.abc import Callable

from fairhit.core.cache.cache_view import Cache
from fairhit.core.request import ClientId, Request, WorkerId
from fairhit.core.waiting.cache_listener import waiting_index
from fairhit.core.waiting.index import WaitingIndex


class FleetCaches:
    """The caches of engines that share a queue, and the engine that the next pass is for."""

    def __init__(self) -> None:
        self.index: FleetIndex | None = None  # made by the policy
        self._caches: dict[WorkerId, Cache] = {}

    def add_engine(self, name: WorkerId, cache: Cache) -> None:
        """Include an engine and follow its cache from now on. O(waiting)."""
        assert name not in self._caches, name
        self._caches[name] = cache
        if self.index is not None:
            self.index.add_engine(name, cache)

    def remove_engine(self, name: WorkerId) -> None:
        """Exclude an engine. O(what of its cache waiting prompts begin with)."""
        del self._caches[name]
        if self.index is not None:
            self.index.remove_engine(name)

    def at(self, name: WorkerId) -> None:
        """Let the next pass be for the engine `name`. O(1)."""
        if self.index is not None:
            self.index.at(name)

    def make_index(
        self, *, near: int, standing: Callable[[ClientId], int], keeps_wanted: bool
    ) -> "FleetIndex":
        """Return the index of the one policy to which these caches are given."""
        assert self.index is None, "one policy for one queue"
        self.index = FleetIndex(near=near, standing=standing, keeps_wanted=keeps_wanted)
        for name, cache in self._caches.items():
            self.index.add_engine(name, cache)
        return self.index


class FleetIndex:
    """The waiting index of many engines; methods as of `WaitingIndex`, by the cache of the engine of `at`."""

    def __init__(
        self, *, near: int, standing: Callable[[ClientId], int], keeps_wanted: bool
    ) -> None:
        self._near, self._standing, self._keeps = near, standing, keeps_wanted
        self._views: dict[WorkerId, WaitingIndex] = {}
        self._requests: dict[Request, None] = {}
        self._counts: dict[ClientId, int] = {}
        self._open: dict[ClientId, bool] = {}  # whether for cached prompts only
        self._at: WorkerId = ""

    def add_engine(self, name: WorkerId, cache: Cache) -> None:
        view = waiting_index(
            cache, near=self._near, standing=self._standing, keeps_wanted=self._keeps
        )
        for request in self._requests:
            view.add(request)
        for client, hits in self._open.items():
            (view.open_for_hits if hits else view.open)(client)
        self._views[name] = view

    def remove_engine(self, name: WorkerId) -> None:
        del self._views[name]

    def at(self, name: WorkerId) -> None:
        self._at = name

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, request: Request) -> bool:
        return request in self._requests

    def waiting(self, client: ClientId) -> int:
        return self._counts.get(client, 0)

    def add(self, request: Request) -> None:
        client = request.client
        self._requests[request] = None
        self._counts[client] = self._counts.get(client, 0) + 1
        for view in self._views.values():
            view.add(request)
            if client in self._open:
                (view.open_for_hits if self._open[client] else view.open)(client)

    def remove(self, request: Request) -> None:
        client = request.client
        del self._requests[request]
        self._counts[client] -= 1
        if not self._counts[client]:
            del self._counts[client]
            self._open.pop(client, None)
        for view in self._views.values():
            view.remove(request)

    def hide(self, request: Request) -> None:
        self._views[self._at].hide(request)

    def show_all(self) -> None:
        self._views[self._at].show_all()

    def is_hidden(self, request: Request) -> bool:
        return self._views[self._at].is_hidden(request)

    def open(self, client: ClientId) -> None:
        if client in self._counts:
            self._open[client] = False
            for view in self._views.values():
                view.open(client)

    def open_for_hits(self, client: ClientId) -> None:
        if client in self._counts:
            self._open[client] = True
            for view in self._views.values():
                view.open_for_hits(client)

    def close(self, client: ClientId) -> None:
        self._open.pop(client, None)
        for view in self._views.values():
            view.close(client)

    def best(self) -> Request | None:
        return self._views[self._at].best() if self._requests else None

"""The engines' lists of models, read again while they serve: LoRA adapters come and go in them.

Nobody tells us when. Each list is read with the good probes, at most once a second; and all of them at
once, also at most once a second, when somebody asks for a model that none lists, who is answered
after that, or an engine answers 404.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING

from fairlead.errors import EngineFailed
from fairlead.gateway.probe import Model, read_models

if TYPE_CHECKING:
    from fairlead.gateway.workers import WatchedEngine

# Between two readings of the same list, or of all lists. A list of 1,000 adapters takes an engine and
# us a few milliseconds each.
_INTERVAL_S = 1.0
# Callers wait for it, and so does the next probe.
_PATIENCE_S = 1.0


class Listing:
    """Reads the lists of `watches()`, those that are up, by `ask`; `changed` hears of other names."""

    def __init__(
        self,
        *,
        ask: Callable[["WatchedEngine", float], Awaitable[tuple[int, bytes]]],
        watches: Callable[[], Collection["WatchedEngine"]],
        changed: Callable[["WatchedEngine"], None],
    ) -> None:
        self._ask = ask
        self._watches = watches
        self._changed = changed
        self._next: asyncio.Task[None] | None = None  # a round that has yet to begin
        self._rounds: set[asyncio.Task[None]] = set()
        self._begun_s = float("-inf")  # the last one

    def names(self, watch: "WatchedEngine") -> frozenset[str] | None:
        """What the engine serves; None: it does not say. O(models), of all engines if any were evicted.

        SGLang takes adapters that it has evicted, and lists no longer, in again when it is asked for
        them: so it is, while no other engine lists them.
        """
        if watch.declared is not None:
            return frozenset((watch.declared,))
        names = _names(watch.models)
        if watch.evicted:
            listed = (_names(other.models) for other in self._watches() if other is not watch)
            names |= watch.evicted.difference(*listed)
        return names or None

    def came_up(self, watch: "WatchedEngine", answer: tuple[int, bytes]) -> None:
        """Take the list of one that is not in use yet: what it had before counts no more."""
        watch.models, watch.evicted = read_models(answer), frozenset()
        watch.listed_s = _now()

    async def read(self, watch: "WatchedEngine") -> None:
        """Read the list of one that is up, unless it was a moment ago. Never raises EngineFailed."""
        if _now() - watch.listed_s >= _INTERVAL_S:
            await self._read(watch)

    def again(self) -> asyncio.Task[None]:
        """Done when all lists have been read once more, begun after now. O(1): shared by all who ask."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._read_all())
            self._rounds.add(self._next)
            self._next.add_done_callback(self._rounds.discard)
        return self._next

    def close(self) -> None:
        """Read no more."""
        for task in self._rounds:
            task.cancel()

    # -- inside

    async def _read_all(self) -> None:
        await asyncio.sleep(max(0.0, self._begun_s + _INTERVAL_S - _now()))
        self._next, self._begun_s = None, _now()
        await asyncio.gather(*map(self._read, self._watches()))

    async def _read(self, watch: "WatchedEngine") -> None:
        """What it cannot tell, or tells late, changes nothing: its health is others' business."""
        watch.listed_s = begun_s = _now()
        try:
            models = read_models(await self._ask(watch, _PATIENCE_S))
        except (OSError, ValueError, EngineFailed):
            return
        if not models or watch.listed_s != begun_s:  # it was read again, maybe in another life
            return
        before, names = watch.models, _names(models)
        evictable = {str(model["id"]) for model in before if _may_be_evicted(model)}
        watch.models, watch.evicted = models, (watch.evicted | evictable) - names
        if names != _names(before):
            self._changed(watch)


def _names(models: tuple[Model, ...]) -> frozenset[str]:
    return frozenset(str(model["id"]) for model in models)


def _may_be_evicted(model: Model) -> bool:
    """Whether it is an adapter in SGLang (`--max-loaded-loras`)."""
    return bool(model.get("parent")) and model.get("owned_by") == "sglang"


def _now() -> float:
    return asyncio.get_running_loop().time()

"""The models that each engine serves: `/v1/models`, read again while the engine is up.

Engines announce no changes, but LoRA adapters are loaded and unloaded at run time. Each list is therefore
read after a successful probe, at most once a second. All lists are read together, also at most once a
second, when a request names a model that no engine lists (the request waits for the result), or when an
engine answers 404.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection

import orjson

from fairhit.errors import EngineFailed
from fairhit.gateway.pool.watched_engine import Model, WatchedEngine

# Between two readings of one list, and between two readings of all. A list of 1,000 adapters costs the
# engine and the gateway a few milliseconds each.
_INTERVAL_S = 1.0
# For one list: requests and the engine's next probe wait for it.
_TIMEOUT_S = 1.0


class ModelCatalog:
    """Reads model lists with `fetch` and calls `on_change` when an engine's model names changed."""

    def __init__(
        self,
        *,
        fetch: Callable[[WatchedEngine, bytes, float], Awaitable[tuple[int, bytes]]],
        engines: Callable[[], Collection[WatchedEngine]],  # those that are up
        on_change: Callable[[WatchedEngine], None],
    ) -> None:
        self._fetch = fetch
        self._engines = engines
        self._on_change = on_change
        self._next: asyncio.Task[None] | None = None  # a refresh that has not begun
        self._refreshes: set[asyncio.Task[None]] = set()
        self._begun_s = float("-inf")  # the last refresh

    def names(self, watch: WatchedEngine) -> frozenset[str] | None:
        """Names of the models that the engine serves; None if unknown.

        SGLang (`--max-loaded-loras`) unlists adapters that it has evicted but loads them again on request:
        they count as served unless another engine lists them. O(models), of all engines if any adapter
        was evicted.
        """
        if watch.declared is not None:
            return frozenset((watch.declared,))
        names = _names(watch.models)
        if watch.evicted:
            listed = (_names(other.models) for other in self._engines() if other is not watch)
            names |= watch.evicted.difference(*listed)
        return names or None

    def reset(self, watch: WatchedEngine, answer: tuple[int, bytes]) -> None:
        """Replace the list of an engine that is about to come up; models of its last life are dropped."""
        watch.models, watch.evicted = read_models(answer), frozenset()
        watch.listed_s = _now()

    async def read(self, watch: WatchedEngine) -> None:
        """Read the list of an engine that is up, unless it was read within the last second."""
        if _now() - watch.listed_s >= _INTERVAL_S:
            await self._read(watch)

    def refresh(self) -> asyncio.Task[None]:
        """Task that is done when all lists have been read again, after now. O(1): callers share it."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._read_all())
            self._refreshes.add(self._next)
            self._next.add_done_callback(self._refreshes.discard)
        return self._next

    def close(self) -> None:
        """Cancel all refreshes."""
        for task in self._refreshes:
            task.cancel()

    async def _read_all(self) -> None:
        await asyncio.sleep(max(0.0, self._begun_s + _INTERVAL_S - _now()))
        self._next, self._begun_s = None, _now()
        await asyncio.gather(*map(self._read, self._engines()))

    async def _read(self, watch: WatchedEngine) -> None:
        """Read one list. A failed or empty answer changes nothing: health checks judge the engine."""
        watch.listed_s = begun_s = _now()
        try:
            models = read_models(await self._fetch(watch, b"/v1/models", _TIMEOUT_S))
        except (OSError, ValueError, EngineFailed):
            return
        if not models or watch.listed_s != begun_s:  # read again meanwhile, maybe after a restart
            return
        before, names = watch.models, _names(models)
        evictable = {str(model["id"]) for model in before if _is_evictable(model)}
        watch.models, watch.evicted = models, (watch.evicted | evictable) - names
        if names != _names(before):
            self._on_change(watch)


def read_models(answer: tuple[int, bytes]) -> tuple[Model, ...]:
    """Entries with a name in an answer of /v1/models; empty if the answer is malformed."""
    status, body = answer
    if status != 200:
        return ()
    try:
        listed = orjson.loads(body)["data"]
        orjson.dumps(listed)  # fails on nesting that only loads accepts; the list is served again
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ()
    entries = listed if isinstance(listed, list) else []
    return tuple(
        entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    )


def _names(models: tuple[Model, ...]) -> frozenset[str]:
    return frozenset(str(model["id"]) for model in models)


def _is_evictable(model: Model) -> bool:
    """True for a LoRA adapter of SGLang."""
    return bool(model.get("parent")) and model.get("owned_by") == "sglang"


def _now() -> float:
    return asyncio.get_running_loop().time()

"""The nodes of SGLang's tree in Python, which say by themselves what is stored and evicted.

Integration points (SGLang 0.5.23), of `RadixCache` and of `UnifiedTreeCore`:

    kv_events     `record_store`, `record_remove` and `record_all_cleared`, called for each node that comes
                  and goes, whether or not anybody wants KV events
    root_node     nodes with `children`, `parent`, `key` (a `RadixKey`) and `evicted`
    RadixKey      `token_ids`, `extra_key`, `cache_salt`, `is_bigram`, `child_key_at`, `match_at`
"""

from array import array
from typing import Any, Protocol

from fairhit.core.cache.token_runs import Runs
from fairhit.engines.sglang.radix.prompts import Namespace, to_units
from fairhit.errors import ConfigError

# Where a KV event says that something is on the device; SGLang's StorageMedium.GPU, or nothing.
_ON_DEVICE = (None, "GPU")


class Tree(Protocol):
    """Who is told: see `EngineTree`."""

    page_len: int

    def changes(self) -> bool:
        """Whether anybody wants to know what."""
        ...

    def grew(self, path: Runs) -> None:
        """All of it is cached."""
        ...

    def shrank(self, path: Runs, before: int) -> None:
        """No more than that is."""
        ...

    def cleared(self) -> None:
        """Nothing is."""
        ...


class PythonNodes:
    """No copy of them: a path is read when somebody wants it."""

    def __init__(self, core: Any, tree: Tree) -> None:
        self._core, self._tree = core, tree
        self._hook(core.kv_events)

    @property
    def is_exact(self) -> bool:
        """See `EngineTree`."""
        return len(getattr(self._core, "components", (None,))) == 1 and not self._core.is_eagle

    def match_len(self, key: Any) -> int:
        """Tokens of it that are on the device, in whole pages. O(match)."""
        node, at, page = self._core.root_node, 0, self._tree.page_len
        if getattr(self._core, "is_eagle", False):
            key.is_bigram = True
        while at + page <= len(key):
            child = node.children.get(key.child_key_at(at, page))
            if child is None or child.evicted:
                break
            matched: int = child.key.match_at(key, at, page)
            at += matched
            if matched < len(child.key):
                break
            node = child
        return at

    def _hook(self, events: Any) -> None:
        """Be told what the engine's own recorder is told, before it decides whether it cares."""
        store, remove, clear = self._stock(events)

        def record_store(node: Any, medium: Any = None, **more: Any) -> None:
            if _is_on_device(medium):
                self._stored(node)
            store(node, medium, **more)

        def record_remove(node: Any, medium: Any = None) -> None:
            if _is_on_device(medium):
                self._removed(node)
            remove(node, medium)

        def record_all_cleared() -> None:
            self._tree.cleared()
            clear()

        events.record_store, events.record_remove = record_store, record_remove
        events.record_all_cleared = record_all_cleared

    def _stock(self, events: Any) -> tuple[Any, Any, Any]:
        """The recorder's methods. Raises ConfigError for a tree that does not say what it does."""
        found = [
            getattr(events, name, None)
            for name in ("record_store", "record_remove", "record_all_cleared")
        ]
        if None in found or not hasattr(self._core, "root_node"):
            raise ConfigError(
                f"--schedule-policy: the cache {type(self._core).__name__} does not tell what it stores "
                "and evicts; take SGLang's own radix cache, or --disable-radix-cache"
            )
        return found[0], found[1], found[2]

    def _stored(self, node: Any) -> None:
        """All up to the end of `node` is cached. O(path) if anybody waits."""
        if self._tree.changes():
            self._tree.grew(self._path(node))

    def _removed(self, node: Any) -> None:
        """Of what led to the end of `node` only what is before it is cached. O(path) if anybody waits."""
        if self._tree.changes():
            path = self._path(node)
            self._tree.shrank(path, path.length - len(node.key) // self._tree.page_len)

    def _path(self, node: Any) -> Runs:
        """From the root to the end of `node`, which its later splits do not change. O(path)."""
        stretches = []
        key = node.key
        while node.parent is not None:
            ids = node.key.token_ids[: len(node.key)]  # of pairs, the last one's second is left out
            stretches.append(ids)
            node = node.parent
        tokens = array("q")
        for ids in reversed(stretches):
            tokens += ids
        return to_units(tokens, self._tree.page_len, Namespace(key.extra_key, key.cache_salt))


def _is_on_device(medium: Any) -> bool:
    return getattr(medium, "value", medium) in _ON_DEVICE

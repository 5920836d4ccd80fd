"""The nodes of SGLang's tree in Python, which report by themselves what is stored and evicted.

Integration points (SGLang 0.5.23), of `RadixCache` and of `UnifiedTreeCore`:

    kv_events     `record_store`, `record_remove` and `record_all_cleared`, called for each node that is
                  stored or evicted, even with KV events off
    root_node     nodes with `children`, `parent`, `key` (a `RadixKey`) and `evicted`
    RadixKey      `token_ids`, `extra_key`, `cache_salt`, `is_bigram`, `child_key_at`, `match_at`
"""

from array import array
from typing import Any, Protocol

from fairhit.core.cache.token_runs import Runs
from fairhit.engines.sglang.radix.prompts import Namespace, to_units
from fairhit.errors import ConfigError

# The media of KV events that mean the device; SGLang's StorageMedium.GPU, or none given.
_ON_DEVICE = (None, "GPU")


class TreeChanges(Protocol):
    """The receiver of a tree's changes: `SglangTreeView`."""

    page_len: int

    def on_change(self) -> bool:
        """Note that the tree has changed; return whether details of the change are wanted."""
        ...

    def grew(self, path: Runs) -> None:
        """Report that all of `path` is cached."""
        ...

    def shrank(self, path: Runs, before: int) -> None:
        """Report that of `path` no more than `before` units are cached."""
        ...

    def cleared(self) -> None:
        """Report that the cache is empty."""
        ...


class PythonNodes:
    """A view of the nodes without a copy: a path is built only if its change is wanted."""

    def __init__(self, core: Any, tree: TreeChanges) -> None:
        self._core, self._tree = core, tree
        self._hook(core.kv_events)

    @property
    def is_exact(self) -> bool:
        """True if a match equals the hit: one kind of attention, no pairs of tokens."""
        return len(getattr(self._core, "components", (None,))) == 1 and not self._core.is_eagle

    def match_len(self, key: Any) -> int:
        """Return how many tokens of a key are on the device, in whole pages. O(match)."""
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

    def leaf(self, node: Any) -> tuple[Runs, int]:
        """Return the path to the end of a leaf, given as a node or its number, and where the leaf begins."""
        if isinstance(node, int):
            node = self._core.node_by_id(node)
        path = self._path(node)
        return path, path.length - len(node.key) // self._tree.page_len

    def _hook(self, events: Any) -> None:
        """Wrap the methods of the engine's KV event recorder, which are called with KV events off, too."""
        store, remove, clear = self._stock(events)

        def record_store(node: Any, medium: Any = None, **more: Any) -> None:
            if _is_on_device(medium):
                self._on_stored(node)
            store(node, medium, **more)

        def record_remove(node: Any, medium: Any = None) -> None:
            if _is_on_device(medium):
                self._on_removed(node)
            remove(node, medium)

        def record_all_cleared() -> None:
            self._tree.cleared()
            clear()

        events.record_store, events.record_remove = record_store, record_remove
        events.record_all_cleared = record_all_cleared

    def _stock(self, events: Any) -> tuple[Any, Any, Any]:
        """Return the recorder's methods. Raises ConfigError for a tree that does not report its changes."""
        found = [
            getattr(events, name, None)
            for name in ("record_store", "record_remove", "record_all_cleared")
        ]
        if None in found or not hasattr(self._core, "root_node"):
            raise ConfigError(
                f"--schedule-policy: the cache {type(self._core).__name__} does not report what it "
                "stores and evicts; use SGLang's own radix cache, or --disable-radix-cache"
            )
        return found[0], found[1], found[2]

    def _on_stored(self, node: Any) -> None:
        """Report that the path up to the end of `node` is cached. O(path) if a request waits."""
        if self._tree.on_change():
            self._tree.grew(self._path(node))

    def _on_removed(self, node: Any) -> None:
        """Report that of the path to `node` only what is before `node` is cached. O(path) if one waits."""
        if self._tree.on_change():
            self._tree.shrank(*self.leaf(node))

    def _path(self, node: Any) -> Runs:
        """Return the path from the root to the end of `node`, which later splits do not change. O(path)."""
        edges = []
        key = node.key
        while node.parent is not None:
            ids = node.key.token_ids[: len(node.key)]  # of pairs, the last one's second is left out
            edges.append(ids)
            node = node.parent
        tokens = array("q")
        for ids in reversed(edges):
            tokens += ids
        return to_units(tokens, self._tree.page_len, Namespace(key.extra_key, key.cache_salt))


def _is_on_device(medium: Any) -> bool:
    return getattr(medium, "value", medium) in _ON_DEVICE

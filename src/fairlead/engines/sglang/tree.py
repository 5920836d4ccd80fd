"""SGLang's radix tree, followed change by change: no waiting prompt is ever matched again.

Integration points (SGLang 0.5.23), of `UnifiedRadixCache` with its Python core and of `RadixCache`:

    kv_events     `record_store`, `record_remove` and `record_all_cleared`, called for each node that comes
                  and goes, whether or not anybody wants KV events; of a unified cache its `tree_core` has it
    root_node     nodes with `children`, `parent`, `key` (a `RadixKey`) and `evicted`
    RadixKey      `token_ids`, `extra_key`, `cache_salt`, `is_bigram`, `child_key_at`, `match_at`

What counts is the KV on the device. The Rust core tells nobody what it evicts, so the Python core is
asked for (`PYTHON_CORE`). With EAGLE the tree counts pairs of tokens: a match may be taken as longer by
one than it is. With sliding windows or Mamba states a hit may be shorter than the prefix that is there.
In all these cases the order is affected, never what is charged.
"""

from array import array
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from sglang.srt.mem_cache.radix_cache import RadixKey

from fairlead.core.radix_tree import TreeListener
from fairlead.core.request import Unit
from fairlead.core.runs import Runs
from fairlead.engines.sglang.prompts import Namespace, to_tokens, to_units
from fairlead.errors import ConfigError

CORE_VARIABLE = "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"
PYTHON_CORE = "python"
# Where a KV event says that something is on the device; SGLang's StorageMedium.GPU, or nothing.
_ON_DEVICE = (None, "GPU")


def want_python_core(environ: MutableMapping[str, str]) -> None:
    """Before the cache is made. Raises ConfigError if the operator wants another core."""
    if environ.setdefault(CORE_VARIABLE, PYTHON_CORE) != PYTHON_CORE:
        raise ConfigError(
            f"{CORE_VARIABLE}: expected {PYTHON_CORE} with a fair --schedule-policy, as other cores "
            f"do not tell what they evict; got {environ[CORE_VARIABLE]!r}"
        )


class EngineTree:
    """The reading half of a `RadixTree` over the engine's own, without a copy of it.

    `is_wanted` says whether anybody waits: only then is a change worth telling. `on_clear` is called if
    the cache was emptied while somebody did.
    """

    def __init__(
        self, cache: Any, *, is_wanted: Callable[[], bool], on_clear: Callable[[], None]
    ) -> None:
        self.page_len: int = cache.page_size
        self.block_size = self.page_len  # tokens in one unit of a prompt
        # A disabled cache shares nothing, and never will.
        self._core: Any = (
            None if getattr(cache, "disable", False) else getattr(cache, "tree_core", cache)
        )
        self._is_wanted, self._on_clear = is_wanted, on_clear
        self._listeners: list[TreeListener] = []
        self._asked: Runs | None = None  # the last question, while its answer is true
        self._answer = 0
        if self._core is not None:
            self._hook(self._core.kv_events)

    def listen(self, listener: TreeListener) -> None:
        """From now on `listener` hears of every change."""
        self._listeners.append(listener)

    @property
    def is_exact(self) -> bool:
        """Whether a match here is what a hit will be: one kind of attention, no pairs of tokens."""
        if self._core is None:
            return True
        return len(getattr(self._core, "components", (None,))) == 1 and not self._core.is_eagle

    def units(self, tokens: Sequence[int], extra_key: str | None, salt: str | None) -> Runs:
        """A prompt in units of the tree. O(1) without pages and namespaces, else O(tokens)."""
        return to_units(tokens, self.page_len, Namespace(extra_key, salt or None))

    def match(self, tokens: Runs, /) -> tuple[Any, int]:
        """How many units of a prompt are cached. Pure: no node is split, none used. O(match)."""
        if tokens is not self._asked:
            self._asked, self._answer = tokens, self._match(tokens)
        return None, self._answer

    def match_len(self, tokens: Sequence[Unit], /) -> int:
        """See `match`."""
        return self.match(Runs.of(tokens))[1]

    def _match(self, tokens: Runs) -> int:
        if self._core is None or not tokens.length:
            return 0
        flat, (extra_key, salt) = to_tokens(tokens, self.page_len)
        key = RadixKey(flat, extra_key, cache_salt=salt)
        node, at, page = self._core.root_node, 0, self.page_len
        if getattr(self._core, "is_eagle", False):
            key.is_bigram = True
        while at + page <= len(key):
            child = node.children.get(key.child_key_at(at, page))
            if child is None or child.evicted:
                break
            matched = child.key.match_at(key, at, page)
            at += matched
            if matched < len(child.key):
                break
            node = child
        return at // page

    # -- what changes ---------------------------------------------------------------------------

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
            self._cleared()
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
        self._asked = None
        if self._listeners and self._is_wanted():
            path = self._path(node)
            for listener in self._listeners:
                listener.grew(path, path.length)

    def _removed(self, node: Any) -> None:
        """Of what led to the end of `node` only what is before it is cached. O(path) if anybody waits."""
        self._asked = None
        if self._listeners and self._is_wanted():
            path = self._path(node)
            before = path.length - len(node.key) // self.page_len
            for listener in self._listeners:
                listener.shrank(path, max(0, before))

    def _cleared(self) -> None:
        """All is gone; a paused engine may be told so while somebody waits."""
        self._asked = None
        if self._listeners and self._is_wanted():
            self._on_clear()

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
        return to_units(tokens, self.page_len, Namespace(key.extra_key, key.cache_salt))


def _is_on_device(medium: Any) -> bool:
    return getattr(medium, "value", medium) in _ON_DEVICE

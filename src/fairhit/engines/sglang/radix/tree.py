"""A view of SGLang's radix tree that reports each change, so that no waiting prompt is matched twice.

Integration points (SGLang 0.5.23): `UnifiedRadixCache`, whose tree is its `tree_core`, in Rust or in Python;
`RadixCache`, which is a tree in Python itself. `rust_nodes.py` and `python_nodes.py` observe the changes.

Only KV on the device counts. With EAGLE the tree counts pairs of tokens: a match may be taken as one token
longer than it is. With sliding windows or Mamba states a hit may be shorter than the cached prefix. In all
these cases the order of requests is affected, never their charges.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sglang.srt.mem_cache.radix_cache import RadixKey

from fairhit.core.cache.radix_tree import TreeListener, WantedLen
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Unit
from fairhit.engines.sglang.radix.eviction import evict_wanted_last
from fairhit.engines.sglang.radix.prompts import Namespace, to_tokens, to_units
from fairhit.engines.sglang.radix.python_nodes import PythonNodes
from fairhit.engines.sglang.radix.rust_nodes import RustNodes, is_rust


class SglangTreeView:
    """The read-only half of a `RadixTree`, over SGLang's own tree.

    `is_wanted` returns whether a request waits: only then are changes reported. `on_clear` is called if the
    cache is emptied while one waits.
    """

    def __init__(
        self, cache: Any, *, is_wanted: Callable[[], bool], on_clear: Callable[[], None]
    ) -> None:
        self.page_len: int = cache.page_size
        self.block_size = self.page_len  # tokens in one unit of a prompt
        self._is_wanted, self._on_clear = is_wanted, on_clear
        self._listeners: list[TreeListener] = []
        self._last_prompt: Runs | None = None  # with its match, until the tree changes
        self._last_match = 0
        self._nodes: PythonNodes | RustNodes | None = None
        self._core: Any = getattr(cache, "tree_core", cache)
        self._wanted_len: WantedLen | None = None
        self.cannot_keep = False  # `keep` was called in vain
        # A disabled cache never shares a prefix.
        if not getattr(cache, "disable", False):
            rust = is_rust(self._core)
            self._nodes = RustNodes(self._core, self) if rust else PythonNodes(self._core, self)

    def listen(self, listener: TreeListener) -> None:
        """Report every change to `listener` from now on."""
        self._listeners.append(listener)

    def keep(self, wanted_len: WantedLen) -> None:
        """Evict what waiting prompts want last, if the cache can."""
        self._wanted_len = wanted_len
        if self._nodes is not None:
            self.cannot_keep = not evict_wanted_last(self._core, self._is_leaf_wanted)

    def _is_leaf_wanted(self, leaf: Any) -> bool:
        """Return whether a waiting prompt begins with half of a leaf or more. O(path) while one waits."""
        if self._nodes is None or self._wanted_len is None or not self._is_wanted():
            return False
        path, start = self._nodes.leaf(leaf)
        return 2 * (self._wanted_len(path, path.length) - start) >= path.length - start

    @property
    def is_exact(self) -> bool:
        """True if a match equals the hit: the tree has one kind of attention and no pairs of tokens."""
        return self._nodes is None or self._nodes.is_exact

    def units(self, tokens: Sequence[int], extra_key: str | None, salt: str | None) -> Runs:
        """Return a prompt in units of the tree. O(1) without pages and namespaces, else O(tokens)."""
        return to_units(tokens, self.page_len, Namespace(extra_key, salt or None))

    def match(self, tokens: Runs, /) -> tuple[Any, int]:
        """Return how many units of a prompt are cached. Pure: no node is split or used. O(match)."""
        if tokens is not self._last_prompt:
            self._last_prompt, self._last_match = tokens, self._match(tokens)
        return None, self._last_match

    def match_len(self, tokens: Sequence[Unit], /) -> int:
        """Return how many units of a prompt are cached; see `match`."""
        return self.match(Runs.of(tokens))[1]

    def _match(self, tokens: Runs) -> int:
        if self._nodes is None or not tokens.length:
            return 0
        flat, (extra_key, salt) = to_tokens(tokens)
        return self._nodes.match_len(RadixKey(flat, extra_key, cache_salt=salt)) // self.page_len

    # -- changes, as the nodes report them -------------------------------------------------------

    def on_change(self) -> bool:
        """Drop the last match, as the tree has changed; return whether details of the change are wanted."""
        self._last_prompt = None
        return bool(self._listeners) and self._is_wanted()

    def grew(self, path: Runs) -> None:
        """Report that all of `path` is cached."""
        for listener in self._listeners:
            listener.grew(path, path.length)

    def shrank(self, path: Runs, before: int) -> None:
        """Report that of `path` no more than `before` units are cached."""
        for listener in self._listeners:
            listener.shrank(path, max(0, before))

    def cleared(self) -> None:
        """Report that the cache is empty; SGLang may empty it while requests wait, when it is paused."""
        if self.on_change():
            self._on_clear()

"""SGLang's radix tree, followed change by change: no waiting prompt is ever matched again.

Integration points (SGLang 0.5.23): `UnifiedRadixCache`, whose tree is its `tree_core`, in Rust or in Python;
`RadixCache`, which is a tree in Python itself. How each is heard is in `rust_nodes.py` and `python_nodes.py`.

What counts is the KV on the device. With EAGLE the tree counts pairs of tokens: a match may be taken as
longer by one than it is. With sliding windows or Mamba states a hit may be shorter than the prefix that
is there. In all these cases the order is affected, never what is charged.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sglang.srt.mem_cache.radix_cache import RadixKey

from fairhit.core.cache.radix_tree import TreeListener
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Unit
from fairhit.engines.sglang.radix.prompts import Namespace, to_tokens, to_units
from fairhit.engines.sglang.radix.python_nodes import PythonNodes
from fairhit.engines.sglang.radix.rust_nodes import RustNodes, is_rust


class EngineTree:
    """The reading half of a `RadixTree` over the engine's own.

    `is_wanted` says whether anybody waits: only then is a change worth telling. `on_clear` is called if
    the cache was emptied while somebody did.
    """

    def __init__(
        self, cache: Any, *, is_wanted: Callable[[], bool], on_clear: Callable[[], None]
    ) -> None:
        self.page_len: int = cache.page_size
        self.block_size = self.page_len  # tokens in one unit of a prompt
        self._is_wanted, self._on_clear = is_wanted, on_clear
        self._listeners: list[TreeListener] = []
        self._asked: Runs | None = None  # the last question, while its answer is true
        self._answer = 0
        self._nodes: PythonNodes | RustNodes | None = None
        # A disabled cache shares nothing, and never will.
        if not getattr(cache, "disable", False):
            core = getattr(cache, "tree_core", cache)
            self._nodes = RustNodes(core, self) if is_rust(core) else PythonNodes(core, self)

    def listen(self, listener: TreeListener) -> None:
        """From now on `listener` hears of every change."""
        self._listeners.append(listener)

    @property
    def is_exact(self) -> bool:
        """Whether a match here is what a hit will be: one kind of attention, no pairs of tokens."""
        return self._nodes is None or self._nodes.is_exact

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
        if self._nodes is None or not tokens.length:
            return 0
        flat, (extra_key, salt) = to_tokens(tokens)
        return self._nodes.match_len(RadixKey(flat, extra_key, cache_salt=salt)) // self.page_len

    # -- what changes, as the nodes tell it ------------------------------------------------------

    def changes(self) -> bool:
        """Something did: what was asked is no longer true. Whether anybody wants to know more."""
        self._asked = None
        return bool(self._listeners) and self._is_wanted()

    def grew(self, path: Runs) -> None:
        """All of `path` is cached."""
        for listener in self._listeners:
            listener.grew(path, path.length)

    def shrank(self, path: Runs, before: int) -> None:
        """Of `path` only `before` units are cached, if that many."""
        for listener in self._listeners:
            listener.shrank(path, max(0, before))

    def cleared(self) -> None:
        """All is gone; a paused engine may be told so while somebody waits."""
        if self.changes():
            self._on_clear()

"""The nodes of SGLang's tree in Rust, observed from outside, as that tree does not report evictions.

SGLang drives the tree node by node from Python, by node numbers. So the tokens of each node are recorded
under the node's number when the node is stored, and looked up when the node is evicted.

Integration points (SGLang 0.5.23), of `RustUnifiedTreeCore` with full attention only and without a host
cache; with anything else SGLang is made to use the tree in Python (`choose_core`):

    begin_insert, resume_insert   the step with a `result` is the last; its `last_device_node` is the end
    evict_device_leaf             called for each node whose KV is evicted from the device
    reset                         empties the tree
    collect_path_info             numbers and positions of the nodes from the root to a node
    match_full_device_prefix      matches without splitting a node or marking it as used

A split leaves a node's number to its lower half. The upper half gets a new number, and its tokens are among
those recorded for a node below it.
"""

from array import array
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NamedTuple

from fairhit.core.cache.token_runs import Runs
from fairhit.engines.sglang.radix.prompts import NO_NAMESPACE, Namespace, to_units
from fairhit.engines.sglang.radix.python_nodes import TreeChanges
from fairhit.errors import ConfigError

CORE_VARIABLE = "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"
OURS, RUST, PYTHON = "fairhit", "rust", "python"  # its values
_USED = (
    "begin_insert", "resume_insert", "evict_device_leaf", "reset", "collect_path_info",
    "match_full_device_prefix",
)  # fmt: skip


def choose_core(environ: MutableMapping[str, str], *, has_host_cache: bool) -> None:
    """Keep SGLang's default tree, in Rust, where it can be observed; else choose the tree in Python.

    Called before the cache is made; a value that the operator has set is kept. Which KV is cached is known
    only when SGLang makes the cache: so the variable is set to a backend of ours, which chooses then.
    """
    try:
        from sglang.srt.environ import envs
        from sglang.srt.mem_cache.unified_cache import tree_core_registry as registry
    except ImportError:
        return  # an older version, with the tree in Python only
    value = environ.get(CORE_VARIABLE)
    # The parent process may have set our backend.
    if value != OURS and (value or getattr(envs, CORE_VARIABLE).get() != RUST):
        return
    environ[CORE_VARIABLE] = PYTHON if has_host_cache else OURS
    if registry.get_tree_core_factory(OURS) is None:

        def create(params: Any, components: Any) -> Any:
            is_plain = len(params.tree_components) == 1 and not params.is_eagle
            name = RUST if is_plain and _has_path_info() else PYTHON
            return registry.create_tree_core(name, params, components)

        registry.register_tree_core_backend(OURS, create)


def _has_path_info() -> bool:
    """Return whether the tree in Rust lists the nodes of a path; 0.5.21 is the last that does not."""
    from sglang.srt.mem_cache.unified_cache import unified_tree_core_interface as interface

    return hasattr(interface.UnifiedTreeCoreInterface, "collect_path_info")


def is_rust(core: Any) -> bool:
    """Return whether the tree is the one in Rust, whose nodes have numbers only."""
    return type(core).__name__ == "RustUnifiedTreeCore"


class _RecordedEdge(NamedTuple):
    """The tokens of a node when it was first seen; splits take tokens from both ends."""

    start: int
    tokens: "array[int]"
    namespace: Namespace


class RustNodes:
    """The recorded tokens of each node: 8 bytes for each cached token, and some 300 for each node."""

    is_exact = True

    def __init__(self, core: Any, tree: TreeChanges) -> None:
        self._core, self._tree = core, tree
        self._edges: dict[int, _RecordedEdge] = {}  # by the node's number
        self._key: Any = None  # of the insertion under way
        self._require_observable()
        core.begin_insert = self._around_begin(core.begin_insert)
        core.resume_insert = self._around_step(core.resume_insert)
        core.evict_device_leaf = self._around_eviction(core.evict_device_leaf)
        core.reset = self._around_reset(core.reset)

    def match_len(self, key: Any) -> int:
        """Return how many tokens of a key are on the device, in whole pages. O(match)."""
        return int(self._core.match_full_device_prefix(key)[0])

    def leaf(self, node_id: int) -> tuple[Runs, int]:
        """Return the path to the end of a leaf, and where the leaf begins. O(path)."""
        path = self._core.collect_path_info([node_id])[0]
        self._record_upper_halves(path)
        return self._tokens(path)

    def _require_observable(self) -> None:
        """Raises ConfigError for a tree that stores and evicts in ways that cannot be observed here."""
        is_known = all(callable(getattr(self._core, name, None)) for name in _USED)
        is_plain = len(self._core.tree_components) == 1 and not self._core.is_eagle
        if not (is_known and is_plain) or self._core.enable_hicache:
            raise ConfigError(
                f"{CORE_VARIABLE}: rust cannot be observed with what this server caches; "
                f"leave it unset, or set it to {PYTHON}"
            )

    def _around_begin(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        def begin_insert(params: Any) -> Any:
            self._key = params.key
            return self._after_step(stock(params))

        return begin_insert

    def _around_step(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        return lambda: self._after_step(stock())

    def _around_eviction(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        def evict_device_leaf(node_id: int, *args: Any, **kwargs: Any) -> Any:
            evicted = self._before_eviction(node_id)
            result = stock(node_id, *args, **kwargs)
            self._edges.pop(node_id, None)
            if evicted is not None and self._tree.on_change():
                self._tree.shrank(*evicted)
            return result

        return evict_device_leaf

    def _around_reset(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        def reset() -> None:
            stock()
            self._edges.clear()
            self._tree.cleared()

        return reset

    def _after_step(self, step: Any) -> Any:
        """After the last step of an insertion, record new nodes and report the key as cached.

        O(depth), O(key) if a request waits.
        """
        if step.result is None:
            return step
        key, self._key = self._key, None
        namespace, tokens = Namespace(key.extra_key, key.cache_salt), key.raw_token_ids()
        end = 0
        for node in self._core.collect_path_info([step.result.last_device_node])[0]:
            end = node.path_end
            if node.node_id not in self._edges:
                edge = _RecordedEdge(node.path_start, tokens[node.path_start : end], namespace)
                self._edges[node.node_id] = edge
        if self._tree.on_change() and end:
            self._tree.grew(to_units(tokens[:end], self._tree.page_len, namespace))
        return step

    def _before_eviction(self, node_id: int) -> tuple[Runs, int] | None:
        """Return the path to a node about to be evicted, and how much of it stays; None if no request waits.

        O(depth), O(path) if a request waits.
        """
        path = self._core.collect_path_info([node_id])[0]
        self._record_upper_halves(path)
        return self._tokens(path) if self._tree.on_change() else None

    def _tokens(self, path: Sequence[Any]) -> tuple[Runs, int]:
        """Return the tokens of a path in units, and where its last node begins. O(path)."""
        namespace, tokens = NO_NAMESPACE, array("q")
        for node in path:
            start, known, namespace = self._edges[node.node_id]
            tokens += known[node.path_start - start : node.path_end - start]
        page_len = self._tree.page_len
        return to_units(tokens, page_len, namespace), path[-1].path_start // page_len

    def _record_upper_halves(self, path: Sequence[Any]) -> None:
        """Record the upper halves of split nodes from their lower halves, which may be removed next."""
        below = self._edges[path[-1].node_id]
        for node in reversed(path):
            known = self._edges.get(node.node_id)
            if known is None:
                start, tokens, namespace = below
                cut = tokens[node.path_start - start : node.path_end - start]
                assert node.path_start >= start and len(cut) == node.path_end - node.path_start
                self._edges[node.node_id] = _RecordedEdge(node.path_start, cut, namespace)
            else:
                below = known

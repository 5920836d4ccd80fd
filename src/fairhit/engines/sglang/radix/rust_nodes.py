"""The nodes of SGLang's tree in Rust, followed from outside: it does not say what it evicts.

But SGLang drives it node by node from Python, and by numbers. So what is stored is written down by the
node's number, and looked up when that number is to be evicted.

Integration points (SGLang 0.5.23), of `RustUnifiedTreeCore` with full attention only and without a host
cache; with anything else the tree in Python is taken (`choose_core`):

    begin_insert, resume_insert   the step with a `result` is the last; its `last_device_node` is the end
    evict_device_leaf             called for each node whose KV leaves the device
    reset                         all is gone
    collect_path_info             numbers and places of the nodes from the root to one
    match_full_device_prefix      looks without splitting a node or marking it as used

A node that is split keeps its number for its lower half. The upper half's is new, and its tokens are
among those that were written down for a node below it.
"""

from array import array
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, NamedTuple

from fairhit.core.cache.token_runs import Runs
from fairhit.engines.sglang.radix.prompts import Namespace, to_units
from fairhit.engines.sglang.radix.python_nodes import Tree
from fairhit.errors import ConfigError

CORE_VARIABLE = "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"
OURS, RUST, PYTHON = "fairhit", "rust", "python"  # what that may be
_USED = (
    "begin_insert", "resume_insert", "evict_device_leaf", "reset", "collect_path_info",
    "match_full_device_prefix",
)  # fmt: skip


def choose_core(environ: MutableMapping[str, str], *, has_host_cache: bool) -> None:
    """Before the cache is made: SGLang's default, in Rust, where it can be followed, else Python's.

    What the operator has set stays. What is cached is known only when the cache is made: so SGLang is
    given a name of ours, by which it asks.
    """
    try:
        from sglang.srt.environ import envs
        from sglang.srt.mem_cache.unified_cache import tree_core_registry as registry
    except ImportError:
        return  # an older version, which has the one in Python only
    said = environ.get(CORE_VARIABLE)
    # Our name, too, if the process that started this one wrote it.
    if said != OURS and (said or getattr(envs, CORE_VARIABLE).get() != RUST):
        return
    environ[CORE_VARIABLE] = PYTHON if has_host_cache else OURS
    if registry.get_tree_core_factory(OURS) is None:

        def create(params: Any, components: Any) -> Any:
            is_plain = len(params.tree_components) == 1 and not params.is_eagle
            name = RUST if is_plain and _has_paths() else PYTHON
            return registry.create_tree_core(name, params, components)

        registry.register_tree_core_backend(OURS, create)


def _has_paths() -> bool:
    """0.5.21 is the last whose tree in Rust does not say which nodes lead to one."""
    from sglang.srt.mem_cache.unified_cache import unified_tree_core_interface as interface

    return hasattr(interface.UnifiedTreeCoreInterface, "collect_path_info")


def is_rust(core: Any) -> bool:
    """Whether the tree's nodes are known by numbers only."""
    return type(core).__name__ == "RustUnifiedTreeCore"


class _Stretch(NamedTuple):
    """The tokens of a node when it was first seen; splits take from both ends."""

    start: int
    tokens: "array[int]"
    namespace: Namespace


class RustNodes:
    """What each of them holds: 8 bytes for each cached token, and some 300 for each node."""

    is_exact = True

    def __init__(self, core: Any, tree: Tree) -> None:
        self._core, self._tree = core, tree
        self._stretches: dict[int, _Stretch] = {}  # by the node's number
        self._key: Any = None  # of the insertion under way
        self._refuse()
        core.begin_insert = self._around_begin(core.begin_insert)
        core.resume_insert = self._around_step(core.resume_insert)
        core.evict_device_leaf = self._around_eviction(core.evict_device_leaf)
        core.reset = self._around_reset(core.reset)

    def match_len(self, key: Any) -> int:
        """Tokens of it that are on the device, in whole pages. O(match)."""
        return int(self._core.match_full_device_prefix(key)[0])

    def _refuse(self) -> None:
        """Raises ConfigError for what it stores and evicts in ways that are not followed here."""
        is_known = all(callable(getattr(self._core, name, None)) for name in _USED)
        is_plain = len(self._core.tree_components) == 1 and not self._core.is_eagle
        if not (is_known and is_plain) or self._core.enable_hicache:
            raise ConfigError(
                f"{CORE_VARIABLE}: rust cannot be followed with what this server caches; "
                f"leave it unset, or set it to {PYTHON}"
            )

    def _around_begin(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        def begin_insert(params: Any) -> Any:
            self._key = params.key
            return self._step(stock(params))

        return begin_insert

    def _around_step(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        return lambda: self._step(stock())

    def _around_eviction(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        def evict_device_leaf(node_id: int, *args: Any, **kwargs: Any) -> Any:
            gone = self._before(node_id)
            result = stock(node_id, *args, **kwargs)
            self._stretches.pop(node_id, None)
            if gone is not None and self._tree.changes():
                self._tree.shrank(*gone)
            return result

        return evict_device_leaf

    def _around_reset(self, stock: Callable[..., Any]) -> Callable[..., Any]:
        def reset() -> None:
            stock()
            self._stretches.clear()
            self._tree.cleared()

        return reset

    def _step(self, step: Any) -> Any:
        """After the last one all of the key is cached. O(depth), O(key) if anybody waits."""
        if step.result is None:
            return step
        key, self._key = self._key, None
        namespace, tokens = Namespace(key.extra_key, key.cache_salt), key.raw_token_ids()
        end = 0
        for node in self._core.collect_path_info([step.result.last_device_node])[0]:
            end = node.path_end
            if node.node_id not in self._stretches:
                stretch = _Stretch(node.path_start, tokens[node.path_start : end], namespace)
                self._stretches[node.node_id] = stretch
        if self._tree.changes() and end:
            self._tree.grew(to_units(tokens[:end], self._tree.page_len, namespace))
        return step

    def _before(self, node_id: int) -> tuple[Runs, int] | None:
        """The path to a node that is about to go, and what will be left of it; None if nobody waits.

        O(depth), O(path) if anybody waits.
        """
        path = self._core.collect_path_info([node_id])[0]
        self._learn(path)
        if not self._tree.changes():
            return None
        tokens = array("q")
        for node in path:
            start, known, namespace = self._stretches[node.node_id]
            tokens += known[node.path_start - start : node.path_end - start]
        page_len = self._tree.page_len
        return to_units(tokens, page_len, namespace), path[-1].path_start // page_len

    def _learn(self, path: Sequence[Any]) -> None:
        """Upper halves of nodes that were split: what is written down for the lower one may go with it."""
        below = self._stretches[path[-1].node_id]
        for node in reversed(path):
            known = self._stretches.get(node.node_id)
            if known is None:
                start, tokens, namespace = below
                cut = tokens[node.path_start - start : node.path_end - start]
                assert node.path_start >= start and len(cut) == node.path_end - node.path_start
                self._stretches[node.node_id] = _Stretch(node.path_start, cut, namespace)
            else:
                below = known

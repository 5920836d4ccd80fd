"""What is known of SGLang's tree is what SGLang itself would find, after whatever happened to it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.mem_cache.unified_cache import tree_core_registry as registry

from fairlead.core.request import Request
from fairlead.core.runs import Runs
from fairlead.core.watch import waiting_index
from fairlead.engines.sglang.prompts import Namespace, to_units
from fairlead.engines.sglang.rust_nodes import CORE_VARIABLE, OURS, choose_core
from fairlead.engines.sglang.tree import EngineTree
from fairlead.errors import ConfigError
from tests.sglang.caches import RealCache

KINDS = ["rust", "unified", "radix"]


def real_cache(kind: str, page_len: int = 1) -> RealCache:
    """SGLang's default with its tree in Rust or in Python, or the one it had before."""
    if kind == "rust":
        return RealCache("unified", page_len=page_len, core="rust")
    return RealCache(kind, page_len=page_len)


def followed(cache: RealCache, **more: object) -> EngineTree:
    settings = {"is_wanted": lambda: True, "on_clear": lambda: None, **more}
    return EngineTree(cache.tree, **settings)  # type: ignore[arg-type]


# Few tokens and short stretches of them, so that prompts part at every place there is.
PROMPTS = st.lists(st.integers(0, 2), min_size=1, max_size=12)
NAMESPACES = st.sampled_from([None, "adapter"])
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), PROMPTS, NAMESPACES),
        st.tuples(st.just("evict"), st.integers(1, 8), st.none()),
        # SGLang's own look, which splits nodes.
        st.tuples(st.just("match"), PROMPTS, NAMESPACES),
    ),
    max_size=25,
)


@pytest.mark.parametrize("page_len", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(waiting=st.lists(st.tuples(PROMPTS, NAMESPACES), min_size=2, max_size=6), changes=CHANGES)
def test_who_waits_is_matched_once_and_stays_right(kind, page_len, waiting, changes):
    """
    A prompt is matched when it comes; from then on only inserts and evictions are heard of. At the end
    each must stand where SGLang's own match, which looks through the whole tree, would put it.
    """
    cache = real_cache(kind, page_len)
    tree = followed(cache)
    index = waiting_index(tree)  # type: ignore[arg-type]
    requests = []
    for order, (tokens, extra_key) in enumerate(waiting):
        units = tree.units(tokens, extra_key, None)  # type: ignore[arg-type]
        # As long as it takes for the last token not to matter: a match may cover the whole prompt.
        request = Request(
            id=str(order), client="a", prompt=units, input_len=100, max_tokens=1, order=order
        )
        index.add(request)
        requests.append((request, tokens, extra_key))

    for what, argument, extra_key in changes:
        if what == "insert" and len(argument) >= page_len:
            cache.insert(argument, extra_key)
        elif what == "evict":
            cache.evict(argument)
        elif what == "match":
            cache.match_len(argument, extra_key)

    found = [index.match_len(request) for request, _, _ in requests]
    assert found == [cache.match_len(tokens, extra_key) for _, tokens, extra_key in requests]


@pytest.mark.parametrize("kind", KINDS)
def test_asking_changes_nothing(kind):
    """SGLang's match marks what it finds as used; ours leaves the oldest where it was: to be evicted."""
    cache = real_cache(kind)
    tree = followed(cache)
    cache.insert([1, 2, 3])
    cache.insert([7, 8, 9])

    assert tree.match_len((1, 2, 3)) == 3
    cache.evict(3)

    assert (cache.match_len([1, 2, 3]), cache.match_len([7, 8, 9])) == (0, 3)


@pytest.mark.parametrize("kind", KINDS)
def test_an_emptied_cache_is_told_to_those_who_wait(kind):
    told = []
    cache = real_cache(kind)
    tree = followed(cache, on_clear=lambda: told.append(True))
    waiting_index(tree)  # type: ignore[arg-type]
    cache.insert([1, 2, 3])

    cache.tree.reset()

    assert told
    assert tree.match_len((1, 2, 3)) == 0


def test_nobody_hears_anything_while_nobody_waits():
    """Most changes concern nobody, and a path of 20,000 tokens costs time to write down."""
    heard = []

    class Listener:
        def grew(self, tokens: Runs, length: int) -> None:
            heard.append(length)

        def shrank(self, tokens: Runs, length: int) -> None:
            heard.append(length)

    cache = RealCache("unified")
    tree = followed(cache, is_wanted=lambda: False)
    tree.listen(Listener())
    cache.insert([1, 2, 3])

    assert heard == []


def test_a_cache_that_keeps_to_itself_is_refused():
    """An order by what was once cached would rot in silence."""

    class Silent:
        page_size = 1
        disable = False
        kv_events = object()

    with pytest.raises(ConfigError, match="does not tell what it stores"):
        EngineTree(Silent(), is_wanted=lambda: True, on_clear=lambda: None)


@pytest.mark.parametrize(
    ("name", "value"), [("tree_components", (0, 1)), ("is_eagle", True), ("begin_insert", None)]
)
def test_a_tree_in_rust_that_cannot_be_followed_is_refused(name, value):
    """Another version may do it otherwise; an operator may ask for Rust with sliding windows."""
    cache = real_cache("rust")
    setattr(cache.tree.tree_core, name, value)

    with pytest.raises(ConfigError, match="rust cannot be followed"):
        followed(cache)


def test_the_tree_in_rust_is_taken_where_it_can_be_followed():
    environ: dict[str, str] = {}
    choose_core(environ, has_host_cache=False)
    cores = [
        type(RealCache(core=environ[CORE_VARIABLE], kind="unified", **more).tree.tree_core).__name__
        for more in ({}, {"is_eagle": True})
    ]
    assert cores == ["RustUnifiedTreeCore", "UnifiedTreeCore"]

    environ.clear()
    choose_core(environ, has_host_cache=True)
    assert environ == {CORE_VARIABLE: "python"}


def test_a_process_that_is_given_our_name_knows_what_it_means(monkeypatch):
    """One scheduler's process may be started by another's, with its environment."""
    monkeypatch.setattr(registry, "_TREE_CORE_REGISTRY", {})
    choose_core({CORE_VARIABLE: OURS}, has_host_cache=False)
    assert registry.get_tree_core_factory(OURS) is not None


@pytest.mark.parametrize("wanted", ["python", "rust"])
def test_an_operator_s_choice_of_a_tree_stays(wanted):
    environ = {CORE_VARIABLE: wanted}
    choose_core(environ, has_host_cache=True)
    assert environ == {CORE_VARIABLE: wanted}


def test_a_disabled_cache_matches_nothing_and_needs_no_hook():
    class Disabled:
        page_size = 1
        disable = True

    tree = EngineTree(Disabled(), is_wanted=lambda: True, on_clear=lambda: None)

    assert tree.match_len(to_units([1, 2], 1, Namespace(None, None))) == 0  # type: ignore[arg-type]

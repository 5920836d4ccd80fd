"""Matches of SglangTreeView equal SGLang's own, after any sequence of changes."""

from array import array
from itertools import chain
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache import tree_core_registry as registry

from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Request
from fairhit.core.waiting.cache_listener import waiting_index
from fairhit.engines.sglang.radix.prompts import Namespace, to_units
from fairhit.engines.sglang.radix.python_nodes import PythonNodes
from fairhit.engines.sglang.radix.rust_nodes import CORE_VARIABLE, OURS, RustNodes, choose_core
from fairhit.engines.sglang.radix.tree import SglangTreeView
from fairhit.errors import ConfigError
from tests.sglang.caches import RealCache

KINDS = ["rust", "unified", "radix"]


def real_cache(kind: str, page_len: int = 1) -> RealCache:
    """SGLang's default with its tree in Rust or in Python, or the one it had before."""
    if kind == "rust":
        return RealCache("unified", page_len=page_len, core="rust")
    return RealCache(kind, page_len=page_len)


def followed(cache: RealCache, **more: object) -> SglangTreeView:
    settings = {"is_wanted": lambda: True, "on_clear": lambda: None, **more}
    return SglangTreeView(cache.tree, **settings)  # type: ignore[arg-type]


# Few tokens and short stretches of them, so that prompts part at every place there is; pages of four, so
# that they have some in common.
PIECES = st.sampled_from([(0,), (1,), (2,), (0, 0, 0, 0), (0, 0, 0, 1), (1, 1, 1, 1)])
PROMPTS = st.lists(PIECES, min_size=1, max_size=6).map(lambda pieces: [*chain(*pieces)])
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
def test_a_prompt_that_leaves_a_node_in_its_midst_does_not_go_on_below_it(kind):
    cache = real_cache(kind)
    tree = followed(cache)
    cache.insert([1, 2, 3, 5])
    cache.insert([1, 2, 3, 6])

    assert [tree.match_len(prompt) for prompt in ((1, 5), (1, 2, 6), (1, 2, 3, 6))] == [1, 2, 4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("page_len", [1, 4])
def test_what_was_asked_last_is_asked_again_when_something_has_changed(kind, page_len):
    cache = real_cache(kind, page_len)
    tree = followed(cache)
    prompt = tree.units([1, 2, 3, 4] * 3, None, None)  # type: ignore[arg-type]
    assert tree.match(prompt) == (None, 0)

    cache.insert([1, 2, 3, 4] * 2)
    assert tree.match(prompt) == (None, 8 // page_len)

    cache.evict(8)
    assert tree.match(prompt) == (None, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_salt_has_a_cache_of_its_own_and_an_empty_one_is_none(kind):
    cache = real_cache(kind)
    tree = followed(cache)
    cache.insert([1, 2, 3], salt="s")
    cache.insert([1, 2])

    found = [
        tree.match(tree.units([1, 2, 3], None, salt))[1]  # type: ignore[arg-type]
        for salt in ("s", "other", None, "")
    ]

    assert found == [3, 0, 2, 2]
    # What is heard of those without a salt is for these, too.
    assert tree.units([1], None, "") == tree.units([1], None, None)  # type: ignore[arg-type]


def test_of_the_tree_in_rust_nothing_is_kept_of_what_has_left_it():
    """8 bytes a token of whatever was cached once; and numbers of nodes are given anew after a reset."""
    cache = real_cache("rust")
    tree = followed(cache)
    assert isinstance(tree._nodes, RustNodes)
    for first in range(5):
        cache.insert([first, 7, 8])
        cache.insert([first, 7, 9])
    assert len(tree._nodes._edges) >= 10

    cache.evict(12)
    assert 0 < len(tree._nodes._edges) < 10
    cache.evict(1000)
    assert not tree._nodes._edges

    cache.insert([1, 2, 3])
    cache.tree.reset()
    assert not tree._nodes._edges


class Node(SimpleNamespace):
    """A node of a tree in Python, with the attributes that are read."""


def of_python(**more: object) -> tuple[PythonNodes, SimpleNamespace, list[object]]:
    """A core with a host cache, our view of it, and what that tells."""
    told: list[object] = []
    tree = SimpleNamespace(
        page_len=1,
        on_change=lambda: True,
        grew=lambda path: told.append(("grew", path.length)),
        shrank=lambda path, before: told.append(("shrank", path.length, before)),
    )
    events = SimpleNamespace(
        **{f"record_{name}": lambda *_, **__: None for name in ("store", "remove", "all_cleared")}
    )
    root = Node(children={}, parent=None, evicted=False, key=RadixKey(array("q")))
    core = SimpleNamespace(kv_events=events, root_node=root, is_eagle=False, **more)
    return PythonNodes(core, tree), core, told


def below(parent: Node, *tokens: int, evicted: bool = False) -> Node:
    key = RadixKey(array("q", tokens))
    node = Node(children={}, parent=parent, evicted=evicted, key=key)
    parent.children[key.child_key_at(0, 1)] = node
    return node


def test_what_is_on_the_host_only_is_not_counted():
    nodes, core, _ = of_python()
    below(below(core.root_node, 1, 2), 3, evicted=True)

    assert nodes.match_len(RadixKey(array("q", [1, 2, 3]))) == 2


@pytest.mark.parametrize(("medium", "is_told"), [(None, True), ("GPU", True), ("CPU", False)])
def test_only_what_comes_to_the_device_and_leaves_it_is_told(medium, is_told):
    _, core, told = of_python()
    node = below(below(core.root_node, 1, 2), 3)

    core.kv_events.record_store(node, medium)
    core.kv_events.record_remove(node, medium)

    assert told == [("grew", 3), ("shrank", 3, 2)] * is_told


def test_pairs_of_tokens_are_looked_up_as_pairs():
    cache = RealCache("unified", is_eagle=True)
    tree = followed(cache)
    cache.insert([1, 2, 3, 4])

    for prompt in ((1, 2, 3, 4, 5), (1, 2, 9), (1, 9), (7, 8)):
        assert tree.match_len(prompt) == cache.match_len([*prompt]), prompt
    assert tree.match_len((1, 2, 3, 4)) == 3


def test_with_pairs_of_tokens_the_order_is_not_exact():
    for is_eagle in (False, True):
        cache = RealCache("unified", is_eagle=is_eagle)
        assert followed(cache).is_exact == (not is_eagle)


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

    with pytest.raises(ConfigError, match="does not report what it"):
        SglangTreeView(Silent(), is_wanted=lambda: True, on_clear=lambda: None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tree_components", (0, 1)),
        ("is_eagle", True),
        ("begin_insert", None),
    ],
)
def test_a_tree_in_rust_that_cannot_be_followed_is_refused(name, value):
    """Another version may do it otherwise; an operator may ask for Rust with sliding windows."""
    cache = real_cache("rust")
    setattr(cache.tree.tree_core, name, value)

    with pytest.raises(ConfigError, match="rust cannot be observed"):
        followed(cache)


def test_a_tree_in_rust_with_a_host_cache_is_refused(monkeypatch):
    cache = real_cache("rust")
    monkeypatch.setattr(type(cache.tree.tree_core), "enable_hicache", True)

    with pytest.raises(ConfigError, match="rust cannot be observed"):
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
    """A scheduler process may be started by another one, with its environment."""
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

    tree = SglangTreeView(Disabled(), is_wanted=lambda: True, on_clear=lambda: None)

    assert tree.match_len(to_units([1, 2], 1, Namespace(None, None))) == 0  # type: ignore[arg-type]

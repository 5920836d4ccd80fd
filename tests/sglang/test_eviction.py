"""What waiting prompts want is evicted last, in SGLang's own caches; without an engine."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.cache.radix_tree import MOST_KEPT
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.engines.sglang.radix.tree import SglangTreeView
from fairhit.policies import make_policy
from tests.sglang.caches import RealCache
from tests.sglang.test_tree import KINDS, followed, real_cache


class Waiting:
    """Requests that wait under a policy, before a real cache."""

    def __init__(self, cache: RealCache, policy: str = "fair", **options: Any) -> None:
        self.cache, self.tree = cache, followed(cache, is_wanted=lambda: len(self.queue) > 0)
        self.queue = FairQueue(make_policy(policy, cache=self.tree, **options))  # type: ignore[arg-type]

    def add(self, *tokens: int, extra_key: str | None = None) -> Request:
        """Let a prompt wait; its last token is always computed, and so never wanted."""
        order = len(self.queue)
        prompt = self.tree.units([*tokens, -1], extra_key, None)  # type: ignore[arg-type]
        request = Request(
            id=str(order), client="a", prompt=prompt, input_len=len(tokens) + 1, max_tokens=1,
            order=order,
        )  # fmt: skip
        self.queue.add(request)
        return request

    def cached(self, *prompts: list[int]) -> list[int]:
        """Return how many tokens of each prompt are cached, by a match that changes nothing."""
        page = self.cache.page_len
        units = [self.tree.units(prompt, None, None) for prompt in prompts]  # type: ignore[arg-type]
        return [self.tree.match(each)[1] * page for each in units]


A, B, C = [1, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]


@pytest.mark.parametrize("page_len", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_waiting_prompt_wants_is_evicted_after_what_none_wants(kind, page_len):
    cache = real_cache(kind, page_len)
    waiting = Waiting(cache)
    for prompt in (A, B, C):
        cache.insert(prompt)
    waiting.add(*A)

    cache.evict(4)
    assert waiting.cached(A, B, C) == [4, 0, 4]
    cache.evict(4)
    assert waiting.cached(A, B, C) == [4, 0, 0]
    cache.evict(4)
    assert waiting.cached(A, B, C) == [0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_as_much_is_evicted_as_is_asked_for_and_of_the_wanted_the_oldest(kind):
    cache = real_cache(kind)
    waiting = Waiting(cache)
    for prompt in (A, B, C):
        cache.insert(prompt)
        waiting.add(*prompt)

    cache.evict(8)

    assert waiting.cached(A, B, C) == [0, 0, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_a_prefix_that_becomes_a_leaf_in_mid_eviction_is_kept_too(kind):
    """Both ends of the shared prefix go first; then the prefix is a leaf, older than the third prompt."""
    cache = real_cache(kind)
    waiting = Waiting(cache)
    for prompt in ([*A, 5], [*A, 6], C):
        cache.insert(prompt)
    waiting.add(*A)

    cache.evict(5)

    assert waiting.cached([*A, 5], C) == [4, 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("wanted", "is_kept"), [(1, False), (2, True)])
def test_a_leaf_is_wanted_if_half_of_it_is(kind, wanted, is_kept):
    """SGLang evicts it as a whole: 28 outputs behind a prompt must not cost the prompt, nor the reverse."""
    cache = real_cache(kind)
    waiting = Waiting(cache)
    cache.insert(A)
    cache.insert(B)
    waiting.add(*A[:wanted])

    cache.evict(4)

    assert waiting.cached(A, B) == ([4, 0] if is_kept else [0, 4])


@pytest.mark.parametrize("kind", KINDS)
def test_a_namespace_keeps_only_its_own(kind):
    cache = real_cache(kind)
    waiting = Waiting(cache)
    cache.insert(A)
    cache.insert(B)
    waiting.add(*A, extra_key="adapter")

    cache.evict(4)

    assert waiting.cached(A, B) == [0, 4]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("policy", "options"), [("fair", {"eviction": "lru"}), ("dlpm", {})])
def test_under_other_policies_and_settings_the_order_is_sglang_s(kind, policy, options):
    cache = real_cache(kind)
    waiting = Waiting(cache, policy, **options)
    cache.insert(A)
    cache.insert(B)
    waiting.add(*A)

    cache.evict(4)

    assert waiting.cached(A, B) == [0, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_while_none_waits_no_path_is_built(kind, monkeypatch):
    cache = real_cache(kind)
    waiting = Waiting(cache)
    cache.insert(A)
    cache.insert(B)
    waiting.queue.cancel(waiting.add(*A))
    monkeypatch.setattr(type(waiting.tree._nodes), "leaf", None)

    cache.evict(4)

    assert waiting.cached(A, B) == [0, 4]


@pytest.mark.parametrize("kind", KINDS)
def test_one_eviction_keeps_a_bounded_number_of_leaves(kind, monkeypatch):
    """The oldest MOST_KEPT stay, the next one goes although it is wanted, and no further one is examined."""
    cache = real_cache(kind)
    waiting = Waiting(cache)
    prompts = [[number, 7] for number in range(MOST_KEPT + 40)]
    for prompt in prompts:
        cache.insert(prompt)
        waiting.add(*prompt)
    examined = []
    stock = type(waiting.tree._nodes).leaf
    monkeypatch.setattr(
        type(waiting.tree._nodes), "leaf", lambda self, leaf: examined.append(leaf) or stock(self, leaf)
    )  # fmt: skip

    cache.evict(2)

    kept = waiting.cached(*prompts)
    assert (kept.index(0), kept.count(0)) == (MOST_KEPT, 1)
    assert MOST_KEPT <= len(examined) <= MOST_KEPT + 1  # what is evicted is reported, too


PIECES = st.lists(st.sampled_from([(0,), (1,), (0, 0, 1), (1, 1, 1, 1)]), min_size=1, max_size=5)
PROMPTS = PIECES.map(lambda pieces: [token for piece in pieces for token in piece])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=80, deadline=None)
@given(
    inserted=st.lists(PROMPTS, min_size=1, max_size=8),
    wanted=st.lists(PROMPTS, min_size=1, max_size=3),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
)
def test_no_leaf_that_is_wanted_goes_while_one_stays_that_is_not(kind, inserted, wanted, sizes):
    """And the cache gives as much as without the hook: all that is asked for, or all it has."""
    cache = real_cache(kind)
    waiting = Waiting(cache)
    for prompt in inserted:
        cache.insert(prompt)
    for prompt in wanted:
        waiting.add(*prompt)
    evicted: list[bool] = []
    stock = waiting.tree.shrank

    def shrank(path: Any, before: int) -> None:
        share = 2 * (wanted_len(path) - before) >= path.length - before
        evicted.append(share)
        stock(path, before)

    index = waiting.queue.policy._queue._index  # type: ignore[attr-defined]

    def wanted_len(path: Any) -> int:
        return int(index.wanted_len(path, path.length))

    waiting.tree.shrank = shrank  # type: ignore[method-assign]
    for size in sizes:
        evicted.clear()
        before = cache.tree.evictable_size()

        cache.evict(size)

        assert before - cache.tree.evictable_size() >= min(size, before)
        assert evicted == sorted(evicted)


def test_of_a_cache_without_a_hook_it_is_known_that_it_cannot():
    cache = real_cache("unified")
    assert not Waiting(cache).tree.cannot_keep

    core = cache.tree.tree_core
    other = SimpleNamespace(
        page_size=1, disable=False, kv_events=core.kv_events, root_node=core.root_node
    )
    tree = SglangTreeView(other, is_wanted=lambda: True, on_clear=lambda: None)
    tree.keep(lambda _, length: length)

    assert tree.cannot_keep


def test_a_disabled_cache_keeps_nothing_and_needs_no_hook():
    disabled = SimpleNamespace(page_size=1, disable=True)
    tree = SglangTreeView(disabled, is_wanted=lambda: True, on_clear=lambda: None)

    tree.keep(lambda _, length: length)

    assert not tree.cannot_keep

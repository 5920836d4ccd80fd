"""Expectations of SGLang's own tests of prefix caches and schedule policies, with and without the plug-in.

Each cache is made twice, and one of the two is followed by the plug-in as it is in a server, with a prompt
that waits: whatever is asked of both, they answer the same. SGLang's own policies order as they always do.
"""

import random
from array import array
from types import SimpleNamespace

import pytest
from sglang.srt.managers import schedule_policy
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.managers.schedule_policy import SchedulePolicy
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey
from sglang.srt.sampling.sampling_params import SamplingParams

from fairhit.core.request import Request
from fairhit.core.waiting.cache_listener import waiting_index
from tests.sglang.caches import RealCache
from tests.sglang.test_tree import KINDS, followed, real_cache

# (what, tokens or how many, namespace). A lock is of the longest prefix that is cached.
CACHE: dict[str, list[tuple[str, object, str | None]]] = {
    "an insert is found": [("insert", [1, 2, 3, 4], None), ("match", [1, 2, 3, 4, 5], None)],
    "what is not there is not found": [("insert", [1, 2], None), ("match", [3, 4], None)],
    "an empty cache": [("match", [1, 2, 3], None), ("evict", 4, None)],
    "the same twice": [("insert", [*range(8)], None), ("insert", [*range(8)], None)],
    "a longer one over a shorter": [("insert", [*range(8)], None), ("insert", [*range(16)], None)],
    "a match within a node splits it": [
        ("insert", [*range(16)], None), ("match", [*range(8), 90, 91, 92, 93], None),
        ("match", [*range(16)], None),
    ],
    "two that part": [
        ("insert", [*range(8), 20, 21, 22, 23], None), ("insert", [*range(8), 30, 31, 32, 33], None),
        ("match", [*range(8), 30, 31, 32, 33], None),
    ],
    "namespaces share nothing": [
        ("insert", [1, 2, 3, 4], "x"), ("match", [1, 2, 3, 4], "y"), ("match", [1, 2, 3, 4], None),
        ("match", [1, 2, 3, 4], "x"), ("evict", 8, None),
    ],
    "the least recently used goes first": [
        ("insert", [1, 2, 3, 4], None), ("insert", [5, 6, 7, 8], None), ("match", [1, 2, 3, 4], None),
        ("evict", 4, None), ("match", [1, 2, 3, 4], None), ("match", [5, 6, 7, 8], None),
    ],
    "leaves go before what they hang on": [
        ("insert", [*range(4)], None), ("insert", [*range(12)], None), ("evict", 4, None),
        ("match", [*range(12)], None),
    ],
    "what is locked stays": [
        ("insert", [1, 2, 3, 4], None), ("insert", [5, 6, 7, 8], None), ("lock", [1, 2, 3, 4], None),
        ("evict", 100, None), ("match", [1, 2, 3, 4], None), ("match", [5, 6, 7, 8], None),
        ("unlock", 0, None), ("evict", 100, None),
    ],
    "a lock is of all above": [
        ("insert", [*range(12)], None), ("match", [*range(4)], None), ("lock", [*range(8)], None),
        ("evict", 100, None), ("match", [*range(12)], None), ("unlock", 0, None),
    ],
    "more is evicted than there is": [("insert", [*range(8)], None), ("evict", 1000, None)],
    "a reset empties all": [
        ("insert", [*range(8)], None), ("reset", 0, None), ("match", [*range(8)], None),
        ("insert", [*range(8)], None),
    ],
    "touched is not evicted first": [
        ("insert", [1, 2, 3, 4], None), ("insert", [5, 6, 7, 8], None), ("match", [1, 2, 9], None),
        ("evict", 2, None), ("match", [1, 2, 3, 4], None),
    ],
}  # fmt: skip


class Asked:
    """A cache, and all that it answers."""

    def __init__(self, cache: RealCache) -> None:
        self.cache, self.answers = cache, list[object]()
        self._locks: list[object] = []

    def do(self, what: str, argument: object, extra_key: str | None) -> None:
        tree = self.cache.tree
        if what == "insert":
            key = RadixKey(array("q", argument), extra_key)
            slots = self.cache._allocator.alloc(len(argument))
            self.answers.append(tree.insert(InsertParams(key=key, value=slots)).prefix_len)
        elif what == "match":
            self.answers.append(self.cache.match_len(argument, extra_key))
        elif what == "evict":
            self.answers.append(tree.evict(EvictParams(num_tokens=argument)).num_tokens_evicted)
        elif what == "lock":
            key = RadixKey(array("q", argument), extra_key)
            node = tree.match_prefix(MatchPrefixParams(key=key)).last_device_node
            self._locks.append(tree.lock(node))
        elif what == "unlock":
            tree.unlock(self._locks.pop())
        else:
            tree.reset()
        self.answers.append((tree.evictable_size(), tree.protected_size(), tree.total_size()))


def pair(kind: str, page_len: int) -> tuple[Asked, Asked]:
    """Make a cache that the plug-in observes for a waiting prompt, and one that it does not."""
    ours = real_cache(kind, page_len)
    tree = followed(ours)
    index = waiting_index(tree)  # type: ignore[arg-type]
    units = tree.units(array("q", range(16)), None, None)
    index.add(Request(id="w", client="a", prompt=units, input_len=16, max_tokens=1, order=0))
    return Asked(ours), Asked(real_cache(kind, page_len))


@pytest.mark.parametrize("page_len", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behaviour", CACHE)
def test_a_cache_that_is_followed_answers_as_one_that_is_not(behaviour, kind, page_len):
    ours, stock = pair(kind, page_len)

    for step in CACHE[behaviour]:
        if not (step[0] == "insert" and len(step[1]) % page_len):  # SGLang inserts whole pages
            ours.do(*step)
            stock.do(*step)

    assert ours.answers == stock.answers


@pytest.mark.parametrize("kind", KINDS)
def test_so_it_does_at_random(kind):
    for seed in range(10):
        rng, (ours, stock) = random.Random(seed), pair(kind, 1)
        for _ in range(60):
            tokens = [rng.randrange(2) for _ in range(rng.randrange(1, 12))]
            what = rng.choice(["insert", "insert", "match", "evict"])
            step = (
                what,
                rng.randrange(1, 10) if what == "evict" else tokens,
                rng.choice([None, "x"]),
            )
            ours.do(*step)
            stock.do(*step)
        assert ours.answers == stock.answers, seed


# -- policies -------------------------------------------------------------------------------------


@pytest.fixture
def configured(plugged, monkeypatch) -> None:
    """SGLang's settings as a server publishes them, as far as a policy reads them."""
    for name, said in (("disagg", "disaggregation_mode"), ("memory", "radix_eviction_policy")):
        value = SimpleNamespace(**{said: {"disagg": "null", "memory": "lru"}[name]})
        monkeypatch.setattr(schedule_policy, f"get_{name}", lambda value=value: value)


def waiting(*reqs: tuple[str, list[int], int, str | None]) -> list[Req]:
    made = []
    for name, tokens, outputs, routing_key in reqs:
        sampling = SamplingParams(max_new_tokens=outputs, temperature=0)
        made.append(Req(name, "", array("q", tokens), sampling, routing_key=routing_key))
    return made


QUEUE = (
    ("cold", [90, 91, 92, 93], 9, "x"),
    ("short hit", [1, 2, 80, 81], 3, "y"),
    ("long hit", [1, 2, 3, 4, 5, 6], 5, "y"),
)
# What each of SGLang's policies makes of that, where [1..6] is cached and two run by the key "y".
ORDERS = {
    "fcfs": ["cold", "short hit", "long hit"],
    "lpm": ["long hit", "short hit", "cold"],
    "dfs-weight": None,  # whichever subtree first, but "cold", which hangs on nothing, by itself
    "lof": ["cold", "long hit", "short hit"],
    "routing-key": ["short hit", "long hit", "cold"],
}


@pytest.mark.parametrize("name", ORDERS)
def test_sglang_s_own_policies_order_as_they_do_without_the_plug_in(configured, name):
    cache = RadixCache.create_simulated()
    cache.insert(InsertParams(key=RadixKey(array("q", [1, 2, 3, 4, 5, 6]))))
    policy = SchedulePolicy(name, cache, False, False, False)
    queue = waiting(*QUEUE)
    running = SimpleNamespace(reqs=waiting(("r1", [1], 1, "y"), ("r2", [1], 1, "y")))

    policy.calc_priority(queue, running)

    assert type(policy) is SchedulePolicy
    assert sorted(req.rid for req in queue) == sorted(ORDERS["fcfs"])
    if ORDERS[name] is not None:
        assert [req.rid for req in queue] == ORDERS[name]


def test_lpm_gives_up_above_128_with_the_plug_in_too(configured):
    """SGLang's own policies keep their limits; ours have none (tests/sglang/test_server.py)."""
    cache = RadixCache.create_simulated()
    cache.insert(InsertParams(key=RadixKey(array("q", [1, 2, 3, 4, 5, 6]))))
    policy = SchedulePolicy("lpm", cache, False, False, False)
    many = [(f"cold {number}", [100 + number, 7], 1, None) for number in range(128)]
    queue = waiting(*many, ("hit", [1, 2, 3, 4, 5, 6], 1, None))

    policy.calc_priority(queue)
    above = queue[-1].rid
    del queue[0]
    policy.calc_priority(queue)

    assert (above, queue[0].rid) == ("hit", "hit")


def test_a_policy_that_sglang_does_not_know_is_refused(plugged):
    with pytest.raises(ValueError, match="Unknown schedule_policy"):
        SchedulePolicy("dlpm", RadixCache.create_simulated(), False, False, False)

"""RadixTree against a set of prefixes: what is cached, what is pinned, what goes first."""

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs

prompts = st.lists(st.sampled_from("xy"), min_size=1, max_size=8).map(tuple)


def cached(tree, prompt, now):
    """Cache and unpin a prompt at `now`."""
    tree.release(tree.insert(tree.acquire(prompt, now), prompt, now))


def test_the_least_recently_used_leaf_goes_first_and_from_its_end():
    """
    A prefix is worth more than its continuation, and a prompt just used more than an old one.
    """
    tree = RadixTree()
    cached(tree, tuple("abcd"), 1)
    cached(tree, tuple("abxy"), 2)
    tree.release(tree.acquire(tuple("abcd"), 3))

    assert tree.evict(1) == 1
    assert tree.match_len(tuple("abxy")) == 3
    assert tree.evict(2) == 2
    assert (tree.match_len(tuple("abxy")), tree.match_len(tuple("abcd"))) == (2, 3)


def test_pinned_tokens_stay():
    """
    A running request reads its prompt: eviction must never take pinned tokens.
    """
    tree = RadixTree()
    cached(tree, tuple("abcd"), 1)
    path = tree.acquire(tuple("ab"), 2)

    assert tree.evictable == 2
    assert tree.evict(100) == 2
    assert tree.match_len(tuple("abcd")) == 2
    tree.release(path)
    assert tree.evict(100) == 2


def test_a_prefix_is_as_young_as_the_youngest_that_went_on_from_it():
    """
    A long answer keeps an old branch in use while a younger one beside it is evicted. What both
    began with was used with the younger one, after `q`.
    """
    tree = RadixTree()
    long_answer = tree.insert(tree.acquire(tuple("pa"), 1), tuple("pa"), 1)
    other = tree.insert(tree.acquire(tuple("q"), 2), tuple("q"), 2)
    cached(tree, tuple("pb"), 3)
    assert tree.evict(1) == 1
    tree.release(long_answer)
    tree.release(other)

    assert tree.evict(2) == 2
    assert [tree.match_len(tuple(each)) for each in ("pa", "pb", "q")] == [1, 1, 0]


def test_a_short_prefix_does_not_keep_a_long_prompt_alive():
    """
    A document of 10,000 tokens is evicted down to the instructions before it, which others share.
    """
    tree = RadixTree()
    document = tuple(range(10_000))
    cached(tree, document, 1)
    cached(tree, (*document[:10], -1), 2)
    assert tree.evict(9_990) == 9_990

    assert tree.match_len(document) == 10
    assert all(len(node.key) <= 20 for node in tree._root.children.values())
    tree.check()


def test_a_question_changes_nothing():
    """
    Looking a prefix up must not make it younger: then a queue that is only looked at would keep it.
    """
    tree = RadixTree()
    cached(tree, tuple("old"), 1)
    cached(tree, tuple("new"), 2)
    tree.match_len(tuple("old"))
    tree.evict(3)

    assert tree.match_len(tuple("old")) == 0


def test_a_prompt_asked_about_again_is_matched_as_the_cache_is_now():
    """
    The tree remembers its last answer, because who comes to wait is often admitted next; nothing
    may have happened in between.
    """
    tree, prompt = RadixTree(), Runs([("a", 0, 4)])
    begun = [tree.acquire(Runs([(name, 0, 1)]), 0) for name in "xyz"]  # nothing of them is cached
    assert tree.match_len(prompt) == 0
    longest = tree.insert(begun[0], Runs([("a", 0, 10)]), 1)  # appends
    assert tree.match_len(prompt) == 4
    tree.insert(begun[1], Runs([("a", 0, 6)]), 2)  # splits
    assert tree.acquire(prompt, 3).length == 4
    longer = Runs([("a", 0, 9)])
    assert tree.match_len(longer) == 9
    tree.release(longest)
    tree.evict(2)  # trims
    assert tree.match_len(longer) == 8
    tree.evict(2)  # removes
    assert tree.match_len(longer) == 6


def test_many_releases_leave_no_garbage_behind():
    """
    The eviction heap is cleaned lazily, but it is cleaned: without evictions, too.
    """
    tree = RadixTree()
    for now in range(10_000):
        cached(tree, tuple("abc"), now)

    assert len(tree._leaves) < 100


class Tree(RuleBasedStateMachine):
    """The tree beside a plain set of cached prefixes and a list of pinned ones."""

    def __init__(self):
        super().__init__()
        self.tree, self.now = RadixTree(), 0
        self.cached, self.paths = set(), []

    @rule(prompt=prompts)
    def insert(self, prompt):
        self.now += 1
        path = self.tree.insert(self.tree.acquire(prompt, self.now), prompt, self.now)
        self.paths.append((path, prompt))
        self.cached |= {prompt[:end] for end in range(1, len(prompt) + 1)}

    @rule(prompt=prompts)
    def acquire(self, prompt):
        self.now += 1
        path = self.tree.acquire(prompt, self.now)
        self.paths.append((path, prompt[: path.length]))

    @precondition(lambda self: self.paths)
    @rule(data=st.data())
    def release(self, data):
        pair = data.draw(st.sampled_from(self.paths))
        self.paths.remove(pair)
        self.tree.release(pair[0])

    @rule(size=st.integers(1, 10))
    def evict(self, size):
        before = self.tree.size
        dropped = self.tree.evict(size)
        assert self.tree.size == before - dropped
        self.cached = {
            prefix for prefix in self.cached if self.tree.match_len(prefix) == len(prefix)
        }
        assert self.tree.size == len(self.cached)

    @invariant()
    def agrees_with_the_set(self):
        self.tree.check()
        pinned = {prompt[:end] for _, prompt in self.paths for end in range(1, len(prompt) + 1)}
        assert pinned <= self.cached
        assert self.tree.size == len(self.cached)
        assert self.tree.evictable == len(self.cached - pinned)

    @rule(prompt=prompts)
    def match(self, prompt):
        length = max(
            (end for end in range(len(prompt) + 1) if prompt[:end] in self.cached), default=0
        )
        assert self.tree.match_len(prompt) == length


TestTree = Tree.TestCase
TestTree.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)

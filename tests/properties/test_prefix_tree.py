"""RadixTree over runs, over the same prompts as plain units, and over a set of prefixes: all agree."""

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairhit.core.cache.radix_tree import MOST_KEPT, RadixTree
from fairhit.core.cache.token_runs import Runs
from tests.reference.fair import agree

# Long runs that are cut anywhere, plain tokens between them, and a segment called by a number.
pieces = st.one_of(
    st.tuples(st.sampled_from([5, "a"]), st.sampled_from([0, 0, 0, 3]), st.integers(1, 5)),
    st.lists(st.sampled_from([5, 6]), min_size=1, max_size=3).map(lambda i: (tuple(i), 0, len(i))),
)
prompts = st.lists(pieces, min_size=1, max_size=4).map(Runs)


class PrefixSet:
    """Every cached prefix by itself, with the number of its last use. O(everything), so plain."""

    def __init__(self):
        self.used, self.pins, self.turn = {}, [], 0
        self.waiting = []

    def match(self, prompt):
        return max((n for n in range(1, len(prompt) + 1) if prompt[:n] in self.used), default=0)

    def cache(self, prompt):
        """Cache `prompt` and mark it used now."""
        self.turn += 1
        self.used |= {prompt[:n]: self.turn for n in range(1, len(prompt) + 1)}

    def pinned(self):
        return {prompt[:n] for prompt in self.pins for n in range(1, len(prompt) + 1)}

    def evict(self, size):
        """Evict one token at a time: the oldest prefix that is no prefix of another and not pinned.

        Those that a waiting prompt begins with come after all others.
        """
        for dropped in range(size):
            inner = {prefix[:-1] for prefix in self.used} | self.pinned()
            ends = {prefix: turn for prefix, turn in self.used.items() if prefix not in inner}
            if not ends:
                return dropped
            del self.used[min(ends, key=lambda each: (self.wants(each), ends[each]))]
        return size

    def wants(self, prefix):
        return any(prompt[: len(prefix)] == prefix for prompt in self.waiting)


class Mirror:
    """A listener that knows the cache by its notifications alone."""

    def __init__(self):
        self.cached = set()

    def grew(self, tokens, length):
        units = tuple(tokens)
        self.cached |= {units[:n] for n in range(1, length + 1)}

    def shrank(self, tokens, length):
        units = tuple(tokens)
        self.cached -= {units[:n] for n in range(length + 1, len(units) + 1)}


class Trees(RuleBasedStateMachine):
    """The same is done to all of them."""

    def __init__(self):
        super().__init__()
        self.runs, self.units, self.mirror = RadixTree(), RadixTree(), Mirror()
        self.runs.listen(self.mirror)
        self.oracle, self.paths = PrefixSet(), []

    @rule(prompt=prompts, end=st.integers(1, 20))
    def insert(self, prompt, end):
        """Not always to its end: the last token of an answer is not cached."""
        plain, now = tuple(prompt), self.oracle.turn
        end = max(self.oracle.match(plain), min(end, len(plain)))
        paths = [
            tree.insert(tree.acquire(key, now), key, now, end)
            for tree, key in ((self.runs, prompt), (self.units, plain))
        ]
        self.oracle.cache(plain[: self.oracle.match(plain)])
        self.oracle.cache(plain[:end])
        self.pin(paths, plain[:end])

    @rule(prompt=prompts)
    def acquire(self, prompt):
        plain, now = tuple(prompt), self.oracle.turn
        length = self.oracle.match(plain)
        self.oracle.cache(plain[:length])
        self.pin([self.runs.acquire(prompt, now), self.units.acquire(plain, now)], plain[:length])

    def pin(self, paths, prefix):
        assert [path.length for path in paths] == [len(prefix)] * 2
        self.paths.append(paths)
        self.oracle.pins.append(prefix)

    @rule(prompt=prompts, first=prompts)
    def extend_an_older_pin(self, prompt, first):
        """Others may have cached more of it in the meantime."""
        whole = first + prompt
        plain, now = tuple(whole), self.oracle.turn
        trees = ((self.runs, whole), (self.units, plain))
        paths = [tree.acquire(key, now) for tree, key in trees]
        self.oracle.cache(plain[: self.oracle.match(plain)])
        self.insert(first, 20)
        paths = [
            tree.insert(path, key, now + 9) for (tree, key), path in zip(trees, paths, strict=True)
        ]
        self.oracle.cache(plain)
        self.oracle.turn += 9
        self.pin(paths, plain)

    @precondition(lambda self: self.paths)
    @rule(data=st.data(), uses=st.booleans())
    def release(self, data, uses):
        at = data.draw(st.integers(0, len(self.paths) - 1))
        prefix = self.oracle.pins.pop(at)
        if uses:
            self.oracle.cache(prefix)
        for tree, path in zip((self.runs, self.units), self.paths.pop(at), strict=True):
            if uses:
                tree.use(path)
            tree.release(path)

    @rule(size=st.integers(1, 12))
    def evict(self, size):
        dropped = self.oracle.evict(size)
        assert [tree.evict(size) for tree in (self.runs, self.units)] == [dropped] * 2

    @rule(prompt=prompts)
    def match(self, prompt):
        plain = tuple(prompt)
        length = self.oracle.match(plain)
        pinned = self.oracle.pinned()
        free = sum(1 for n in range(1, length + 1) if plain[:n] not in pinned)
        for tree, key in ((self.runs, prompt), (self.units, plain)):
            held = tree.pinned_len(tree.match(Runs.of(key)))
            assert (tree.match_len(key), held) == (length, length - free)

    @invariant()
    def all_hold_the_same(self):
        for tree in (self.runs, self.units):
            tree.check()
            assert tree.size == len(self.oracle.used)
            assert tree.pinned == len(self.oracle.pinned())
        assert self.mirror.cached == set(self.oracle.used)


class KeepingTrees(Trees):
    """Prompts wait, and what they want is evicted last."""

    def __init__(self):
        super().__init__()
        for tree in (self.runs, self.units):
            tree.keep(self.wanted_len)

    def wanted_len(self, tokens, length):
        key = tuple(tokens)[:length]
        return max((agree(key, prompt) for prompt in self.oracle.waiting), default=0)

    @rule(prompt=prompts)
    def arrive(self, prompt):
        self.oracle.waiting.append(tuple(prompt))

    @precondition(lambda self: self.oracle.waiting)
    @rule(data=st.data())
    def leave(self, data):
        self.oracle.waiting.remove(data.draw(st.sampled_from(self.oracle.waiting)))


@pytest.mark.parametrize(("wanted", "evicted"), [(MOST_KEPT - 1, "idle"), (MOST_KEPT, 0)])
def test_one_eviction_passes_over_a_limited_number_of_leaves(wanted, evicted):
    """With so many older leaves that all are wanted, the unwanted one behind them is not looked for."""
    tree = RadixTree()
    for leaf in [*range(wanted), "idle"]:
        tree.release(tree.insert(tree.acquire((leaf,), 0), (leaf,), 0))
    tree.keep(lambda tokens, length: 0 if tokens.unit(0) == "idle" else length)

    assert tree.evict(1) == 1
    assert [leaf for leaf in [*range(wanted), "idle"] if not tree.match_len((leaf,))] == [evicted]


TestTrees = Trees.TestCase
TestKeepingTrees = KeepingTrees.TestCase
TestTrees.settings = TestKeepingTrees.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)

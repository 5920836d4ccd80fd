"""[1] The waiting index's depth is the exact match, at all times and for both caches."""

from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import Path, RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Request
from fairhit.core.waiting.cache_listener import waiting_index
from tests.reference.fair import agree
from tests.reference.matching import RematchedQueue

CLIENTS = "abc"
# Two letters make prompts that share, extend and split one another all the time.
letters = st.lists(st.sampled_from("xy"), min_size=1, max_size=9).map(tuple)
# Of the long ones nine tenths may be cached.
tokens = letters | st.builds(lambda own: tuple("xyxxyyxyyx") + own[:3], letters)


def chained(prompt: tuple[str, ...]) -> tuple[str, ...]:
    """A stand-in for chained hashes: equal only if everything before is equal, too."""
    return tuple("".join(prompt[: end + 1]) for end in range(len(prompt)))


class Waiting(RuleBasedStateMachine):
    """What both flavours share: requests come, go, hide and show; clients open and close."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = self.make_cache()
        order = self.order_of_clients()
        self.index = waiting_index(self.cache, **order)
        self.oracle = RematchedQueue(
            self.cache.match_len, block_size=self.cache.block_size, **order
        )
        self.order = 0

    def order_of_clients(self):
        """Matches are compared to the token, and no client comes before another."""
        return {}

    def key(self, prompt: tuple[str, ...]) -> tuple[str, ...]:
        return prompt

    @rule(prompt=tokens, client=st.sampled_from(CLIENTS))
    def arrive(self, prompt, client):
        self.order += 1
        self.add(
            Request(
                id=str(self.order),
                client=client,
                prompt=self.key(prompt),
                input_len=len(prompt) * self.cache.block_size,
                max_tokens=1,
                order=self.order,
            )
        )

    def add(self, request):
        self.index.add(request)
        self.oracle.requests.append(request)
        self.open(request.client)

    def open(self, client):
        """Tell the index again how a client stands, if any of its requests wait."""
        if client in self.oracle.open and self.index.waiting(client):
            for_hits = client in self.oracle.hits_only
            (self.index.open_for_hits if for_hits else self.index.open)(client)

    @precondition(lambda self: self.oracle.requests)
    @rule(data=st.data())
    def leave(self, data):
        self.remove(data.draw(st.sampled_from(self.oracle.requests)))

    def remove(self, request):
        self.index.remove(request)
        self.oracle.requests.remove(request)
        self.oracle.hidden.discard(request.id)

    @precondition(lambda self: self.oracle.requests)
    @rule(data=st.data())
    def leave_and_come_back(self, data):
        """A request held aside and released keeps its order."""
        request = data.draw(st.sampled_from(self.oracle.requests))
        self.remove(request)
        self.add(request)

    @precondition(lambda self: self.oracle.requests)
    @rule(data=st.data())
    def hide_or_show(self, data):
        request = data.draw(st.sampled_from(self.oracle.requests))
        if request.id in self.oracle.hidden:
            self.index.show(request)
        else:
            self.index.hide(request)
        self.oracle.hidden ^= {request.id}

    @rule(client=st.sampled_from(CLIENTS))
    def open_or_close(self, client):
        self.oracle.open ^= {client}
        if client not in self.oracle.open:
            self.index.close(client)
        self.open(client)

    @rule()
    def best_is_the_same(self):
        """Only sometimes, so that changes pile up between two questions."""
        assert self.index.best() is self.oracle.best()

    @rule()
    def every_depth_is_the_exact_match(self):
        """Only sometimes: what the cache did meanwhile is followed at the next question."""
        for request in self.oracle.requests:
            assert self.index.match_len(request) == self.oracle.match(request)

    def teardown(self):
        self.every_depth_is_the_exact_match()
        assert self.index.best() is self.oracle.best()
        for request in list(self.oracle.requests):
            self.remove(request)
        assert not self.index.trie.root.children, "nothing waits, so nothing is left of the trie"


class WaitingOnTokens(Waiting):
    """The token-level flavour, over the radix tree."""

    def make_cache(self):
        self.paths: list[Path] = []
        self.now = 0
        return RadixTree()

    @rule(prompt=tokens)
    def cache_prompt(self, prompt):
        self.now += 1
        key = self.key(prompt)
        path = self.cache.acquire(key, self.now)
        self.paths.append(self.cache.insert(path, key, self.now))

    @precondition(lambda self: self.paths)
    @rule(data=st.data())
    def unpin(self, data):
        path = data.draw(st.sampled_from(self.paths))
        self.paths.remove(path)
        self.cache.release(path)

    @rule(size=st.integers(1, 12))
    def evict(self, size):
        evictable = self.cache.evictable
        assert self.cache.evict(size) == min(size, evictable)

    @invariant()
    def tree_is_sound(self):
        self.cache.check()


class WaitingOnRuns(WaitingOnTokens):
    """The same with prompts as runs: `x` is a plain token, `y` at place n is token n of a segment."""

    def key(self, prompt):
        return Runs(
            (("x",), 0, 1) if letter == "x" else ("y", place, 1)
            for place, letter in enumerate(prompt)
        )


class WaitingOnBlocks(Waiting):
    """The block flavour; blocks come and go in any order, as no engine promises one."""

    def make_cache(self):
        self.copies: list[str] = []
        return BlockCache(block_size=4)

    def key(self, prompt):
        return chained(prompt)

    @rule(prompt=tokens, data=st.data())
    def insert_blocks(self, prompt, data):
        for block in data.draw(st.permutations(chained(prompt))):
            self.copies.append(block)
            self.cache.insert(block)

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def evict(self, data):
        block = data.draw(st.sampled_from(self.copies))
        self.copies.remove(block)
        self.cache.evict(block)

    @rule()
    def clear(self):
        self.copies.clear()
        self.cache.clear()


class ByStanding:
    """Near matches by the standing of their clients, which changes; some clients are open for hits only."""

    def order_of_clients(self):
        self.standings = dict.fromkeys(CLIENTS, 0)
        return {"near": 2 * self.cache.block_size, "standing": self.standings.__getitem__}

    @rule(client=st.sampled_from(CLIENTS), standing=st.integers(-2, 2))
    def rise_or_fall(self, client, standing):
        self.standings[client] = standing
        self.open(client)

    @rule(client=st.sampled_from(CLIENTS))
    def open_for_hits_or_for_all(self, client):
        self.oracle.hits_only ^= {client}
        self.open(client)


class WaitingByStandingOnTokens(ByStanding, WaitingOnTokens):
    """As `fair` asks for it, over the radix tree."""

    @rule(prompt=tokens)
    def wanted_is_the_longest_beginning_of_a_waiting_prompt(self, prompt):
        wanted = [agree(prompt, r.prompt[: r.input_len - 1]) for r in self.oracle.requests]
        assert self.index.wanted_len(Runs.of(prompt), len(prompt)) == max(wanted, default=0)


class WaitingByStandingOnBlocks(ByStanding, WaitingOnBlocks):
    """As `fair` asks for it, over blocks."""


TestWaitingByStandingOnTokens = WaitingByStandingOnTokens.TestCase
TestWaitingByStandingOnBlocks = WaitingByStandingOnBlocks.TestCase
TestWaitingOnTokens = WaitingOnTokens.TestCase
TestWaitingOnRuns = WaitingOnRuns.TestCase
TestWaitingOnBlocks = WaitingOnBlocks.TestCase
for case in (
    TestWaitingOnTokens,
    TestWaitingOnRuns,
    TestWaitingOnBlocks,
    TestWaitingByStandingOnTokens,
    TestWaitingByStandingOnBlocks,
):
    # Without shrinking: with it, a failure would take five minutes to show.
    case.settings = settings(
        max_examples=250,
        stateful_step_count=50,
        deadline=None,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )


class Passes:
    """One index over a radix tree, and passes that skip nearly all, as in a full memory."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.tree = RadixTree()
        self.index = waiting_index(self.tree)
        self.oracle = RematchedQueue(self.tree.match_len, block_size=1)
        self.order = 0

    def arrive(self, _=None):
        self.order += 1
        prompt = tuple(self.rng.choices("xy", k=self.rng.randint(1, 9)))
        request = Request(
            id=str(self.order),
            client=self.rng.choice(CLIENTS),
            prompt=prompt,
            input_len=len(prompt),
            max_tokens=1,
            order=self.order,
        )
        first = not self.index.waiting(request.client)
        self.index.add(request)
        self.oracle.requests.append(request)
        if first and request.client in self.oracle.open:
            self.index.open(request.client)

    def skip(self, request):
        self.index.hide(request)
        self.oracle.hidden.add(request.id)

    def leave(self, request):
        self.index.remove(request)
        self.oracle.requests.remove(request)
        self.oracle.hidden.discard(request.id)

    def admit(self, request):
        self.leave(request)
        path = self.tree.acquire(request.prompt, self.order)
        self.tree.release(self.tree.insert(path, request.prompt, self.order))

    def cancel(self, _):
        self.leave(self.rng.choice(self.oracle.requests))

    def evict(self, _):
        self.tree.evict(self.rng.randint(1, 6))

    def open_or_close(self, _):
        client = self.rng.choice(CLIENTS)
        self.oracle.open ^= {client}
        if client not in self.oracle.open:
            self.index.close(client)
        elif self.index.waiting(client):
            self.index.open(client)

    def show_one(self, _):
        hidden = [each for each in self.oracle.requests if each.id in self.oracle.hidden]
        if hidden:
            self.show(self.rng.choice(hidden))

    def show(self, request):
        self.index.show(request)
        self.oracle.hidden.remove(request.id)

    def run(self) -> None:
        now_and_then = [
            self.admit, self.cancel, self.arrive, self.evict, self.open_or_close, self.show_one,
        ]  # fmt: skip
        while (best := self.index.best()) is not None:
            assert best is self.oracle.best()
            act = self.rng.choice(now_and_then) if self.rng.random() < 0.2 else self.skip
            act(best)
        assert self.oracle.best() is None
        for request in self.oracle.requests:
            if request.id in self.oracle.hidden:
                self.show(request)
        assert not self.index._snapshot


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_who_is_best_of_those_that_are_left_when_nearly_all_were_passed_over(seed):
    """Many hidden ones are skipped and the rest is walked: the same answers, whatever happens meanwhile."""
    passes = Passes(seed)
    passes.oracle.open |= set(CLIENTS)
    for _ in range(8):
        for _ in range(passes.rng.randint(0, 12)):
            passes.arrive()
        passes.run()

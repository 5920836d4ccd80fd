"""The precise index beside a naive model: events in any order, copies, clears, optimistic entries, time."""

from array import array
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.cache.token_blocks import BlockedTokens
from fairhit.routers.prefix_index.kv_event_mirror import EngineHash, KVEventMirror, Stored
from fairhit.routers.prefix_index.precise import Knowledge, PrecisePrefixIndex

WORKERS = ("a", "b")
SECOND_US = 1_000_000
GRACE_US, TIMEOUT_US = 2 * SECOND_US, 300 * SECOND_US
# Few different tokens, so that prompts share beginnings and part from each other.
PROMPTS = st.lists(st.integers(0, 1), min_size=0, max_size=6).map(tuple)


@dataclass
class Naive:
    """State of a worker: copies of each confirmed prefix, and the deadline of each optimistic entry."""

    knowledge: Knowledge = Knowledge.NONE
    confirmed: dict[tuple[int, ...], int] = field(default_factory=dict)
    optimistic: dict[tuple[int, ...], int | None] = field(default_factory=dict)  # None: for ever
    begun: set[tuple[int, ...]] = field(default_factory=set)

    def match(self, prompt: tuple[int, ...]) -> int:
        depth = 0
        while depth < len(prompt):
            prefix = prompt[: depth + 1]
            if prefix not in self.confirmed and prefix not in self.optimistic:
                break
            depth += 1
        return depth

    def confirm(self, prefix: tuple[int, ...]) -> None:
        self.confirmed[prefix] = self.confirmed.get(prefix, 0) + 1
        self.forget(prefix)

    def withdraw(self, prefix: tuple[int, ...]) -> None:
        self.confirmed[prefix] -= 1
        if not self.confirmed[prefix]:
            del self.confirmed[prefix]

    def forget(self, prefix: tuple[int, ...]) -> None:
        self.optimistic.pop(prefix, None)
        self.begun.discard(prefix)

    def insert(self, prompt: tuple[int, ...], now_us: int) -> None:
        for prefix in prefixes(prompt):
            if prefix not in self.confirmed:
                complete = self.knowledge is Knowledge.COMPLETE
                self.optimistic[prefix] = now_us + TIMEOUT_US if complete else None
                self.begun.discard(prefix)

    def admitted(self, prompt: tuple[int, ...], now_us: int) -> None:
        for prefix in prefixes(prompt):
            if self.optimistic.get(prefix) is not None and prefix not in self.begun:
                self.optimistic[prefix] = now_us + GRACE_US
                self.begun.add(prefix)

    def learn(self, knowledge: Knowledge, now_us: int) -> None:
        if knowledge is self.knowledge:
            return
        self.knowledge = knowledge
        complete = knowledge is Knowledge.COMPLETE
        self.optimistic = dict.fromkeys(self.optimistic, now_us + GRACE_US if complete else None)
        self.begun = set(self.optimistic) if complete else set()

    def advance(self, now_us: int) -> None:
        for prefix, deadline_us in list(self.optimistic.items()):
            if deadline_us is not None and deadline_us <= now_us:
                self.forget(prefix)


def prefixes(prompt: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [prompt[:end] for end in range(1, len(prompt) + 1)]


def keys(prompt: tuple[int, ...]) -> tuple[int, ...]:
    """Return the keys of blocks of one token."""
    data = array("I", prompt).tobytes()
    return BlockedTokens(block_len=1).extended(data).chunks


COMMANDS = st.one_of(
    st.tuples(st.just("insert"), st.sampled_from(WORKERS), PROMPTS),
    st.tuples(st.just("admitted"), st.sampled_from(WORKERS), PROMPTS),
    st.tuples(st.just("confirm"), st.sampled_from(WORKERS), PROMPTS),
    st.tuples(st.just("withdraw"), st.sampled_from(WORKERS), PROMPTS),
    st.tuples(st.just("learn"), st.sampled_from(WORKERS), st.sampled_from(Knowledge)),
    st.tuples(st.just("advance"), st.integers(0, 400)),
    st.tuples(st.just("restart"), st.sampled_from(WORKERS)),
)


class Watcher:
    """A follower that could say at any time what each worker was said to have."""

    def __init__(self) -> None:
        self.has: dict[str, set[object]] = {worker: set() for worker in WORKERS}

    def stored(self, worker: str, block: object) -> None:
        self.has[worker].add(block)

    def evicted(self, worker: str, block: object) -> None:
        self.has[worker].discard(block)


@settings(max_examples=80, deadline=None)
@given(st.lists(COMMANDS, max_size=40), PROMPTS)
def test_it_matches_what_a_naive_list_of_prefixes_does(commands: list[tuple], asked: tuple) -> None:
    index, now_us = PrecisePrefixIndex(capacity=1000), 0
    naive = {worker: Naive() for worker in WORKERS}
    watcher = Watcher()
    index.follow(watcher)
    for worker in WORKERS:
        index.add_worker(worker)
    for name, *given_ in commands:
        if name == "advance":
            now_us += given_[0] * SECOND_US // 10
            index.advance(now_us)
            for one in naive.values():
                one.advance(now_us)
            continue
        worker, model = given_[0], naive[given_[0]]
        if name == "insert":
            index.insert(worker, keys(given_[1]))
            model.insert(given_[1], now_us)
        elif name == "admitted":
            index.admitted(worker, keys(given_[1]))
            model.admitted(given_[1], now_us)
        elif name == "confirm" and given_[1]:
            index.confirm(worker, keys(given_[1])[-1])
            model.confirm(given_[1])
        elif name == "withdraw" and given_[1] in model.confirmed:
            index.withdraw(worker, keys(given_[1])[-1])
            model.withdraw(given_[1])
        elif name == "learn" and (given_[1] is not Knowledge.NONE or not model.confirmed):
            index.learn(worker, given_[1])
            model.learn(given_[1], now_us)
        elif name == "restart":
            index.drop_worker(worker)
            index.add_worker(worker)
            naive[worker], watcher.has[worker] = Naive(), set()
        index.check()
        found = index.match(keys(asked))
        assert {w: found.of(w) for w in naive} == {w: m.match(asked) for w, m in naive.items()}
        for each, one in naive.items():
            confirmed = {keys(prefix)[-1] for prefix in one.confirmed}
            assert confirmed <= watcher.has[each]
            assert index.confirmed(each) == len(confirmed)
            assert index.size(each) == len(set(one.confirmed) | set(one.optimistic))


@settings(max_examples=60, deadline=None)
@given(st.lists(PROMPTS, max_size=30), st.integers(1, 6))
def test_optimistic_are_bounded_and_the_beginnings_of_prompts_stay_longest(
    prompts: list[tuple[int, ...]], capacity: int
) -> None:
    index = PrecisePrefixIndex(capacity=capacity)
    index.add_worker("a")
    for prompt in prompts:
        fit = index.insert("a", keys(prompt))
        index.check()
        assert index.size("a") <= capacity
        assert index.match(keys(prompt)).of("a") == fit == min(len(prompt), capacity)


@settings(max_examples=80, deadline=None)
@given(st.lists(COMMANDS, max_size=60), st.integers(1, 4))
def test_a_follower_that_enters_what_fits_and_drops_what_is_evicted_leaks_nothing(
    commands: list[tuple], capacity: int
) -> None:
    """As a scheduler's view of an engine's cache does, whatever else is known of that cache."""
    index, now_us, confirmed = PrecisePrefixIndex(capacity=capacity), 0, set()
    watcher = Watcher()
    index.follow(watcher)
    index.add_worker("a")
    for name, *given_ in commands:
        prompt = keys(given_[1]) if name in {"insert", "admitted", "confirm", "withdraw"} else ()
        if name == "insert":
            fit = index.insert("a", prompt)
            assert fit == index.match(prompt).of("a")
            watcher.has["a"].update(prompt[:fit])
        elif name == "admitted":
            index.admitted("a", prompt)
        elif name == "confirm" and prompt and prompt[-1] not in confirmed:
            index.confirm("a", prompt[-1])
            confirmed.add(prompt[-1])
        elif name == "withdraw" and prompt and prompt[-1] in confirmed:
            index.withdraw("a", prompt[-1])
            confirmed.discard(prompt[-1])
        elif name == "learn" and (given_[1] is not Knowledge.NONE or not confirmed):
            index.learn("a", given_[1])
        elif name == "advance":
            now_us += given_[0] * SECOND_US // 10
            index.advance(now_us)
        index.check()
        assert all(index.match((block,)).of("a") for block in watcher.has["a"])


def test_what_fits_ends_where_a_block_is_missing_though_the_last_is_confirmed() -> None:
    index, prompt = PrecisePrefixIndex(capacity=2), keys((0, 0, 0, 0))
    index.add_worker("a")
    index.confirm("a", prompt[-1])

    assert index.insert("a", prompt) == 2


# -- what engines say


@dataclass
class NaiveEngine:
    """Blocks of `block_len` tokens, by hashes of its own; several blocks may have one content."""

    block_len: int
    held: list[tuple[int, ...]] = field(default_factory=list)  # the whole prefix of each

    def match_len(self, prompt: tuple[int, ...]) -> int:
        length = 0
        while length + self.block_len <= len(prompt):
            if prompt[: length + self.block_len] not in self.held:
                break
            length += self.block_len
        return length


def engine_hash(prefix: tuple[int, ...]) -> EngineHash:
    return hash(("seed", prefix))


TOKENS = st.lists(st.integers(0, 1), min_size=0, max_size=12).map(tuple)
ENGINE_COMMANDS = st.one_of(
    st.tuples(st.just("store"), TOKENS, st.integers(0, 3)),
    st.tuples(st.just("remove"), st.integers(0, 100)),
    st.tuples(st.just("clear"), st.just(0)),
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(ENGINE_COMMANDS, max_size=30),
    st.sampled_from([(1, 1), (1, 2), (1, 4), (2, 3), (2, 2), (4, 2), (2, 1), (3, 2)]),
    TOKENS,
)
def test_an_engines_events_give_its_own_matches(
    commands: list[tuple], lengths: tuple[int, int], asked: tuple[int, ...]
) -> None:
    """For any block size, to within one block of the index if that does not divide the engine's."""
    engine_len, our_len = lengths
    index = PrecisePrefixIndex()
    index.add_worker("a")
    if engine_len % our_len == 0:
        index.set_stride("a", engine_len // our_len)
    blocks = KVEventMirror(index=index, worker="a", block_len=our_len)
    engine = NaiveEngine(engine_len)
    for name, what, *more in commands:
        if name == "store":
            full = len(what) // engine_len
            skipped = min(more[0], full)
            # An engine stores a block only where the one before it is.
            if skipped and what[: skipped * engine_len] not in engine.held:
                continue
            ends = [end * engine_len for end in range(skipped + 1, full + 1)]
            new = [what[:end] for end in ends]
            parent = engine_hash(what[: skipped * engine_len]) if skipped else None
            tokens = what[skipped * engine_len : full * engine_len]
            blocks.stored(Stored([engine_hash(one) for one in new], parent, tokens, engine_len))
            engine.held += new
        elif name == "remove" and engine.held:
            gone = engine.held.pop(what % len(engine.held))
            blocks.removed([engine_hash(gone)])
        elif name == "clear":
            engine.held.clear()
            blocks.clear()
        index.check()
        blocks.check()
        data = array("I", asked).tobytes()
        prompt = BlockedTokens(block_len=our_len).extended(data)
        found = index.match(prompt.chunks).of("a") * our_len
        had = engine.match_len(asked)
        if engine_len % our_len == 0:
            assert found == had
        elif our_len % engine_len == 0:
            # A block of ours is held with the last of the engine's in it, though others may be gone.
            assert found >= had - had % our_len
        assert index.confirmed("a") <= len(engine.held) * max(1, engine_len // our_len + 1)

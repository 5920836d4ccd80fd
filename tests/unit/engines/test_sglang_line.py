"""Who is next in SGLang, while it walks its list: with a stand-in for its loop, and no SGLang.

The stand-in does what SGLang's `_get_new_batch_prefill_raw` does with the queue: walk it, skip some, add
one after the other until the first misfit, and make the list anew without those it added.
"""

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from fairlead.core.radix_tree import RadixTree
from fairlead.core.runs import Runs
from fairlead.core.scheduler import Scheduler
from fairlead.core.service import Service
from fairlead.engines.sglang.line import HELD_PER_LOOK, Line
from fairlead.engines.sglang.queue import FairQueue
from fairlead.schedulers.dlpm import DLPM


@dataclass(eq=False)
class Req:
    """The attributes of SGLang's `Req` that the line reads."""

    client: str
    tokens: list[int]
    max_tokens: int = 4
    prefix_len: int = 0
    extend_end: int | None = None  # up to where its prompt is computed or being computed
    output_ids: list[int] = field(default_factory=list)
    is_over: bool = False
    extra_key = cache_salt = None

    @property
    def origin_input_ids(self) -> array:
        return array("q", self.tokens)

    @property
    def full_untruncated_fill_ids(self) -> list[int]:
        return self.tokens + self.output_ids

    @property
    def sampling_params(self) -> SimpleNamespace:
        return SimpleNamespace(max_new_tokens=self.max_tokens)

    def finished(self) -> bool:
        return self.is_over


class Cache(RadixTree):
    """The tree of the engine: ours, with the two words more that the line asks."""

    page_len = 1

    def units(self, tokens: array, extra_key: None, salt: None) -> tuple[int, ...]:
        return tuple(tokens)

    def put(self, tokens: Iterable[int]) -> None:
        prompt = Runs.of(tuple(tokens))
        self.release(self.insert(self.acquire(prompt, 0), prompt, 0))


class Engine:
    """SGLang's side: the list, what runs, and room for `room` prompt tokens in a batch."""

    def __init__(self, *, quantum: int = 10, room: int = 100) -> None:
        self.cache, self.room = Cache(), room
        self.fair = Scheduler(DLPM(cache=self.cache, quantum=quantum))
        self.line = Line(self.fair, self.cache, self)  # type: ignore[arg-type]
        self.queue: list[Any] = FairQueue([], self.line)
        self.left = 0

    def client_of(self, req: Req) -> str:
        return req.client

    def has_room(self, adder: object) -> bool:
        return self.left > 0

    def received(self, client: str) -> Service:
        return Service()

    def send(self, client: str, *tokens: int, **more: int) -> Req:
        req = Req(client, list(tokens), **more)
        self.queue.append(req)
        return req

    def look(
        self, *, room: int | None = None, skip: Callable[[Req], bool] = lambda _: False
    ) -> list[Req]:
        """One pass of SGLang's; whom it added, in its order."""
        self.left = self.room if room is None else room
        self.line.begin(self.queue)
        self.line.expect_walk(self)
        added: list[Req] = []
        for req in self.queue:
            if skip(req):
                continue
            req.prefix_len = min(
                self.cache.match_len(tuple(req.full_untruncated_fill_ids)), len(req.tokens) - 1
            )
            extend_len = len(req.full_untruncated_fill_ids) - req.prefix_len
            if extend_len > self.left:
                break
            self.left -= extend_len
            self.line.admitted(req)
            added.append(req)
        if added:
            self.queue = FairQueue([req for req in self.queue if req not in added], self.line)
        return added

    def through(self, reqs: Iterable[Req]) -> None:
        """The batch's prompts are computed and each emitted its first token."""
        for req in reqs:
            self.cache.put(req.tokens)
            req.output_ids.append(0)
        self.line.emitted(reqs)

    def owed(self, client: str) -> int:
        """The client's deficit in tokens."""
        return self.fair.policy.credit(client) // 10**8


def clients(reqs: Iterable[Req]) -> str:
    return "".join(req.client for req in reqs)


def test_each_is_charged_before_the_next_is_chosen():
    """
    One look admits six, of five tokens each. A list sorted beforehand would have all of a's first; here
    a's quantum is spent after two, and b has its turn in the same batch.
    """
    engine = Engine(quantum=10)
    for number in range(4):
        engine.send("a", 1, 2, 3, 4, 10 + number)
    for number in range(2):
        engine.send("b", 5, 6, 7, 8, 20 + number)

    assert clients(engine.look()) == "aabbaa"
    assert (engine.owed("a"), engine.owed("b")) == (0, 10)  # the second refill was for both


def test_the_longest_match_is_first_even_if_it_came_into_the_cache_while_all_waited():
    engine = Engine(quantum=100)
    engine.send("a", *range(10))
    engine.send("b", *range(50, 60))
    assert engine.look(room=0) == []
    engine.cache.put(range(50, 58))

    assert clients(engine.look()) == "ba"


def test_nothing_is_charged_or_refilled_for_who_did_not_fit():
    """SGLang sorts at every step, for hours if need be: a refill each time would make idle clients rich."""
    engine = Engine(quantum=10)
    engine.send("a", *range(8))
    before = engine.fair.refill_rounds

    for _ in range(50):
        assert engine.look(room=4) == []

    assert engine.owed("a") == 10  # one quantum, as the paper gives it
    assert engine.fair.refill_rounds == before + 1


def test_without_room_nobody_is_chosen_and_nothing_refilled():
    engine = Engine(quantum=10)
    engine.send("a", *range(8))

    assert engine.look(room=0) == []

    assert engine.fair.refill_rounds == 0


def test_what_sglang_skips_is_held_for_that_look_only():
    """A LoRA adapter without a slot: its requests wait, the others run, and in the next look it counts."""
    engine = Engine(quantum=100)
    engine.send("a", 1, 2)
    engine.send("b", 3, 4)

    assert clients(engine.look(skip=lambda req: req.client == "a")) == "b"
    assert clients(engine.look()) == "a"


def test_a_look_does_not_skip_through_all_that_waits():
    engine = Engine(quantum=1000)
    for number in range(HELD_PER_LOOK + 10):
        engine.send("a", number)
    asked: list[Req] = []

    engine.look(skip=lambda req: asked.append(req) is None)

    assert len(asked) == HELD_PER_LOOK
    assert engine.line.cut_looks == 1
    assert len(engine.look()) == HELD_PER_LOOK + 10


def test_a_prefix_that_is_being_computed_is_waited_for():
    """SGLang's lpm puts such requests last; here they are held until the prefix is in the tree."""
    engine = Engine(quantum=1000, room=1000)
    shared = list(range(40))
    for number in range(3):
        engine.send("a", *shared, 100 + number)

    first = engine.look()
    assert len(first) == 1
    engine.through(first)
    second = engine.look()

    assert [req.prefix_len for req in second] == [40, 40]


def test_followers_wait_for_a_bounded_number_of_looks():
    """A prefill that never ends, in chunks or on another rank, keeps nobody from running for ever."""
    engine = Engine(quantum=1000, room=1000)
    for number in range(2):
        engine.send("a", *range(40), 100 + number)
    engine.look()

    looks = [len(engine.look()) for _ in range(12)]

    assert sum(looks) == 1
    assert looks.index(1) <= 8


def test_a_retracted_request_comes_back_first_and_pays_nothing_twice():
    engine = Engine(quantum=10)
    first = engine.send("a", 1, 2, 3, 4)
    engine.look()
    engine.through([first])
    paid = engine.owed("a")
    engine.send("b", 5, 6)
    engine.queue.append(first)  # as SGLang retracts it

    assert clients(engine.look()) == "ab"
    assert engine.owed("a") == paid
    assert engine.fair.recomputed_len >= 1


def test_outputs_are_charged_once_though_a_retraction_drops_them():
    engine = Engine(quantum=100)
    req = engine.send("a", 1, 2, 3)
    engine.look()
    engine.through([req])
    engine.through([req])
    after_two = engine.owed("a")
    req.output_ids.clear()
    engine.queue.append(req)
    engine.look()

    engine.through([req])
    assert engine.owed("a") == after_two
    engine.through([req])
    engine.through([req])
    assert engine.owed("a") == after_two - 2


def test_who_ends_is_forgotten_and_who_is_aborted_too():
    """Wherever they are: in the queue, popped from it, missing from a new list, or running."""
    engine = Engine(quantum=100)
    done, popped, missing, running, stays = (engine.send(name, 1, 2) for name in "abcde")
    engine.look(room=4)  # admits two, of which done and popped were the oldest
    assert engine.line.live == 5
    engine.through([done])
    done.is_over = True
    engine.line.emitted([done])
    assert engine.line.live == 4

    engine.line.leave(popped)  # it was running
    assert engine.queue.pop(engine.queue.index(running)) is running
    engine.queue = FairQueue([req for req in engine.queue if req is not missing], engine.line)

    assert engine.line.live == 1
    assert engine.look() == [stays]


def test_a_list_that_was_changed_behind_our_back_is_believed():
    """Else a request that SGLang has dropped would be proposed to it, and run for nobody."""
    engine = Engine(quantum=100)
    gone, stays = engine.send("a", 1), engine.send("b", 2)
    list.remove(engine.queue, gone)

    assert engine.look() == [stays]
    assert engine.line.live == 1


def test_who_is_aborted_in_mid_chunk_pays_for_the_chunks_it_had():
    """A prompt of twelve pages in three chunks, hung up on after the first: two thirds come back."""
    engine = Engine(quantum=100)
    engine.cache.put(range(4))
    req = engine.send("a", *range(16))
    engine.look()
    assert engine.owed("a") == 100 - 12

    req.extend_end = 8
    engine.line.leave(req)

    assert engine.owed("a") == 100 - 4
    assert engine.fair.service("a").extend_len == 4


def test_only_the_walk_that_admits_is_in_our_order():
    """Metrics and aborts iterate over the list as well; that decides nothing and holds nobody."""
    engine = Engine(quantum=100)
    reqs = [engine.send(name, *range(3)) for name in "abc"]
    engine.cache.put(range(3))

    assert list(engine.queue) == reqs
    assert [req for _, req in enumerate(engine.queue)] == reqs
    assert clients(engine.look()) == "abc"


def test_the_victim_is_the_newest_of_the_client_owed_least():
    engine = Engine(quantum=10)
    poor = [engine.send("a", *range(10 * number, 10 * number + 9)) for number in range(2)]
    rich = engine.send("b", 100)
    running = engine.look()
    assert set(running) == {*poor, rich}
    for _ in range(4):  # who was admitted a moment ago may be retracted, who came back may not
        engine.line.begin(engine.queue)

    assert engine.line.victims(running, 1) == [running[[*running].index(poor[1])]]


def test_a_prompt_emptied_under_those_who_wait_is_matched_again():
    engine = Engine(quantum=100)
    engine.cache.put(range(50, 58))
    engine.send("a", *range(8))
    engine.send("b", *range(50, 58))
    engine.look(room=0)
    engine.cache.evict(8)

    engine.line.rematch()

    assert clients(engine.look()) == "ab"

"""The fleet's tree against a set of held prompts for each worker, written out in full."""

from functools import lru_cache

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Request
from fairhit_lab.sim.routing.fleet_tree import FleetTree

WORKERS = ("w0", "w1", "w2")
# Prompts that share much: tokens are few, lengths small.
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=12).map(tuple)


class Engine:
    """A worker's real cache, its events in flight, and what the delivered events reported."""

    def __init__(self) -> None:
        self.tree = RadixTree()
        self.tree.listen(self)
        self.events: list[tuple[str, tuple[int, ...], int]] = []
        self.known: set[tuple[int, ...]] = set()
        self.pins: list[object] = []

    def grew(self, tokens, length):
        self.events.append(("grew", tuple(tokens), length))

    def shrank(self, tokens, length):
        self.events.append(("shrank", tuple(tokens), length))

    def deliver(self, what, tokens, length):
        if what == "grew":
            self.known |= {tokens[:n] for n in range(1, length + 1)}
        else:
            self.known -= {tokens[:n] for n in range(length + 1, len(tokens) + 1)}


class Fleet(RuleBasedStateMachine):
    """Workers cache, evict, are added and removed; their events are late; requests are in flight."""

    make = staticmethod(lambda tokens: tokens)
    read = staticmethod(lambda prompt: prompt)
    room = 1000

    @initialize()
    def begin(self) -> None:
        self.fleet = FleetTree(max_nodes=self.room)
        self.engines: dict[str, Engine] = {}
        self.way: dict[Request, tuple[str, int]] = {}
        self.time = 0

    @rule(worker=st.sampled_from(WORKERS))
    def come(self, worker: str) -> None:
        if worker not in self.engines:
            self.fleet.add_worker(worker)
            self.engines[worker] = Engine()

    @rule(worker=st.sampled_from(WORKERS))
    def go(self, worker: str) -> None:
        if worker in self.engines and len(self.engines) > 1:
            self.fleet.drop_worker(worker)
            del self.engines[worker]
            self.way = {r: to for r, to in self.way.items() if to[0] != worker}

    @rule(worker=st.sampled_from(WORKERS), tokens=TOKENS)
    def send(self, worker: str, tokens: tuple[int, ...]) -> None:
        if worker in self.engines:
            self.time += 1
            request = Request(
                id=str(self.time),
                client="a",
                prompt=self.make(tokens),
                input_len=len(tokens),
                max_tokens=1,
                order=self.time,
            )
            self.fleet.match(request.prompt, len(tokens) - 1)
            self.fleet.sent(request, worker)
            self.way[request] = (worker, self.time)

    @rule(pick=st.integers(0, 99))
    def arrive(self, pick: int) -> None:
        if self.way:
            request = list(self.way)[pick % len(self.way)]
            del self.way[request]
            self.fleet.ended(request)
            self.fleet.ended(request)  # the second call has no effect

    @rule(worker=st.sampled_from(WORKERS), tokens=TOKENS, keep=st.booleans())
    def cache(self, worker: str, tokens: tuple[int, ...], keep: bool) -> None:
        if worker in self.engines:
            engine = self.engines[worker]
            path = engine.tree.insert(engine.tree.acquire(tokens, 0), tokens, 0)
            if keep:
                engine.pins.append(path)
            else:
                engine.tree.release(path)

    @rule(worker=st.sampled_from(WORKERS), size=st.integers(1, 9), unpin=st.booleans())
    def evict(self, worker: str, size: int, unpin: bool) -> None:
        if worker in self.engines:
            engine = self.engines[worker]
            if unpin and engine.pins:
                engine.tree.release(engine.pins.pop(0))
            engine.tree.evict(size)

    @rule(worker=st.sampled_from(WORKERS), count=st.integers(1, 5))
    def deliver(self, worker: str, count: int) -> None:
        """Deliver the next events of a worker, in order."""
        if worker in self.engines:
            engine = self.engines[worker]
            for what, tokens, length in engine.events[:count]:
                engine.deliver(what, tokens, length)
                getattr(self.fleet, what)(worker, self.make(tokens), length)
            del engine.events[:count]

    def depth(self, worker: str, prompt: tuple[int, ...]) -> int:
        """Return the length of the prompt that the worker is confirmed or expected to hold."""
        held = set(self.engines[worker].known)
        for request, (to, _) in self.way.items():
            if to == worker:
                whole = self.read(request.prompt)
                held |= {whole[:n] for n in range(1, len(whole) + 1)}
        return max((n for n in range(1, len(prompt) + 1) if prompt[:n] in held), default=0)

    @invariant()
    def everyone_holds_what_was_said_or_sent(self) -> None:
        self.fleet.check()
        prompts = {self.read(request.prompt) for request in self.way}
        prompts |= {held for engine in self.engines.values() for held in engine.known}
        for prompt in sorted(prompts)[:20]:
            longer = (*prompt, 1, 0)
            matches = self.fleet.match(self.make(longer), len(longer))
            expected = {worker: self.depth(worker, longer) for worker in self.engines}
            found = {worker: matches.of(worker) for worker in self.engines}
            assert all(found[worker] <= expected[worker] for worker in self.engines)
            assert found == expected or self.fleet.skipped
            lengths = [length for length, _ in matches.by_length]
            assert lengths == sorted(set(lengths), reverse=True)

    def teardown(self) -> None:
        """Remove all workers: no node is left."""
        for worker in self.engines:
            self.fleet.drop_worker(worker)
        self.fleet.check()
        assert len(self.fleet) == 0


class FleetOfRuns(Fleet):
    """The same with prompts as runs: token t at place n is token n of segment t.

    Those of the same tokens are mostly one object, as events are of the prompt object that was sent.
    """

    @staticmethod
    @lru_cache(maxsize=16)
    def make(tokens):
        return Runs([(str(token), place, 1) for place, token in enumerate(tokens)])

    @staticmethod
    def read(prompt):
        return tuple(int(segment) for segment, _ in prompt)


class FullFleet(Fleet):
    """The same with few nodes: matches may be too short, never too long."""

    room = 6


SETTINGS = settings(
    deadline=None,
    max_examples=80,
    stateful_step_count=40,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)
Fleet.TestCase.settings = SETTINGS
FleetOfRuns.TestCase.settings = SETTINGS
FullFleet.TestCase.settings = SETTINGS
TestFleet = Fleet.TestCase
TestFleetOfRuns = FleetOfRuns.TestCase
TestFullFleet = FullFleet.TestCase

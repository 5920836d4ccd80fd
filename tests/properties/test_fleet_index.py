"""[42] One queue for many engines: each engine is given what a search of the whole queue would give it."""

import random

import pytest

from fairhit.core.cache.block_set import BlockCache
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.cache.trie import checked_nodes
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.core.service import TokenCost
from fairhit.core.waiting.cache_listener import prefix_index
from fairhit.core.waiting.fleet import FleetCaches, FleetIndex
from fairhit.policies import make_policy
from tests.reference.matching import RematchedQueue

CLIENTS = "abcd"


class Blocks:
    """An engine that caches by blocks, and evicts from the ends of prompts."""

    def __init__(self) -> None:
        self.cache = BlockCache(block_size=1)
        self.match_len = self.cache.match_len

    def hold(self, rng: random.Random, prompt: tuple[str, ...]) -> None:
        self.cache.learn(prompt[: rng.randint(0, len(prompt))])

    def evict(self, rng: random.Random) -> None:
        held = list(self.cache._copies)
        ends = [each for each in held if not any(o != each and o.startswith(each) for o in held)]
        if ends:
            self.cache.evict(rng.choice(ends))


class Tokens:
    """An engine that caches tokens in a tree."""

    def __init__(self) -> None:
        self.cache = RadixTree()
        self.match_len = self.cache.match_len
        self.now = 0

    def hold(self, rng: random.Random, prompt: tuple[str, ...]) -> None:
        self.now += 1
        tokens = Runs.of(prompt[: rng.randint(0, len(prompt))])
        path = self.cache.insert(self.cache.acquire(tokens, self.now), tokens, self.now)
        self.cache.release(path)

    def evict(self, rng: random.Random) -> None:
        if self.cache.size:
            self.cache.evict(rng.randint(1, 3))


def key(kind: type, text: str) -> tuple[str, ...]:
    """A prompt of these letters: as blocks, each says what is before it, as hashes do."""
    if kind is Blocks:
        return tuple(text[: end + 1] for end in range(len(text)))
    return tuple(text)


class World:
    """A queue for three engines, and a searched one for each."""

    def __init__(self, kind: type, seed: int, *, near: int, hits: bool) -> None:
        self.rng = random.Random(seed)
        self.kind, self.near, self.hits = kind, near, hits
        self.places = dict.fromkeys(CLIENTS, 0)
        self.engines = {name: kind() for name in ("w0", "w1", "w2")}
        self.caches = FleetCaches()
        for name, engine in self.engines.items():
            self.caches.add_engine(name, engine.cache)
        self.index = prefix_index(self.caches, near=near, standing=self.places.__getitem__)
        assert isinstance(self.index, FleetIndex)
        self.searched = {name: self._search(engine) for name, engine in self.engines.items()}
        self.requests: list[Request] = []
        self.opened: dict[str, bool] = {}
        self.order = 0
        self.hits_given = 0

    def _search(self, engine) -> RematchedQueue:
        return RematchedQueue(
            engine.match_len, block_size=1, near=self.near, standing=self.places.__getitem__
        )

    def prompt(self) -> tuple[str, ...]:
        rng = self.rng
        return key(self.kind, rng.choice(["", "xyxxyyxyyx"]) + "".join(
            rng.choice("xy") for _ in range(rng.randint(1, 7))
        ))  # fmt: skip

    def arrive(self) -> None:
        self.order += 1
        prompt = self.prompt()
        # Now and then one that is older than all: it waited for something else.
        order = -self.order if self.rng.random() < 0.1 else self.order
        request = Request(
            id=str(self.order), client=self.rng.choice(CLIENTS), prompt=prompt,
            input_len=len(prompt), max_tokens=1, order=order,
        )  # fmt: skip
        self.requests.append(request)
        self.index.add(request)
        for each in self.searched.values():
            each.requests.append(request)
        if self.index.waiting(request.client) == 1:
            self.stand(request.client)

    def leave(self, request: Request) -> None:
        self.requests.remove(request)
        self.index.remove(request)
        for each in self.searched.values():
            each.requests.remove(request)
        if not self.index.waiting(request.client):
            self.opened.pop(request.client, None)
            self._tell()

    def stand(self, client: str) -> None:
        """The client is opened, closed, or has another standing."""
        if not self.index.waiting(client):
            return
        what = self.rng.choice(["open", "open", "close", "hits" if self.hits else "open"])
        # Who is in debt stands behind all who are not.
        self.places[client] = self.rng.randint(-5, 5) + 20 * (what == "hits")
        self.opened.pop(client, None)
        if what == "close":
            self.index.close(client)
        else:
            self.opened[client] = what == "hits"
            (self.index.open_for_hits if what == "hits" else self.index.open)(client)
        self._tell()

    def _tell(self) -> None:
        for each in self.searched.values():
            each.open = set(self.opened)
            each.hits_only = {client for client, hits in self.opened.items() if hits}

    def come_and_go(self) -> None:
        """An engine leaves, or comes back with what it holds."""
        name = self.rng.choice(list(self.engines))
        self.caches.remove_engine(name)
        if self.rng.random() < 0.5:
            self.engines[name] = self.kind()
            self.searched[name]._match_len = self.engines[name].match_len
        self.caches.add_engine(name, self.engines[name].cache)

    def step(self) -> None:
        rng = self.rng
        engine = self.engines[rng.choice(list(self.engines))]
        what = rng.choices(["arrive", "leave", "stand", "hold", "evict", "engine"],
                           [8, 5, 4, 6, 5, 0.3])[0]  # fmt: skip
        if what == "arrive":
            self.arrive()
        elif what == "leave" and self.requests:
            self.leave(rng.choice(self.requests))
        elif what == "stand":
            self.stand(rng.choice(CLIENTS))
        elif what == "hold":
            waiting = [request.prompt for request in self.requests]
            engine.hold(rng, rng.choice([*waiting, self.prompt()]))
        elif what == "evict":
            engine.evict(rng)
        elif what == "engine":
            self.come_and_go()

    def check(self) -> None:
        """Each engine is given the best by a search."""
        for name, searched in self.searched.items():
            self.caches.at(name)
            given, best = self.index.best(), searched.best()
            assert given == best, (name, given, best)
            self.hits_given += given is not None and self.opened[given.client]
            for request in self.requests[:3]:
                assert self.index.match_len(request) == searched.match(request)

    def check_trie(self) -> None:
        """No node is without a request at or below it, and each knows its clients' oldest."""
        root = self.index.trie.root
        for node in checked_nodes(root):
            below = {
                each.client: each
                for each in sorted(self.requests, key=lambda one: -one.order)
                if each.prompt[: min(node.end, each.input_len - 1)] == tuple(node.key.units()[: node.end])
            }  # fmt: skip
            assert {name: entry.request for name, entry in node.oldest.items()} == below
            assert node is root or below
        for engine in self.index.trie.engines.values():
            assert engine.anchors == sorted(engine.anchors, key=lambda one: one[:2])
            for depth, _, node in engine.anchors:
                assert -depth == node.start + node.cached[engine]


@pytest.mark.parametrize("kind", [Blocks, Tokens])
@pytest.mark.parametrize("near", [1, 4])
@pytest.mark.parametrize("seed", range(25))
def test_each_engine_is_given_the_best_request_by_its_cache(
    kind: type, near: int, seed: int
) -> None:
    world = World(kind, seed, near=near, hits=seed % 2 == 1)
    for _ in range(250):
        world.step()
        world.check()
    world.check_trie()
    for request in list(world.requests):
        world.leave(request)
        world.check()
    assert not world.index.trie.root.children and not world.index.trie._nodes


class Twins:
    """The same requests in a queue of one engine and in one of a fleet of one, under one policy."""

    def __init__(self, policy: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cache = BlockCache(block_size=16)
        self.fleet = FleetCaches()
        self.fleet.add_engine("w0", self.cache)
        settings = {"quantum": 64, "cost": TokenCost()} if policy != "lpm" else {}
        if policy == "fair":
            settings |= {"near": 32, "overdraft": 64, "eviction": "lru"}
        self.queues = [
            FairQueue(make_policy(policy, cache=cache, **settings))
            for cache in (self.cache, self.fleet)
        ]
        self.fleet.at("w0")
        self.running: list[Request] = []
        self.order = self.taken = 0

    def step(self) -> None:
        rng = self.rng
        what = rng.choices(["arrive", "take", "decode", "end", "evict"], [6, 5, 4, 3, 2])[0]
        if what == "arrive":
            self.order += 1
            prompt = key(
                Blocks, rng.choice(["", "xyxxyyxyyx"]) + rng.choice("xyz") * rng.randint(1, 3)
            )
            request = Request(
                id=str(self.order), client=rng.choice(CLIENTS), prompt=prompt,
                input_len=16 * len(prompt) + 1, max_tokens=50, order=self.order,
            )  # fmt: skip
            for queue in self.queues:
                queue.add(request)
        elif what == "take":
            self.take()
        elif what == "decode" and self.running:
            request = rng.choice(self.running)
            for queue in self.queues:
                queue.decode(request, 3)
        elif what == "end" and self.running:
            request = self.running.pop(rng.randrange(len(self.running)))
            for queue in self.queues:
                queue.finish(request)
        elif what == "evict":
            ends = [each for each in self.cache._copies
                    if not any(o != each and o.startswith(each) for o in self.cache._copies)]  # fmt: skip
            if ends:
                self.cache.evict(rng.choice(ends))

    def take(self) -> None:
        """Both propose the same request, which is admitted and cached."""
        for queue in self.queues:
            queue.begin_pass()
        first, second = (queue.propose() for queue in self.queues)
        assert first is second, (first, second)
        if first is not None:
            extend_len = max(1, first.input_len - 16 * self.cache.match_len(first.prompt))
            for queue in self.queues:
                queue.admit(first, extend_len=extend_len)
            self.cache.learn(first.prompt)
            self.running.append(first)
            self.taken += 1


@pytest.mark.parametrize("policy", ["dlpm", "lpm", "fair"])
@pytest.mark.parametrize("seed", range(20))
def test_a_fleet_of_one_decides_as_one_engine(policy: str, seed: int) -> None:
    twins = Twins(policy, seed)
    for _ in range(600):
        twins.step()

    assert twins.taken > 50


def test_overdrafts_are_used_in_these_runs() -> None:
    world = World(Blocks, 1, near=4, hits=True)
    for _ in range(400):
        world.step()
        world.check()

    assert world.hits_given > 5

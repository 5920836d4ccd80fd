"""The CPU time of scheduling D engines, measured on this project's code, beside a decode step.

A round schedules every engine once: each admits one request, and one arrives. Four ways: as printed,
one scheduler matches its whole queue against each engine's tree and sorts it; the central one keeps an
index of the queue for each tree; D2LPM matches each arrival once, and each engine has an index of its
own queue; the gateway's queue under `fair` is one queue for all engines, with one trie of its prompts. No
network: what is synchronised has no cost here.
"""

import random
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.core.waiting.fleet import FleetCaches
from fairhit.policies import make_policy
from fairhit.policies.dlpm import DLPM
from fairhit.routers.d2lpm import D2LPM
from fairhit_lab.baselines.central_dlpm import CentralDLPM
from fairhit_lab.sim.engines.interface import Pass
from fairhit_lab.sim.hardware.step_time import parse_step_time
from fairhit_lab.sim.routing.fleet_tree import FleetTree

# Trees of thought as in DLPM's Table 2: 546 tokens shared with other requests, and some of its own.
SHARED_TOKENS, OWN_TOKENS = 546, 40
PREFIXES, CLIENTS = 64, 8
# Prompts in each engine's tree before the clock starts.
CACHED = 64
ROUNDS = 9
DECODES, CONTEXT = 25, 25 * 804
PS_PER_MS = 10**9


class SeededTraffic:
    """Requests as plain token ids, from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._order = 0
        self._prefixes = [
            tuple(self._rng.randrange(128_000) for _ in range(SHARED_TOKENS))
            for _ in range(PREFIXES)
        ]

    def request(self) -> Request:
        """The next arrival."""
        self._order += 1
        prefix = self._rng.randrange(PREFIXES)
        own = tuple(self._rng.randrange(128_000) for _ in range(OWN_TOKENS))
        prompt = Runs([((*self._prefixes[prefix], *own), 0, SHARED_TOKENS + OWN_TOKENS)])
        return Request(
            id=str(self._order),
            client=f"c{prefix % CLIENTS}",
            prompt=prompt,
            input_len=len(prompt),
            max_tokens=256,
            order=self._order,
        )


def _cache(tree: RadixTree, request: Request) -> int:
    """Insert a prompt into a tree and return the number of tokens that had to be computed."""
    prompt = request.prompt
    extend_len = max(1, request.input_len - tree.match_len(prompt))
    tree.release(tree.insert(tree.acquire(prompt, now_us=0), prompt, now_us=0))
    return extend_len


def _trees(traffic: SeededTraffic, engines: int) -> list[RadixTree]:
    trees = [RadixTree() for _ in range(engines)]
    for tree in trees:
        for _ in range(CACHED):
            _cache(tree, traffic.request())
    return trees


def _timed(work: Callable[[], None]) -> float:
    """The milliseconds of CPU that the call took in this thread."""
    begun = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - begun) / 10**6


def printed_ms(seed: int, engines: int, waiting: int) -> float:
    """The median round of matching the whole queue against each tree and sorting it, for each engine."""
    traffic = SeededTraffic(seed)
    trees = _trees(traffic, engines)
    queue = [traffic.request() for _ in range(waiting)]

    def sort_queue(tree: RadixTree) -> None:
        queue.sort(key=lambda request: (-tree.match_len(request.prompt), request.order))

    spent = []
    for _ in range(ROUNDS):
        total = 0.0
        for tree in trees:
            total += _timed(lambda tree=tree: sort_queue(tree))  # type: ignore[misc]
            _cache(tree, queue.pop(0))
            queue.append(traffic.request())
        spent.append(total)
    return median(spent)


def central_ms(seed: int, engines: int, waiting: int) -> float:
    """The median round with an index of the queue for each tree, including its upkeep."""
    traffic = SeededTraffic(seed)
    trees = _trees(traffic, engines)
    central = CentralDLPM()
    views = [central.add_worker(f"w{number}", tree) for number, tree in enumerate(trees)]

    def claimed(request: Request, worker: str) -> None:
        for number, view in enumerate(views):
            if worker != f"w{number}":
                view.remove(request)

    central.claimed = claimed

    def arrive(request: Request) -> None:
        for view in views:
            view.add(request)

    for _ in range(waiting):
        arrive(traffic.request())

    def turn(arrivals: Iterable[Request]) -> None:
        for view, tree, arrival in zip(views, trees, arrivals, strict=True):
            view.begin_pass()
            request = view.next()
            assert request is not None
            view.on_admit(request, extend_len=_cache(tree, request))
            arrive(arrival)

    return _median_round(traffic, engines, turn)


def d2lpm_ms(seed: int, engines: int, waiting: int) -> float:
    """The median round with D2LPM: arrivals are matched in the fleet's tree, engines schedule queues."""
    traffic = SeededTraffic(seed)
    trees = _trees(traffic, engines)
    schedulers = [FairQueue(DLPM(cache=tree)) for tree in trees]
    fleet, router = FleetTree(), D2LPM()
    for number in range(engines):
        fleet.add_worker(f"w{number}")
        router.add_worker(f"w{number}")

    def arrive(request: Request) -> None:
        matches = fleet.match(request.prompt, request.input_len - 1)
        worker = router.route(request, matches=matches)
        extend_len = max(1, request.input_len - matches.of(worker))
        router.dispatch(request, worker, extend_len=extend_len)
        fleet.sent(request, worker)
        schedulers[int(worker[1:])].add(request)

    for _ in range(waiting):
        arrive(traffic.request())

    def turn(arrivals: Iterable[Request]) -> None:
        for number, (scheduler, arrival) in enumerate(zip(schedulers, arrivals, strict=True)):
            scheduler.begin_pass()
            request = scheduler.propose()
            if request is not None:
                extend_len = _cache(trees[number], request)
                scheduler.admit(request, extend_len=extend_len)
                scheduler.finish(request)
                fleet.grew(f"w{number}", request.prompt, request.input_len)
                fleet.ended(request)
                router.true_up(request, f"w{number}", extend_len=extend_len, output_len=1)
            arrive(arrival)

    return _median_round(traffic, engines, turn)


def fleet_ms(seed: int, engines: int, waiting: int) -> float:
    """The median round with one queue under `fair` for all engines, as the gateway has it."""
    traffic = SeededTraffic(seed)
    trees = _trees(traffic, engines)
    caches = FleetCaches()
    for number, tree in enumerate(trees):
        caches.add_engine(f"w{number}", tree)
    queue = FairQueue(make_policy("fair", cache=caches))
    for _ in range(waiting):
        queue.add(traffic.request())

    def turn(arrivals: Iterable[Request]) -> None:
        for number, (tree, arrival) in enumerate(zip(trees, arrivals, strict=True)):
            caches.at(f"w{number}")
            queue.begin_pass()
            request = queue.propose()
            assert request is not None
            queue.admit(request, extend_len=_cache(tree, request))
            queue.finish(request)
            queue.add(arrival)

    return _median_round(traffic, engines, turn)


def _median_round(
    traffic: SeededTraffic, engines: int, turn: Callable[[Iterable[Request]], None]
) -> float:
    spent = []
    for _ in range(ROUNDS):
        arrivals = [traffic.request() for _ in range(engines)]
        spent.append(_timed(lambda arrivals=arrivals: turn(arrivals)))  # type: ignore[misc]
    return median(spent)


def decode_ms(step_time: str) -> float:
    """The time of a decode step of 25 requests, by the step-time model."""
    work = Pass(decodes=DECODES, context=CONTEXT)
    return parse_step_time(step_time).pass_ps(work) / PS_PER_MS


WAYS = {"printed": printed_ms, "central": central_ms, "d2lpm": d2lpm_ms, "fleet": fleet_ms}


def measured(seed: int, *, way: str, engines: int, waiting: int, step_time: str) -> dict[str, Any]:
    """The summary of a case: the milliseconds of a round and of a decode step, and their ratio."""
    round_ms, step_ms = WAYS[way](seed, engines, waiting), decode_ms(step_time)
    return {"round_ms": round_ms, "decode_ms": step_ms, "of_a_step": round_ms / step_ms}

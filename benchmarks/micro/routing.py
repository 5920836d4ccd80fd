"""Cost of sending one request through each router, index included, by workers and by clients.

Caveat first: this is the routing of a fleet and nothing else, in CPU time of one thread. `choose` is
the match, the choice and what is written down for it; `follow` is everything that comes after: the
worker's cache events (grown, evicted) applied to the fleet's index, and the request settled. The
workers' own caches are real (`RadixTree`, 8,000 tokens each, full) but not timed. Prompts are
about 1,000 tokens in three runs: one of 20 system prompts, a conversation's past, a new turn.
"""

import random
import statistics
import sys
import time
from collections import deque

from benchmarks.record import write_rows
from fairhit.core.cache.prefix_matches import PrefixMatches
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Request
from fairhit.routers import ROUTERS, make_router
from fairhit_lab.sim.routing.fleet_tree import FleetTree

WORKERS = (4, 64, 256, 1_000)
CLIENTS = (100, 10_000)
CACHE_TOKENS = 8_000
IN_FLIGHT = 4  # requests for each worker
REQUESTS = 1_500
RUNS = 5
# Preble weighs all workers against each other: this bench would take an hour with a thousand.
MOST_WORKERS = {"preble": 64}
# Those that ask no index are measured without one.
INDEXED = {"d2lpm"}


class Worker:
    """A cache that fills and evicts, and writes down what it did."""

    def __init__(self) -> None:
        self.tree = RadixTree()
        self.tree.listen(self)
        self.news: list[tuple[str, Runs, int]] = []

    def grew(self, tokens: Runs, length: int) -> None:
        self.news.append(("grew", tokens, length))

    def shrank(self, tokens: Runs, length: int) -> None:
        self.news.append(("shrank", tokens, length))

    def serve(self, request: Request) -> None:
        """Compute the prompt; the oldest give way."""
        path = self.tree.acquire(request.prompt, 0)
        need = request.input_len - path.end
        self.tree.evict(self.tree.size + need - CACHE_TOKENS)
        self.tree.release(self.tree.insert(path, request.prompt, 0))


class Fleet:
    """Workers behind one router, and conversations that go on."""

    def __init__(self, name: str, workers: int, clients: int, seed: int) -> None:
        self._rng = random.Random(seed)
        self._clients = clients
        self._order = 0
        self.router = make_router(name)
        self.index = FleetTree() if name in INDEXED else None
        self.workers = {f"w{number:04}": Worker() for number in range(workers)}
        for worker in self.workers:
            self.router.add_worker(worker)
            if self.index is not None:
                self.index.add_worker(worker)
        self._flying: deque[tuple[Request, str, int]] = deque()
        self.spent_ns = {"choose": 0, "follow": 0}

    def request(self) -> Request:
        """The next turn of some client's conversation."""
        self._order += 1
        client = self._rng.randrange(self._clients)
        talk = f"{client}/{self._rng.randrange(3)}"
        past = 100 * self._rng.randrange(1, 8)
        prompt = Runs([(client % 20, 0, 500), (talk, 0, past), (self._order, 0, 100)])
        return Request(
            id=str(self._order),
            client=f"client-{client}",
            prompt=prompt,
            input_len=len(prompt),
            max_tokens=100,
            order=self._order,
            arrival_us=self._order * 1_000,
        )

    def turn(self) -> None:
        """Send a request; when enough are in flight, end the oldest."""
        request = self.request()
        begun = time.thread_time_ns()
        matches = (
            self.index.match(request.prompt, request.input_len - 1)
            if self.index is not None
            else PrefixMatches()
        )
        worker = self.router.route(request, matches=matches)
        extend_len = max(1, request.input_len - matches.of(worker))
        self.router.dispatch(request, worker, extend_len=extend_len)
        if self.index is not None:
            self.index.sent(request, worker)
        self.spent_ns["choose"] += time.thread_time_ns() - begun
        self._flying.append((request, worker, extend_len))
        if len(self._flying) > IN_FLIGHT * len(self.workers):
            self._end(*self._flying.popleft())

    def _end(self, request: Request, worker: str, extend_len: int) -> None:
        at = self.workers[worker]
        at.serve(request)
        begun = time.thread_time_ns()
        if self.index is not None:
            for what, tokens, length in at.news:
                (self.index.grew if what == "grew" else self.index.shrank)(worker, tokens, length)
            self.index.ended(request)
        self.router.true_up(request, worker, extend_len=extend_len, output_len=100)
        self.spent_ns["follow"] += time.thread_time_ns() - begun
        at.news.clear()


def routed_us(name: str, workers: int, clients: int, seed: int) -> dict[str, float]:
    """Return the mean microseconds of CPU of each part, once all caches are full."""
    fleet = Fleet(name, workers, clients, seed)
    filled = CACHE_TOKENS // 600 if name in INDEXED or name == "preble" else 1
    for _ in range(workers * (filled + IN_FLIGHT)):
        fleet.turn()
    fleet.spent_ns = {"choose": 0, "follow": 0}
    for _ in range(REQUESTS):
        fleet.turn()
    return {part: spent / REQUESTS / 1_000 for part, spent in fleet.spent_ns.items()}


def main() -> None:
    """Measure, print, and write the rows."""
    rows: list[dict[str, object]] = []
    for name in ROUTERS:
        for workers in (each for each in WORKERS if each <= MOST_WORKERS.get(name, each)):
            for clients in CLIENTS:
                runs = [routed_us(name, workers, clients, seed) for seed in range(RUNS)]
                for part in ("choose", "follow"):
                    values = sorted(run[part] for run in runs)
                    row: dict[str, object] = {
                        "router": name,
                        "part": part,
                        "workers": workers,
                        "clients": clients,
                        "us_min": round(values[0], 2),
                        "us_median": round(statistics.median(values), 2),
                        "us_max": round(values[-1], 2),
                    }
                    rows.append(row)
                    print(
                        f"{name:20} {part} {workers:6,} workers {clients:7,} clients:"
                        f" {row['us_median']:8} us (median of {RUNS})",
                        flush=True,
                    )
    write_rows("routing", rows, seeds=list(range(RUNS)))


if __name__ == "__main__":
    sys.exit(main())

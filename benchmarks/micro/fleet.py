"""Cost of a decision of `fair` in one queue for many engines, by number of engines and of waiting requests.

All prompts begin with one template, so that each request matches at each engine; a client's prompts share a
prefix; the rest is a request's own. An engine that is free takes the best request by its cache and holds its
prompt from then on, while it evicts the least recently used. Each admission is followed by the end of an
older request and by an arrival, so that the queue keeps its length.

    decision   `begin_pass`, `propose` and `admit` for the engine that is free
    arrival    the match of the prompt in the index of all engines, and `add`
    caches     the changes of the engine's cache, as the queue is notified of them
    end        outputs charged, and the request's end

The largest row is of NEXT's target: 1,000 engines, 100,000 waiting requests, 10,000 clients.
"""

import gc
import random
import resource
import statistics
import sys
import time
from collections import deque

from benchmarks.record import write_rows
from fairhit.core.cache.block_set import BlockCache
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request, Unit, WorkerId
from fairhit.core.waiting.fleet import FleetCaches
from fairhit.policies import make_policy
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex

# (engines, waiting requests, clients)
SIZES = ((1, 10_000, 1_000), (16, 10_000, 1_000), (64, 10_000, 1_000), (1_000, 10_000, 1_000),
         (1_000, 100_000, 10_000))  # fmt: skip
TEMPLATE_BLOCKS, PREFIX_BLOCKS, OWN_BLOCKS, BLOCK = 32, 64, 8, 16
CACHED_BLOCKS = 1_024  # of each engine
RUNNING = 8  # of each engine
DECISIONS = 4_000
RUNS = 3


class Fleet:
    """Engines with a cache each, and one queue in front of them."""

    def __init__(self, engines: int, waiting: int, clients: int, seed: int) -> None:
        self._rng = random.Random(seed)
        self._clients = clients
        self._order = 0
        self._index = ApproximatePrefixIndex(capacity=CACHED_BLOCKS)
        self._index.follow(self)
        self._caches = FleetCaches(finder=self._index.match)
        self._views: dict[WorkerId, BlockCache] = {}
        self._running: dict[WorkerId, deque[Request]] = {}
        for number in range(engines):
            name = f"w{number}"
            self._views[name] = BlockCache(block_size=BLOCK)
            self._running[name] = deque()
            self._index.add_worker(name)
            self._caches.add_engine(name, self._views[name])
        self._queue = FairQueue(
            make_policy("fair", cache=self._caches, eviction="lru"), max_clients=0
        )
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._requests = [self._request() for _ in range(waiting)]
        prompts = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for request in self._requests:
            self._queue.add(request)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self.memory = {
            "prompts_mib": (prompts - before) >> 10,
            "queue_mib": (after - prompts) >> 10,
        }
        self._requests.clear()
        self.spent: dict[str, list[int]] = {}

    def evicted(self, worker: WorkerId, chunk: Unit) -> None:
        """Pass an eviction on to the engine's view."""
        self._views[worker].evict(chunk)

    def decide(self) -> None:
        """Let one engine take a request, another request end, and a third arrive."""
        name = self._rng.choice(list(self._views))
        running = self._running[name]
        if len(running) == RUNNING:
            self._time("end", lambda: self._end(running.popleft()))
        request = self._time("decision", lambda: self._admit(name))
        running.append(request)
        self._time("caches", lambda: self._hold(name, request))
        arrival = self._request()
        self._time("arrival", lambda: self._queue.add(arrival))

    def _admit(self, name: WorkerId) -> Request:
        self._caches.at(name)
        self._queue.begin_pass()
        request = self._queue.propose()
        assert request is not None, "no request is due"
        matched = self._views[name].match_len(request.prompt) * BLOCK
        self._queue.admit(request, extend_len=max(1, request.input_len - matched))
        return request

    def _hold(self, name: WorkerId, request: Request) -> None:
        self._index.insert(name, request.prompt)
        self._views[name].learn(request.prompt)

    def _end(self, request: Request) -> None:
        self._queue.decode(request, 32)
        self._queue.finish(request)

    def _time(self, name: str, work):  # type: ignore[no-untyped-def]
        begun = time.perf_counter_ns()
        result = work()
        self.spent.setdefault(name, []).append(time.perf_counter_ns() - begun)
        return result

    def _request(self) -> Request:
        """The next arrival."""
        self._order += 1
        client = self._rng.randrange(self._clients)
        prompt = list(range(TEMPLATE_BLOCKS))
        prompt += [(client + 1) * 1_000 + at for at in range(PREFIX_BLOCKS)]
        prompt += [-(self._order * 1_000 + at) for at in range(OWN_BLOCKS)]
        return Request(
            id=str(self._order), client=f"client-{client}", prompt=tuple(prompt),
            input_len=len(prompt) * BLOCK + 1, max_tokens=32, order=self._order,
        )  # fmt: skip


def rows() -> list[dict[str, object]]:
    """Median over the runs of the mean and of the 99th percentile, for each part and size."""
    made: list[dict[str, object]] = []
    for engines, waiting, clients in SIZES:
        runs = []
        for seed in range(RUNS):
            fleet = Fleet(engines, waiting, clients, seed)
            for _ in range(DECISIONS):
                fleet.decide()
            runs.append(fleet)
        row: dict[str, object] = {"engines": engines, "waiting": waiting, "clients": clients}
        for part in runs[0].spent:
            spent = [sorted(run.spent[part]) for run in runs]
            means = [sum(each) / len(each) / 1_000 for each in spent]
            row[f"{part}_us"] = [round(value, 1) for value in sorted(means)]
            p99 = statistics.median([each[len(each) * 99 // 100] / 1_000 for each in spent])
            row[f"{part}_p99_us"] = round(p99, 1)
        row |= {"decisions": DECISIONS, **runs[0].memory}
        print(row)
        made.append(row)
    return made


def main() -> None:
    """Measure, print, and write the rows."""
    write_rows("fleet", rows(), seeds=list(range(RUNS)))


if __name__ == "__main__":
    sys.exit(main())

"""What a decision costs in SGLang: its own lpm, which matches and sorts the whole queue, beside our line.

    .venvs/sglang/bin/python -m benchmarks.micro.sglang_schedule

SGLang's real `SchedulePolicy`, `Req` and `UnifiedRadixCache`, with its tree in Rust (its default) and in
Python (which our plug-in needs); no model. A pass admits four requests, which then finish and are
replaced, so that the queue keeps its length. 1,152-token prompts, 50 shared prefixes of 1,024 tokens, all
cached; 20 clients. lpm's limit of 128 waiting is lifted, or there would be nothing to compare; SGLang's
own walk, the memory check and the forward pass are left out of both. CPU time of the thread.
"""

import argparse
import itertools
import random
import statistics
import time
from array import array
from collections.abc import Iterator
from typing import Any

from sglang.srt.managers import schedule_policy
from sglang.srt.managers.schedule_batch import Req
from sglang.srt.sampling.sampling_params import SamplingParams
from tests.sglang.caches import RealCache

from fairlead.core.scheduler import Scheduler
from fairlead.core.service import Service
from fairlead.engines.sglang.line import Line
from fairlead.engines.sglang.queue import FairQueue
from fairlead.engines.sglang.tree import EngineTree
from fairlead.schedulers.dlpm import DLPM

PREFIXES, SHARED, LENGTH = 50, 1024, 1152
CLIENTS, ADMITTED = 20, 4


def requests(seed: int) -> Iterator[Req]:
    """An endless stream: a random prefix, a random client, a prompt of its own."""
    rng = random.Random(seed)
    for number in itertools.count():
        tokens = [1000 + rng.randrange(PREFIXES)] * SHARED
        tokens += [rng.randrange(1000) for _ in range(LENGTH - SHARED)]
        sampling = SamplingParams(max_new_tokens=16)
        client = f"c{rng.randrange(CLIENTS)}"
        yield Req(str(number), "", array("q", tokens), sampling, routing_key=client)


def warm_cache(core: str) -> RealCache:
    """A cache that holds every shared prefix."""
    cache = RealCache("unified", core=core)
    for prefix in range(PREFIXES):
        cache.insert([1000 + prefix] * SHARED)
    return cache


class Stock:
    """SGLang's lpm."""

    def __init__(self, core: str) -> None:
        self.cache = warm_cache(core)
        self.policy = schedule_policy.SchedulePolicy("lpm", self.cache.tree, False, False, False)
        self.queue: list[Any] = []

    def arrive(self, req: Req) -> None:
        self.queue.append(req)

    def look(self) -> list[Any]:
        self.policy.calc_priority(self.queue)
        return self.queue[:ADMITTED]

    def over(self, reqs: list[Any]) -> None:
        self.queue = [req for req in self.queue if req not in reqs]


class Ours:
    """DLPM by our line."""

    def __init__(self) -> None:
        self.cache = warm_cache("python")
        tree = EngineTree(
            self.cache.tree, is_wanted=lambda: len(self.line) > 0, on_clear=lambda: None
        )
        policy = DLPM(cache=tree)  # type: ignore[arg-type]
        self.line = Line(Scheduler(policy), tree, self)
        self.queue = FairQueue([], self.line)
        self.left = 0

    def client_of(self, req: Req) -> str:
        return str(req.routing_key)

    def has_room(self, adder: object) -> bool:
        return self.left > 0

    def received(self, client: str) -> Service:
        return Service()

    def arrive(self, req: Req) -> None:
        self.queue.append(req)

    def look(self) -> list[Any]:
        self.left = ADMITTED
        self.line.begin(self.queue)
        self.line.expect_walk(self)
        added = []
        for req in self.queue:
            self.left -= 1
            req.full_untruncated_fill_ids, req.prefix_len = req.origin_input_ids, SHARED
            self.line.admitted(req)
            added.append(req)
        return added

    def over(self, reqs: list[Any]) -> None:
        for req in reqs:
            self.line.leave(req)
        self.queue = FairQueue([req for req in self.queue if req not in reqs], self.line)


def measure(lane: Stock | Ours, waiting: int, passes: int) -> dict[str, float]:
    """Microseconds of a look, and of an arrival: the least and the median."""
    stream = requests(1)
    arrivals, looks = [], []
    for number in range(passes + 1):
        for req in itertools.islice(stream, waiting - len(lane.queue)):
            begun = time.thread_time()
            lane.arrive(req)
            arrivals.append(1e6 * (time.thread_time() - begun))
        begun = time.thread_time()
        added = lane.look()
        if number:  # the first one meets a queue that nobody has looked at
            looks.append(1e6 * (time.thread_time() - begun))
        assert len(added) == ADMITTED
        lane.over(added)
        for req in added:
            lane.cache.insert(list(req.origin_input_ids))
    return {
        "look_us_min": min(looks),
        "look_us_p50": statistics.median(looks),
        "arrival_us_p50": statistics.median(arrivals),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--passes", type=int, default=10)
    options = parser.parse_args()
    schedule_policy.WAITING_QUEUE_PREFIX_MATCH_MAX = 1 << 30
    for waiting in options.waiting:
        lanes = {"lpm, Rust": Stock("rust"), "lpm, Python": Stock("python"), "dlpm": Ours()}
        for name, lane in lanes.items():
            row = measure(lane, waiting, options.passes)
            cells = "  ".join(f"{key} {value:10.1f}" for key, value in row.items())
            print(f"{waiting:7,} waiting  {name:12} {cells}", flush=True)


if __name__ == "__main__":
    main()

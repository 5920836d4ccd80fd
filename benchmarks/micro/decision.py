"""Cost of a decision (`propose` + `admit`) of `dlpm` and `fair` by queue length, beside re-matching it all.

Caveat first: the index also works when a request arrives and when the cache changes. That upkeep is
measured apart: arrivals as `add`, cache changes as the time of the same inserts and evictions with
the index listening less the time without. Each admission is followed by an arrival, so that the
queue keeps its length, and puts the prompt into the cache while older blocks leave it, as in an
engine. The same process measures what a scheduler pays that matches and sorts the whole queue at
each step, as SGLang's LPM does.
"""

import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from benchmarks.record import write_rows
from fairhit.core.cache.block_set import BlockCache
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import Request
from fairhit.policies import make_policy

Result = TypeVar("Result")

LENGTHS = (100, 1_000, 10_000, 100_000)
CLIENTS = 50
PREFIXES = 200  # shared prefixes of 64 blocks; a request adds 8 blocks of its own
PREFIX_BLOCKS, OWN_BLOCKS, BLOCK = 64, 8, 16
CACHED_BLOCKS = 4_096
DECISIONS = 2_000
RUNS = 5


class Traffic:
    """Requests that share prefixes, and a block cache that evicts the oldest beyond its size."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._order = 0
        self.cache = BlockCache(block_size=BLOCK)
        self._held: dict[int, None] = {}

    def request(self) -> Request:
        """The next arrival."""
        self._order += 1
        prefix = self._rng.randrange(PREFIXES)
        hashes = [prefix * 1_000 + at for at in range(PREFIX_BLOCKS)]
        hashes += [-(self._order * 1_000 + at) for at in range(OWN_BLOCKS)]
        return Request(
            id=str(self._order),
            client=f"client-{prefix % CLIENTS}",
            prompt=hashes,
            input_len=len(hashes) * BLOCK,
            max_tokens=32,
            order=self._order,
        )

    def prefill(self, request: Request) -> int:
        """Cache the prompt, evict the oldest blocks; the tokens that had to be computed."""
        hits = self.cache.match_len(request.prompt)
        for block in request.prompt:
            if block in self._held:
                del self._held[block]
            else:
                self.cache.insert(block)
            self._held[block] = None
        while len(self._held) > CACHED_BLOCKS:
            oldest = next(iter(self._held))
            del self._held[oldest]
            self.cache.evict(oldest)
        return max(1, request.input_len - hits * BLOCK)


class Timer:
    """CPU time of this thread, summed up by name."""

    def __init__(self) -> None:
        self.spent_ns: dict[str, int] = {}

    def time(self, name: str, work: Callable[[], Result]) -> Result:
        """Do the work and add what it took."""
        begun = time.thread_time_ns()
        result = work()
        spent = time.thread_time_ns() - begun
        self.spent_ns[name] = self.spent_ns.get(name, 0) + spent
        return result


class Admissions:
    """A queue of `waiting` requests under one policy, and the CPU time of each part of an admission."""

    def __init__(self, policy: str, waiting: int, seed: int) -> None:
        self._traffic, self._unheard = Traffic(seed), Traffic(seed)
        self._queue = FairQueue(make_policy(policy, cache=self._traffic.cache))
        for _ in range(waiting):
            self._queue.add(self._traffic.request())
        self._timer = Timer()

    def admit_one(self) -> None:
        """Admit a request, let it end, and let another arrive."""
        queue, timer = self._queue, self._timer
        queue.begin_pass()
        request = timer.time("decision", queue.propose)
        assert request is not None
        extend_len = timer.time("heard", partial(self._traffic.prefill, request))
        timer.time("unheard", partial(self._unheard.prefill, request))
        timer.time("decision", partial(queue.admit, request, extend_len=extend_len))
        queue.decode(request, 32)
        queue.finish(request)
        timer.time("arrival", partial(queue.add, self._traffic.request()))

    def mean_us(self) -> dict[str, float]:
        """Mean microseconds of each part."""
        mean = {name: spent / DECISIONS / 1_000 for name, spent in self._timer.spent_ns.items()}
        return {
            "decision": mean["decision"],
            "arrival": mean["arrival"],
            "cache changes": max(0.0, mean["heard"] - mean["unheard"]),
        }


def both_us(waiting: int, seed: int) -> dict[str, float]:
    """The same traffic under `dlpm` and `fair`, in turns, so that a busy machine slows both alike."""
    made = {name: Admissions(name, waiting, seed) for name in ("dlpm", "fair")}
    for _ in range(DECISIONS):
        for admissions in made.values():
            admissions.admit_one()
    return {
        f"{name} {what}": us
        for name, admissions in made.items()
        for what, us in admissions.mean_us().items()
    }


def rematch_us(waiting: int, seed: int) -> dict[str, float]:
    """Microseconds of CPU to match and sort the whole queue once."""
    traffic = Traffic(seed)
    queue = [traffic.request() for _ in range(waiting)]
    for request in queue[:56]:
        traffic.prefill(request)
    begun = time.thread_time_ns()
    sorted(queue, key=lambda request: -traffic.cache.match_len(request.prompt))
    return {"re-match of the queue": (time.thread_time_ns() - begun) / 1_000}


def rows(measure: Callable[[int, int], dict[str, float]]) -> list[dict[str, object]]:
    """Minimum, median and maximum over the runs, for each part and queue length."""
    made: list[dict[str, object]] = []
    for waiting in LENGTHS:
        runs = [measure(waiting, seed) for seed in range(RUNS)]
        for what in runs[0]:
            values = sorted(run[what] for run in runs)
            row = {
                "what": what,
                "waiting": waiting,
                "us_min": round(values[0], 2),
                "us_median": round(statistics.median(values), 2),
                "us_max": round(values[-1], 2),
            }
            print(f"{what:22} {waiting:7,} waiting: {row['us_median']:12,} us (median of {RUNS})")
            made.append(row)
        if "fair decision" in runs[0]:
            made.append(_beside_dlpm(waiting, runs))
    return made


def _beside_dlpm(waiting: int, runs: Sequence[dict[str, float]]) -> dict[str, object]:
    """Least, median and greatest ratio, within a run, of a decision of `fair` to one of `dlpm`."""
    ratios = sorted(run["fair decision"] / run["dlpm decision"] for run in runs)
    least, most = (round(ratio, 2) for ratio in (ratios[0], ratios[-1]))
    middle = round(statistics.median(ratios), 2)
    print(f"fair beside dlpm       {waiting:7,} waiting: {middle} times ({least} to {most})")
    return {
        "what": "fair decision beside dlpm's",
        "waiting": waiting,
        "times_min": least,
        "times_median": middle,
        "times_max": most,
    }


def main() -> None:
    """Measure, print, and write the rows."""
    measured = rows(both_us) + rows(rematch_us)
    write_rows("decision", measured, seeds=list(range(RUNS)))


if __name__ == "__main__":
    sys.exit(main())

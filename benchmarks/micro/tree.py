"""Microseconds of CPU for one request's whole life in the tree, the waiting index and `Reserve`.

Caveat first: no scheduler, no steps and no events, and the prompts are made untimed, a hundred at a
time. A life is `add`, `open`, `best`, `admit` with the evictions it needs, `remove`, and at the end
`release`, in a memory that is always full. The same prompts are measured as runs and as tuples of
token ids.
"""

import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice

from benchmarks.record import write_rows
from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Run, Runs
from fairhit.core.request import Request, Unit
from fairhit.core.waiting.cache_listener import waiting_index
from fairhit_lab.sim.memory.admission import Grant, Reserve

REQUESTS = 5_000
AT_ONCE = 100
RUNS = 5
WAITING = {"runs": (1, 32, 1_024, 100_000), "token ids": (1, 32, 1_024)}
CLIENTS = 50
RUNNING = 64
OUTPUT = 128
RUN = 125  # a prompt is 8 runs of 125 tokens
CAPACITY = RUNNING * 2_000

Prompt = Sequence[Unit]


def prompts_of_runs(seed: int) -> Iterator[list[Run]]:
    """A system prompt, one of 8 tools, a client's own part, a turn of one of 2,000 talks, news."""
    rng = random.Random(seed)
    for number in count():
        talk = rng.randrange(2_000)
        shared = ["system", f"tool-{talk % 8}", f"client-{talk % CLIENTS}"]
        turns = rng.randrange(4)
        shared += [f"talk-{talk}-{turn}" for turn in range(turns)]
        own = [f"own-{number}-{at}" for at in range(8 - len(shared))]
        yield [(segment, 0, RUN) for segment in shared + own]


def as_token_ids(prompts: Iterator[list[Run]]) -> Iterator[Prompt]:
    """The same prompts, each token a number."""
    numbers: dict[object, int] = {}
    for prompt in prompts:
        ids: list[int] = []
        for segment, _, length in prompt:
            first = numbers.setdefault(segment, len(numbers) * RUN)
            ids += range(first, first + length)
        yield tuple(ids)


class Life:
    """A tree, an index and a memory, and the requests that come and go."""

    def __init__(self, prompts: Iterator[Prompt]) -> None:
        tree = RadixTree()
        self._prompts = enumerate(prompts)
        self._index = waiting_index(tree)
        self._memory = Reserve(tree, capacity=CAPACITY)
        self._running: deque[Grant] = deque()
        self._now_us = 0

    def arrivals(self, number: int) -> list[Request]:
        """The next requests, made where nothing is timed."""
        return [
            Request(
                id=str(order),
                client=f"client-{order % CLIENTS}",
                prompt=prompt,
                input_len=len(prompt),
                max_tokens=OUTPUT,
                order=order,
            )
            for order, prompt in islice(self._prompts, number)
        ]

    def wait(self, request: Request) -> None:
        """Add an arriving request; its client may be chosen."""
        self._index.add(request)
        self._index.open(request.client)

    def serve(self) -> None:
        """The best one is admitted; the oldest running one goes if there is no room or no slot."""
        best = self._index.best()
        assert best is not None
        self._now_us += 1
        while (grant := self._memory.admit(best, self._now_us)) is None:
            self._memory.release(self._running.popleft())
        self._index.remove(best)
        self._running.append(grant)
        if len(self._running) > RUNNING:
            self._memory.release(self._running.popleft())


def life_us(prompts: Iterator[Prompt], waiting: int) -> float:
    """Mean microseconds of CPU of one life while `waiting` requests wait."""
    life = Life(prompts)
    for request in life.arrivals(waiting - 1):
        life.wait(request)
    spent_ns = 0
    for _ in range(REQUESTS // AT_ONCE):
        arrivals = life.arrivals(AT_ONCE)
        begun = time.thread_time_ns()
        for request in arrivals:
            life.wait(request)
            life.serve()
        spent_ns += time.thread_time_ns() - begun
    return spent_ns / 1_000 / REQUESTS


KINDS: dict[str, Callable[[int], Iterator[Prompt]]] = {
    "runs": lambda seed: map(Runs, prompts_of_runs(seed)),
    "token ids": lambda seed: as_token_ids(prompts_of_runs(seed)),
}


def main() -> None:
    """Measure, print, and write the rows."""
    rows: list[dict[str, object]] = []
    for kind, lengths in WAITING.items():
        for waiting in lengths:
            values = sorted(life_us(KINDS[kind](seed), waiting) for seed in range(RUNS))
            row = {
                "what": f"life of a request of 1,000 tokens, prompts as {kind}",
                "waiting": waiting,
                "us_min": round(values[0], 2),
                "us_median": round(statistics.median(values), 2),
                "us_max": round(values[-1], 2),
            }
            print(f"{kind:10} {waiting:7,} waiting: {row['us_median']:8} us (median of {RUNS})")
            rows.append(row)
    write_rows("tree", rows, seeds=list(range(RUNS)))


if __name__ == "__main__":
    sys.exit(main())

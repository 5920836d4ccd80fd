"""Microseconds of CPU for one request's whole life in the tree, the waiting index and `Reserve`.

Caveat first: no scheduler, no steps and no events, and the prompts are made beforehand. A life is
`add`, `best`, `admit` with the evictions it needs, `remove`, and at the end `release`, in a memory
that is always full. The same prompts are measured as runs and as tuples of token ids.
"""

import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence

from benchmarks.record import write_rows
from fairlead.core.admission import Grant, Reserve
from fairlead.core.radix_tree import RadixTree
from fairlead.core.request import Request, Unit
from fairlead.core.runs import Run, Runs
from fairlead.core.watch import waiting_index

REQUESTS = 10_000
RUNS = 5
WAITING = (1, 32, 1_024)
CLIENTS = 50
RUNNING = 64
OUTPUT = 128
RUN = 125  # a prompt is 8 runs of 125 tokens
CAPACITY = RUNNING * 2_000

Prompt = Sequence[Unit]


def prompts_of_runs(seed: int) -> list[list[Run]]:
    """A system prompt, one of 8 tools, a client's own part, a turn of one of 2,000 talks, news."""
    rng = random.Random(seed)
    made: list[list[Run]] = []
    for number in range(REQUESTS + max(WAITING)):
        talk = rng.randrange(2_000)
        shared = ["system", f"tool-{talk % 8}", f"client-{talk % CLIENTS}"]
        turns = rng.randrange(4)
        shared += [f"talk-{talk}-{turn}" for turn in range(turns)]
        own = [f"own-{number}-{at}" for at in range(8 - len(shared))]
        made.append([(segment, 0, RUN) for segment in shared + own])
    return made


def as_token_ids(prompts: list[list[Run]]) -> list[Prompt]:
    """The same prompts, each token a number."""
    numbers: dict[object, int] = {}
    made: list[Prompt] = []
    for prompt in prompts:
        ids: list[int] = []
        for segment, _, length in prompt:
            first = numbers.setdefault(segment, len(numbers) * RUN)
            ids += range(first, first + length)
        made.append(tuple(ids))
    return made


def life_us(prompts: list[Prompt], waiting: int) -> float:
    """Mean microseconds of CPU of one life while `waiting` requests wait."""
    tree = RadixTree()
    index = waiting_index(tree)
    memory = Reserve(tree, capacity=CAPACITY)
    running: deque[Grant] = deque()
    requests = [
        Request(
            id=str(order),
            client=f"client-{order % CLIENTS}",
            prompt=prompt,
            input_len=len(prompt),
            max_tokens=OUTPUT,
            order=order,
        )
        for order, prompt in enumerate(prompts[: REQUESTS + waiting - 1])
    ]
    for request in requests[: waiting - 1]:
        index.add(request)
        index.open(request.client)
    begun = time.thread_time_ns()
    for now_us, request in enumerate(requests[waiting - 1 :]):
        index.add(request)
        index.open(request.client)
        best = index.best()
        assert best is not None
        while (grant := memory.admit(best, now_us)) is None or len(running) == RUNNING:
            memory.release(running.popleft())
            if grant:
                break
        running.append(grant)
        index.remove(best)
    return (time.thread_time_ns() - begun) / 1_000 / REQUESTS


def main() -> None:
    """Measure, print, and write the rows."""
    rows: list[dict[str, object]] = []
    for waiting in WAITING:
        lives: dict[str, list[float]] = {"runs": [], "token ids": []}
        for seed in range(RUNS):
            runs = prompts_of_runs(seed)
            lives["runs"].append(life_us([Runs(prompt) for prompt in runs], waiting))
            lives["token ids"].append(life_us(as_token_ids(runs), waiting))
        for prompts, values in lives.items():
            row = {
                "what": f"life of a request of 1,000 tokens, prompts as {prompts}",
                "waiting": waiting,
                "us_min": round(min(values), 2),
                "us_median": round(statistics.median(values), 2),
                "us_max": round(max(values), 2),
            }
            print(f"{prompts:10} {waiting:6,} waiting: {row['us_median']:8} us (median of {RUNS})")
            rows.append(row)
    write_rows("tree", rows, seeds=list(range(RUNS)))


if __name__ == "__main__":
    sys.exit(main())

"""CPU cost of the plug-in: vLLM's `schedule()` with FairScheduler beside the stock FCFS queue, in one run.

Caveat first: DLPM and LPM share more blocks, so that with scarce memory more requests run at once,
and `schedule()` spends its time on those. So each row also says how many ran, and there are two
settings: `scarce` (4,096 blocks of 16 tokens, where memory decides how many run) and `ample` (four
times that, where all 128 slots are full under every policy).

1,152-token prompts on 50 shared prefixes of 1,024 tokens from 20 clients, 16 to 64 outputs; a
finished request is replaced, so that the queue keeps its length. A bare Scheduler: no model, no workers.
CPU time of the thread, by step; the schedulers take their steps in turns.
"""

import gc
import itertools
import random
import statistics
import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from tests.unit.engines.vllm.bare_vllm import StockScheduler, Trace, make_request, make_scheduler

from benchmarks.record import write_rows
from fairhit.cli.parser import OneLineParser
from fairhit.engines.vllm import FairScheduler

PREFIXES, SHARED, LENGTH = 50, 1024, 1152
BLOCKS = {"scarce": 4096, "ample": 16_384}
SLOTS, BUDGET = 128, 8192
WARM_UP, STEPS = 30, 120
CLIENTS = 20


def requests(seed: int) -> Any:
    """Yield requests without end: a random prefix, a random client, a prompt of its own, 16 to 64 outputs."""
    rng = random.Random(seed)
    for number in itertools.count():
        prefix = rng.randrange(PREFIXES)
        own = [rng.randrange(1000) for _ in range(LENGTH - SHARED)]
        yield make_request(
            f"r{number}",
            [1000 + prefix] * SHARED + own,
            client=f"c{rng.randrange(CLIENTS)}",
            max_tokens=rng.randrange(16, 65),
        )


class Lane:
    """A scheduler with `waiting` requests in its queue, and the CPU time of its parts by step."""

    def __init__(self, name: str, memory: str, waiting: int, seed: int) -> None:
        kind, policy = (
            (StockScheduler, {}) if name == "stock" else (FairScheduler, {"scheduler": name})
        )
        scheduler = make_scheduler(
            kind, blocks=BLOCKS[memory], max_num_seqs=SLOTS, budget=BUDGET, **policy
        )
        self.name, self.memory, self.waiting = name, memory, waiting
        self.scheduler, self.trace = scheduler, Trace(scheduler)
        self.running: list[int] = []
        self.seconds: dict[str, list[float]] = {"schedule": [], "update": [], "add": []}
        self.add = self.timed("add", scheduler.add_request)
        scheduler.schedule = self.timed("schedule", scheduler.schedule)
        scheduler.update_from_output = self.timed("update", scheduler.update_from_output)
        self.stream = requests(seed)
        self.fill()

    def timed(self, part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        taken = self.seconds[part]

        def measured(*arguments: Any) -> Any:
            begun = time.thread_time()
            result = call(*arguments)
            taken.append(time.thread_time() - begun)
            return result

        return measured

    def fill(self) -> None:
        missing = max(0, self.waiting - len(self.scheduler.waiting))
        for request in itertools.islice(self.stream, missing):
            self.add(request)

    def step(self) -> None:
        self.trace.step()
        self.running.append(len(self.scheduler.running))
        self.fill()

    def row(self) -> dict[str, object]:
        row: dict[str, object] = {
            "scheduler": self.name,
            "memory": self.memory,
            "waiting": self.waiting,
            "running": round(statistics.mean(self.running[WARM_UP:]), 1),
            "admitted": len(self.trace.admitted),
            "preempted": len(self.trace.preempted),
        }
        for part, seconds in self.seconds.items():
            kept = sorted(1000 * taken for taken in seconds[WARM_UP if part != "add" else 0 :])
            row[f"{part}_ms_mean"] = round(statistics.mean(kept), 4)
            row[f"{part}_ms_p50"] = round(kept[len(kept) // 2], 4)
            row[f"{part}_ms_p99"] = round(kept[int(len(kept) * 0.99)], 4)
        return row


def measure(names: Sequence[str], memory: str, waiting: int, seed: int) -> list[dict[str, Any]]:
    """Run all schedulers, alternating step by step, so that changes of the machine's speed affect all."""
    lanes = [Lane(name, memory, waiting, seed) for name in names]
    gc.collect()
    gc.freeze()
    for _ in range(WARM_UP + STEPS):
        for lane in lanes:
            lane.step()
    gc.unfreeze()
    return [{"seed": seed, **lane.row()} for lane in lanes]


def beside_stock(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to each row its cost relative to stock vLLM in the same run."""
    stock = rows[0]
    for row in rows:
        row["mean_beside_stock"] = round(row["schedule_ms_mean"] / stock["schedule_ms_mean"], 3)
        row["p99_beside_stock"] = round(row["schedule_ms_p99"] / stock["schedule_ms_p99"], 3)
        row["mean_beside_stock_by_running"] = round(
            row["mean_beside_stock"] * stock["running"] / row["running"], 3
        )
        print(
            f"{row['scheduler']:6}{row['memory']:7}{row['waiting']:7,} waiting{row['running']:7.1f} running"
            f"{row['admitted']:6} admitted  schedule() {row['schedule_ms_mean']:.3f} ms mean "
            f"p50 {row['schedule_ms_p50']:.3f} p99 {row['schedule_ms_p99']:.3f}; beside stock: mean "
            f"{row['mean_beside_stock']:.2f} (by running {row['mean_beside_stock_by_running']:.2f}) "
            f"p99 {row['p99_beside_stock']:.2f}",
            flush=True,
        )
    return list(rows)


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the minimum, median and maximum over the seeds."""
    made = []
    key = itemgetter("scheduler", "memory", "waiting")
    for which, runs in itertools.groupby(sorted(rows, key=key), key):
        group = list(runs)
        row: dict[str, Any] = dict(zip(("scheduler", "memory", "waiting"), which, strict=True))
        for name in [name for name in group[0] if name not in {*row, "seed"}]:
            values = sorted(run[name] for run in group)
            row[name] = [values[0], statistics.median(values), values[-1]]
        made.append(row)
    return made


def main() -> None:
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--waiting", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--memory", nargs="+", default=list(BLOCKS), choices=list(BLOCKS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--schedulers", nargs="+", default=["fcfs", "vtc", "dlpm"])
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for memory, waiting, seed in itertools.product(
        options.memory, options.waiting, range(options.runs)
    ):
        rows += beside_stock(measure(["stock", *options.schedulers], memory, waiting, seed))
    if not options.dry:
        import vllm

        write_rows("vllm_schedule", summary(rows), runs=rows, vllm=vllm.__version__, steps=STEPS)


if __name__ == "__main__":
    main()

"""What the plug-in costs: vLLM's `schedule()` with FairScheduler beside the stock FCFS queue, in one run.

The setting of 1,152-token prompts on 50 shared prefixes of 1,024 tokens, 4,096 blocks of 16 tokens,
128 slots, about 110 running; a request that finishes is replaced, so that the number waiting holds.
A bare Scheduler: no model, no workers, one thread. CPU time of the thread and wall time, by step.
"""

import argparse
import gc
import itertools
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.unit.engines.bare_vllm import StockScheduler, Trace, make_request, make_scheduler

from benchmarks.record import write_rows
from fairlead.engines.vllm import FairScheduler

PREFIXES, SHARED, LENGTH = 50, 1024, 1152
SETTING = {"blocks": 4096, "max_num_seqs": 128, "budget": 8192}
WARM_UP, STEPS = 30, 120
CLIENTS = 20


def requests(seed: int) -> Any:
    """An endless stream: a random prefix, a random client, a prompt of its own, 16 to 64 outputs."""
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
    """One scheduler with `waiting` requests in its queue, and the CPU time of its parts by step."""

    def __init__(self, name: str, waiting: int, seed: int) -> None:
        if name == "stock":
            scheduler = make_scheduler(StockScheduler, **SETTING)
        else:
            scheduler = make_scheduler(FairScheduler, **SETTING, scheduler=name)
        self.name, self.waiting = name, waiting
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


def measure(names: Sequence[str], waiting: int, seed: int) -> list[dict[str, object]]:
    """All schedulers in turns, step by step, so that they share the machine's moods."""
    lanes = [Lane(name, waiting, seed) for name in names]
    gc.collect()
    gc.freeze()
    for _ in range(WARM_UP + STEPS):
        for lane in lanes:
            lane.step()
    gc.unfreeze()
    return [{"seed": seed, **lane.row()} for lane in lanes]


def show(rows: Sequence[dict[str, Any]]) -> None:
    stock = rows[0]
    for row in rows:
        print(
            f"{row['scheduler']:6}{row['waiting']:7,} waiting{row['running']:7.1f} running"
            f"{row['admitted']:6} admitted  schedule() {row['schedule_ms_mean']:.3f} ms mean "
            f"({row['schedule_ms_mean'] / stock['schedule_ms_mean']:.2f}x) "
            f"p50 {row['schedule_ms_p50']:.3f} p99 {row['schedule_ms_p99']:.3f} "
            f"({row['schedule_ms_p99'] / stock['schedule_ms_p99']:.2f}x)  "
            f"update {row['update_ms_mean']:.3f}  add {row['add_ms_mean']:.4f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--schedulers", nargs="+", default=["fcfs", "lpm", "vtc", "dlpm"])
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    for waiting, seed in itertools.product(options.waiting, range(options.runs)):
        measured = measure(["stock", *options.schedulers], waiting, seed)
        show(measured)
        rows += measured
    if not options.dry:
        import vllm

        write_rows("vllm_schedule", rows, vllm=vllm.__version__, setting=SETTING)


if __name__ == "__main__":
    main()

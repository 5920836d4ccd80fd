"""CPU cost of a scheduling decision in SGLang: its own lpm, which matches and sorts the queue, and ours.

    .venvs/sglang/bin/python -m benchmarks.micro.sglang_schedule

SGLang's real `SchedulePolicy`, `Req` and `UnifiedRadixCache` (page size 1), with its tree in Rust (its
default) and in Python, both for lpm and for us; no model. Four fifths of a prompt are one of 50 shared
prefixes, the rest is its own; 20 clients. Warm: the prefixes are cached. Cold: nothing is, and what a step
leaves in the cache is evicted before the next one. A step admits four requests, which end and are replaced,
so that the queue keeps its length; all lanes have the same queue and take their steps in turns.

    look      the choice of four requests: lpm's `calc_priority`, or our `begin` and four choices and charges
    arrival   of one request
    after     the four finish and their prompts are inserted in the tree (and, cold, evicted again)

lpm is measured without its limit of 128 waiting requests, above which it does not sort, and with it
(`capped`). SGLang's own walk, its match of the four that are admitted, the memory check, making the list
anew and the forward pass are left out of all lanes. CPU time of the process, one thread of which computes.
"""

import argparse
import gc
import itertools
import os
import random
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from sglang.srt.managers import schedule_policy
from sglang.srt.managers.schedule_batch import FINISH_LENGTH, Req
from sglang.srt.sampling.sampling_params import SamplingParams
from tests.sglang.caches import RealCache

from benchmarks.record import write_rows
from fairhit.cli.parser import OneLineParser
from fairhit.core.fair_queue import FairQueue
from fairhit.core.service import Service
from fairhit.engines.sglang.queue_adapter import SglangQueueAdapter
from fairhit.engines.sglang.radix.rust_nodes import (
    CORE_VARIABLE,
    PYTHON,
    RUST,
    choose_core,
    is_rust,
)
from fairhit.engines.sglang.radix.tree import SglangTreeView
from fairhit.engines.sglang.waiting_queue import SglangWaitingQueue
from fairhit.policies.dlpm import DLPM

PREFIXES, SHARED = 50, 0.8
CLIENTS, ADMITTED, OUTPUTS = 20, 4, 16
VOCABULARY = 128_000
UNMEASURED = 2  # first steps, at which no prompt of the queue has been matched yet
CAPPED_PASSES = 64  # every 32nd refreshes the waiting prefixes
LANE_S = 4.0  # a lane whose choices took so many seconds takes only LEAST steps
LEAST = 3

Tokens = array  # "array[int]" in annotations


class Prompts:
    """A sequence of prompts and clients, the same for all lanes."""

    def __init__(self, length: int, seed: int) -> None:
        self._rng, self._names = np.random.default_rng(seed), random.Random(seed)
        self._own = length - round(length * SHARED)
        self.prefixes = [self._tokens(length - self._own) for _ in range(PREFIXES)]
        self._made: list[tuple[str, Tokens[int]]] = []

    def __getitem__(self, number: int) -> tuple[str, "Tokens[int]"]:
        while len(self._made) <= number:
            client = f"c{self._names.randrange(CLIENTS)}"
            prompt = self._names.choice(self.prefixes) + self._tokens(self._own)
            self._made.append((client, prompt))
        return self._made[number]

    def _tokens(self, count: int) -> "Tokens[int]":
        made = array("q")
        made.frombytes(self._rng.integers(VOCABULARY, size=count, dtype=np.int64).tobytes())
        return made


class Lane:
    """A scheduler under test with its queue and cache: SGLang's own (Stock) or this project's (Ours)."""

    name: str

    def __init__(self, core: str, prompts: Prompts, *, is_warm: bool, tokens: int) -> None:
        self.cache = RealCache("unified", core=core, tokens=tokens)
        # Slots are never reused: freeing some of many would copy the list of all of them.
        self.cache.tree.token_to_kv_pool_allocator.free = lambda _: None
        self.prompts, self.is_warm, self.number = prompts, is_warm, 0
        self.seconds: dict[str, list[float]] = {"look": [], "arrival": [], "after": [], "step": []}
        self.begin()
        if is_warm:
            for prefix in prompts.prefixes:
                self.cache.insert(prefix)

    def begin(self) -> None:
        """Create the policy and the queue, while the cache is empty."""
        raise NotImplementedError

    @property
    def core(self) -> str:
        return "Rust" if is_rust(self.cache.tree.tree_core) else "Python"

    def fill(self, waiting: int) -> None:
        """Add requests until `waiting` are in the queue."""
        for _ in range(waiting - len(self.queue)):
            client, tokens = self.prompts[self.number]
            sampling = SamplingParams(max_new_tokens=OUTPUTS)
            req = Req(str(self.number), "", tokens, sampling, routing_key=client)
            self.number += 1
            self._timed("arrival", partial(self.arrive, req))

    def step(self, waiting: int) -> None:
        self.fill(waiting)
        added = self._timed("look", self.choose)
        assert len(added) == ADMITTED
        for req in added:
            req.output_ids, req.finished_reason = array("q", range(OUTPUTS)), FINISH_LENGTH(OUTPUTS)
        finished = set(added)
        kept = [req for req in self.queue if req not in finished]
        self._timed("after", partial(self._after, added, kept))
        taken = self.seconds
        arrivals = sum(taken["arrival"][-ADMITTED:])
        taken["step"].append(taken["look"][-1] + taken["after"][-1] + arrivals)

    def _after(self, added: list[Any], kept: list[Any]) -> None:
        self.finish(added, kept)
        for req in added:
            self.cache.insert(req.origin_input_ids)
        if not self.is_warm:
            self.cache.evict(sum(len(req.origin_input_ids) for req in added))

    def _timed(self, what: str, call: Callable[[], Any]) -> Any:
        begun = time.process_time()
        result = call()
        self.seconds[what].append(time.process_time() - begun)
        return result

    def us(self, what: str) -> float:
        """Return the median of the measured times of one part, in microseconds."""
        skipped = 0 if what == "arrival" else UNMEASURED
        return 1e6 * statistics.median(self.seconds[what][skipped:])


class Stock(Lane):
    """SGLang's own lpm policy."""

    def begin(self) -> None:
        self.name = f"lpm, tree in {self.core}"
        self.policy = schedule_policy.SchedulePolicy("lpm", self.cache.tree, False, False, False)
        self.queue: list[Any] = []

    def arrive(self, req: Req) -> None:
        self.queue.append(req)

    def choose(self) -> list[Any]:
        self.policy.calc_priority(self.queue)
        return self.queue[:ADMITTED]

    def finish(self, added: list[Any], kept: list[Any]) -> None:
        self.queue = kept

    def capped_us(self) -> float:
        """Return the mean time of a scheduling pass with SGLang's limit, in microseconds."""
        schedule_policy.WAITING_QUEUE_PREFIX_MATCH_MAX = LIMIT
        begun = time.process_time()
        for _ in range(CAPPED_PASSES):
            self.policy.calc_priority(self.queue)
        took_s = time.process_time() - begun
        schedule_policy.WAITING_QUEUE_PREFIX_MATCH_MAX = UNLIMITED
        return 1e6 * took_s / CAPPED_PASSES


class Ours(Lane):
    """DLPM in this project's queue adapter."""

    def begin(self) -> None:
        self.name = f"dlpm, tree in {self.core}"
        tree = SglangTreeView(
            self.cache.tree, is_wanted=lambda: len(self.adapter) > 0, on_clear=lambda: None
        )
        policy = DLPM(cache=tree)  # type: ignore[arg-type]
        self.adapter = SglangQueueAdapter(FairQueue(policy), tree, self)
        self.queue = SglangWaitingQueue([], self.adapter)
        self.left = 0

    def client_of(self, req: Req) -> str:
        return str(req.routing_key)

    def has_capacity(self, adder: object) -> bool:
        return self.left > 0

    def service_of(self, client: str) -> Service:
        return Service()

    def arrive(self, req: Req) -> None:
        self.queue.append(req)

    def choose(self) -> list[Any]:
        self.left = ADMITTED
        self.adapter.begin_pass(self.queue)
        self.adapter.expect_iteration(self)
        added = []
        cached = round(len(self.prompts[0][1]) * SHARED) if self.is_warm else 0
        for req in self.queue:
            self.left -= 1
            req.full_untruncated_fill_ids, req.prefix_len = req.origin_input_ids, cached
            self.adapter.on_admit(req)
            added.append(req)
        return added

    def finish(self, added: list[Any], kept: list[Any]) -> None:
        self.queue = SglangWaitingQueue(kept, self.adapter)
        self.adapter.on_output(added)


LIMIT = schedule_policy.WAITING_QUEUE_PREFIX_MATCH_MAX
UNLIMITED = 1 << 30


def measure(waiting: int, length: int, seed: int, passes: int, *, is_warm: bool) -> dict[str, Any]:
    """Measure one cell; lanes alternate step by step, so that changes of the machine's speed affect all."""
    prompts = Prompts(length, seed)
    tokens = (2 * PREFIXES + ADMITTED * (passes + UNMEASURED)) * length
    make = {"is_warm": is_warm, "tokens": tokens}
    ours, also = (Ours(core, prompts, **make) for core in (plug_in_core(), PYTHON))
    stock = [Stock(core, prompts, **make) for core in (RUST, PYTHON)]
    lanes: list[Lane] = [*stock, ours, also]
    for lane in lanes:
        lane.fill(waiting)
    gc.collect()
    gc.freeze()
    for number in range(passes + UNMEASURED):
        for lane in lanes:
            if number < LEAST + UNMEASURED or sum(lane.seconds["look"]) < LANE_S:
                lane.step(waiting)
    gc.unfreeze()
    row: dict[str, Any] = {
        "waiting": waiting, "prompt": length, "cache": "warm" if is_warm else "cold", "seed": seed,
        "steps": len(ours.seconds["look"]) - UNMEASURED,
    }  # fmt: skip
    for lane in lanes:
        row[lane.name] = {f"{what}_us": round(lane.us(what), 2) for what in lane.seconds}
    row["lpm, capped"] = {"look_us": round(stock[0].capped_us(), 2)}
    for what in ("look", "step"):
        for lane in stock:
            row[lane.name][f"{what}_over_dlpm"] = round(lane.us(what) / ours.us(what), 3)
    return row


def plug_in_core() -> str:
    """Return the tree core that the plug-in makes SGLang use: Rust if the plug-in supports it."""
    chosen: dict[str, str] = {}
    choose_core(chosen, has_host_cache=False)
    return chosen.get(CORE_VARIABLE, RUST)


def summary(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the minimum, median and maximum over the seeds, a row for each cell and lane."""
    made = []
    keys = ("waiting", "prompt", "cache")
    for cell, found in itertools.groupby(runs, lambda run: tuple(run[key] for key in keys)):
        group = list(found)
        for lane in (name for name, value in group[0].items() if isinstance(value, dict)):
            row: dict[str, Any] = {**dict(zip(keys, cell, strict=True)), "lane": lane}
            for name in group[0][lane]:
                values = sorted(run[lane][name] for run in group)
                row[name] = [values[0], statistics.median(values), values[-1]]
            made.append(row)
    return made


def show(run: dict[str, Any]) -> None:
    cell = f"{run['waiting']:7,} x {run['prompt']:6,} {run['cache']}"
    for lane, values in run.items():
        if isinstance(values, dict):
            shown = "  ".join(f"{name} {value:,.1f}" for name, value in values.items())
            print(f"{cell}  {lane:20} {shown}", flush=True)


def cells(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure every seed of every cell; yield each run."""
    for waiting, length in itertools.product(options.waiting, options.prompts):
        for cache, seed in itertools.product(options.cache, range(options.seeds)):
            run = measure(waiting, length, seed, options.passes, is_warm=cache == "warm")
            show(run)
            yield run


def main() -> None:
    parser = OneLineParser(description=__doc__)
    parser.add_argument("--waiting", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--prompts", type=int, nargs="+", default=[500, 2000, 20_000])
    parser.add_argument("--cache", nargs="+", default=["warm", "cold"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--dry", action="store_true", help="write no results")
    options = parser.parse_args()
    os.environ.pop(CORE_VARIABLE, None)
    torch.set_num_threads(1)
    schedule_policy.WAITING_QUEUE_PREFIX_MATCH_MAX = UNLIMITED
    # What SGLang publishes to the scheduler's process, so far as `calc_priority` reads it.
    schedule_policy.get_disagg = lambda: SimpleNamespace(disaggregation_mode="null")
    schedule_policy.get_memory = lambda: SimpleNamespace(radix_eviction_policy="lru")
    about = {"sglang": version("sglang"), "load_at_start": round(os.getloadavg()[0], 2)}
    runs = list(cells(options))
    if not options.dry:
        write_rows("sglang_schedule", summary(runs), runs=runs, **about)


if __name__ == "__main__":
    main()

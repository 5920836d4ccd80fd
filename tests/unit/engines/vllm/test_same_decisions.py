"""Equal decisions for a trace in the simulator's `vllm` engine and in a bare vLLM Scheduler with the plug-in.

Both must do the same at every step: who is preempted, who is admitted with how many cached tokens,
how many tokens each request computes, in which order. Where they differ, the real one is right.
"""

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

from tests.unit.engines.vllm.bare_vllm import (  # noqa: E402
    BLOCK,
    RequestStatus,
    Trace,
    make_request,
    make_scheduler,
)

from fairhit.core.cache.token_runs import Runs  # noqa: E402
from fairhit.core.costs import parse_cost  # noqa: E402
from fairhit.core.fair_queue import FairQueue  # noqa: E402
from fairhit.core.request import Request  # noqa: E402
from fairhit.core.service import Weights  # noqa: E402
from fairhit.engines.vllm import FairScheduler  # noqa: E402
from fairhit.policies import WITHOUT_CREDIT, make_policy  # noqa: E402
from fairhit_lab.sim.engines.interface import EngineJob  # noqa: E402
from fairhit_lab.sim.engines.vllm import VllmHost  # noqa: E402
from fairhit_lab.sim.memory.block_pool import BlockPool  # noqa: E402
from fairhit_lab.traces.trace import TraceRow  # noqa: E402

SCHEDULERS = [
    {"scheduler": "dlpm", "quantum": 64},
    {"scheduler": "dlpm", "quantum": 1000, "weights": {"c0": 3}},
    {"scheduler": "dlpm", "quantum": 300, "max_overtake": 500},
    {"scheduler": "vtc"},
    {"scheduler": "fcfs"},
    {"scheduler": "lpm"},
    {"scheduler": "drr", "quantum": 200},
    {"scheduler": "lcf"},
    {"scheduler": "vtc-predict"},
    {"scheduler": "preble-groups"},
    {"scheduler": "dlpm-predict", "quantum": 64},
    {"scheduler": "fair", "quantum": 64, "cost": "context:2,0.01,0.001", "near": 64},
    {"scheduler": "fair", "cost": "context:3,0.05", "quantum": 200, "weights": {"c0": 3}},
    {"scheduler": "fair", "cost": "context:40,1", "quantum": 1000, "overdraft": 500},
]
AMPLE = {"blocks": 1200, "max_num_seqs": 8, "budget": 256}
TIGHT = {"blocks": 40, "max_num_seqs": 8, "budget": 128}


@dataclass
class Step:
    """The events of a step, in order."""

    preempted: list[str]
    admitted: list[tuple[str, int]]  # and how many tokens were computed already
    planned: list[tuple[str, int]]


@dataclass
class Ours:
    """The simulator's host, driven pass by pass."""

    host: VllmHost
    pool: BlockPool
    steps: list[Step] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)

    def step(self):
        work = self.host.begin_pass(0)
        if not len(self.steps) % 16:
            self.host.check()
        if work is None:
            self.steps.append(Step([], [], []))
            return
        planned = [(s.request.id, s.planned) for s in self.host._running]
        length = {s.request.id: s.length for s in self.host._running}
        self.steps.append(
            Step(
                sorted(job.request.id for job in work.preempted),
                [
                    (a.job.request.id, length[a.job.request.id] - a.extend_len)
                    for a in work.admitted
                ],
                [pair for pair in planned if pair[1]],
            )
        )
        self.finished += [job.request.id for job in self.host.end_pass(1, 0)]


class Theirs(Trace):
    """The bare vLLM, with the same record of each step."""

    def __init__(self, scheduler):
        super().__init__(scheduler)
        self.steps: list[Step] = []

    def step_with(self, tokens):
        """`tokens` maps a request to its prompt and output."""
        emitted = {name: r.num_output_tokens for name, r in self.scheduler.requests.items()}
        prompt = {name: r.num_prompt_tokens for name, r in self.scheduler.requests.items()}
        output = self.step(lambda name: [tokens[name][prompt[name] + emitted[name]]])
        cached = output.scheduled_cached_reqs
        computed = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
        resumed = {name: computed[name] for name in cached.resumed_req_ids}
        new = {r.req_id: r.num_computed_tokens for r in output.scheduled_new_reqs}
        planned = list(output.num_scheduled_tokens.items())
        self.steps.append(
            Step(
                sorted(output.preempted_req_ids or ()),
                [(n, (new | resumed)[n]) for n, _ in planned if n in new or n in resumed],
                planned,
            )
        )


def ours(
    blocks: int, max_num_seqs: int, budget: int, *, scheduler: str, watermark: float, **settings
) -> Ours:
    pool = BlockPool(blocks=blocks - 1, block_size=BLOCK)  # vLLM keeps one for itself
    weights = settings.pop("weights", None)
    if "cost" in settings:
        settings["cost"] = parse_cost(settings["cost"])
    policy = make_policy(
        scheduler, cache=pool.cache, weights=Weights(weights) if weights else None, **settings
    )
    host = VllmHost(
        FairQueue(policy),
        pool,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        watermark=watermark,
        picks_victims=scheduler not in WITHOUT_CREDIT,
    )
    return Ours(host, pool)


@dataclass(frozen=True)
class Arrival:
    step: int
    row: TraceRow
    leaves: int | None = None  # the step in which its caller goes away


def traffic(seed: int, *, count: int, longest: int) -> list[Arrival]:
    """Bursts of several clients: shared prefixes, second turns of conversations, odd lengths."""
    rng = random.Random(seed)
    arrivals: list[Arrival] = []
    step = 0
    for i in range(count):
        if rng.random() < 0.3:
            step += rng.randrange(1, 12)
        if arrivals and rng.random() < 0.25:  # goes on from an earlier answer
            before = rng.choice(arrivals).row
            head = [*before.prompt, *before.output]
        else:
            head = [rng.randrange(6)] * rng.choice((0, 16, 40, 64, 100))
        tail = [1000 + i * 7 + j for j in range(rng.choice((1, 3, 16, 30, 77)))]
        output_len = rng.choice((1, 2, 15, 16, 17, 40, 60))
        prompt = (head + tail)[-(longest - output_len) :]
        output = tuple(rng.randrange(6) for _ in range(output_len))
        row = TraceRow(
            id=f"r{i:03}", client=f"c{min(rng.randrange(8), 3)}", arrival_us=step,
            prompt=Runs([(tuple(prompt), 0, len(prompt))]), output=Runs([(output, 0, output_len)]),
            output_len=output_len, max_tokens=output_len,
        )  # fmt: skip
        leaves = step + rng.randrange(1, 60) if rng.random() < 0.1 else None
        arrivals.append(Arrival(step, row, leaves))
    return arrivals


def both(
    arrivals: list[Arrival], sizes: dict[str, int], settings: dict, *, watermark: float = 0.0
) -> tuple[Ours, Theirs]:
    """Run the arrivals through both until neither has anything left; compare as they go."""
    one = ours(**sizes, **settings, watermark=watermark)
    other = Theirs(make_scheduler(FairScheduler, **sizes, **settings))
    memory = other.scheduler.kv_cache_manager
    memory.watermark_blocks = int(watermark * sizes["blocks"])  # as its constructor does
    todo, tokens, jobs, leaving = deque(arrivals), {}, {}, {}
    for step in range(20_000):
        for name in leaving.pop(step, []):
            if name not in one.finished:
                one.host.cancel(jobs[name])
                one.finished.append(name)
                other.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
        while todo and todo[0].step <= step:
            arrival = todo.popleft()
            row, order = arrival.row, len(tokens)
            if arrival.leaves is not None:
                leaving.setdefault(arrival.leaves, []).append(row.id)
            tokens[row.id] = [*row.prompt, *row.output]
            request = Request(
                id=row.id, client=row.client, prompt=row.prompt, input_len=len(row.prompt),
                max_tokens=row.max_tokens, order=order,
            )  # fmt: skip
            jobs[row.id] = EngineJob(row, request)
            one.host.enqueue(jobs[row.id])
            other.add(
                make_request(row.id, list(row.prompt), client=row.client, max_tokens=row.max_tokens)
            )
        one.step()
        other.step_with(tokens)
        assert other.steps[-1] == one.steps[-1], f"step {step}"
        if not todo and len(one.finished) == len(arrivals):
            return one, other
    raise AssertionError("this does not end")


# A seed of its own for each, so that no two see the same traffic.
RUNS = [(2 * place + n, settings) for place, settings in enumerate(SCHEDULERS) for n in range(2)]


@pytest.mark.parametrize(("seed", "settings"), RUNS, ids=str)
def test_with_room_for_all_every_step_is_the_same(seed: int, settings: dict):
    one, other = both(traffic(seed, count=80, longest=1500), AMPLE, settings)

    assert sum(len(step.admitted) for step in one.steps) > 60  # the others left before
    assert any(hit for step in one.steps for _, hit in step.admitted)
    assert not other.preempted and not one.pool.evicted


@pytest.mark.parametrize(("seed", "settings"), RUNS, ids=str)
def test_without_room_every_step_is_the_same(seed: int, settings: dict):
    """Blocks are evicted, requests preempted and admitted again, in the same order on both sides."""
    one, other = both(traffic(100 + seed, count=80, longest=300), TIGHT, settings)

    admitted = [name for step in one.steps for name, _ in step.admitted]
    assert len(set(admitted)) > 60  # the others left before
    assert 1 < len(admitted) - len(set(admitted)) <= len(other.preempted)
    assert one.pool.evicted > 20


@pytest.mark.parametrize("seed", range(200, 204))
def test_with_a_watermark_every_step_is_the_same(seed: int):
    """A share of the blocks stays free at admissions while something runs (vLLM's `watermark`)."""
    settings = {"scheduler": "dlpm", "quantum": 200}
    arrivals = traffic(seed, count=80, longest=300)

    one, _ = both(arrivals, TIGHT, settings, watermark=0.2)
    plain, _ = both(arrivals, TIGHT, settings)

    assert one.steps != plain.steps

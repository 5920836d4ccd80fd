"""A real SGLang Scheduler with the demo model, stepped: who comes at which step is written down beforehand.

    .venvs/sglang/bin/python -m tests.sglang.stepped FOLDER RANK [SGLang's flags]

SGLang's own event loop, scheduler, cache, memory pools and model, without its HTTP server: instead of
receiving requests the loop is handed those of the next step (`FOLDER/script.json`), and each batch it
runs is written down (`FOLDER/batches.json`). So what is decided depends on nothing but the script. One
process makes one Scheduler: `start` and `collect` do it in one of its own.
"""

import json
import os
import random
import subprocess
import sys
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fairhit.local.demo_model import demo_model
from tests.sglang.server import CPU_FLAGS, ENVIRONMENT

TIMEOUT_S = 900.0
RUNAWAY = 20_000  # steps, after which nobody will ever end
# What a rank other than the first sleeps before a batch, at most: it is not always as quick.
DELAY_S = 0.01


class Asked(NamedTuple):
    """A request of the script, which comes at `step`."""

    step: int
    name: str
    client: str
    prompt: list[int]
    outputs: int  # at most
    adapter: str | None = None


class Batch(NamedTuple):
    """A forward pass: prompts, whole or in chunks, or one output token for each."""

    is_prefill: bool
    names: list[str]


class Started(NamedTuple):
    """A scheduler at work, in a process of its own."""

    process: subprocess.Popen[bytes]
    folder: Path


def start(
    folder: Path,
    script: Sequence[Asked],
    policy: str,
    *flags: str,
    environment: Mapping[str, str] | None = None,
    rank: int = 0,
) -> Started:
    """Begin to run the script."""
    folder.mkdir(parents=True)
    (folder / "script.json").write_text(json.dumps(script))
    command = [sys.executable, "-m", "tests.sglang.stepped", str(folder), str(rank)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--schedule-policy", policy, *flags],
            env={**os.environ, **ENVIRONMENT, **(environment or {})},
            stdout=log,
            stderr=log,
        )
    return Started(process, folder)


def collect(*started: Started) -> list[list[Batch]]:
    """Return the batches of each process once all have ended; no process is left behind."""
    try:
        for process, folder in started:
            code = process.wait(TIMEOUT_S)
            assert code == 0, (folder / "log").read_text(errors="replace")[-4000:]
    finally:
        for process, _ in started:
            process.kill()
    ran = [json.loads((folder / "batches.json").read_text()) for _, folder in started]
    return [[Batch(*batch) for batch in each] for each in ran]


def run_on_ranks(
    folder: Path,
    ranks: int,
    script: Sequence[Asked],
    *flags: str,
    environment: Mapping[str, str],
    policy: str = "dlpm",
) -> list[Batch]:
    """Return the batches of all ranks, each with its own hashes, clock and speed: they are equal."""
    started = [
        start(
            folder / str(rank),
            script,
            policy,
            *flags,
            environment={**environment, "PYTHONHASHSEED": str(100 + rank)},
            rank=rank,
        )
        for rank in range(ranks)
    ]
    ran = collect(*started)
    for rank in range(1, ranks):
        assert ran[rank] == ran[0], rank
    return ran[0]


def admissions(batches: Sequence[Batch]) -> list[str]:
    """Return the admissions in order; again after a retraction, but once for all chunks of a prompt."""
    order: list[str] = []
    before: list[str] = []
    for batch in batches:
        if batch.is_prefill:
            order += [name for name in batch.names if name not in before]
            before = batch.names
    return order


# -- inside the process that has the Scheduler ----------------------------------------------------


def main(folder: Path, rank: int, flags: list[str]) -> None:
    """Make the Scheduler as SGLang's own process does, and let its loop run until nobody is left."""
    scheduler = made([*CPU_FLAGS, "--model-path", str(demo_model()), *flags])
    script = [Asked(*asked) for asked in json.loads((folder / "script.json").read_text())]
    batches: list[Batch] = []
    feed(scheduler, script)
    record(scheduler, batches, DELAY_S * rank)
    if rank:
        be_another_rank(scheduler, rank)
    scheduler.run_event_loop()
    (folder / "batches.json").write_text(json.dumps(batches))


def made(flags: list[str]) -> Any:
    """Make a Scheduler as SGLang's `run_scheduler_process` does, with the plug-ins loaded."""
    from sglang.srt.arg_groups.lora_hook import check_lora_server_args
    from sglang.srt.managers import scheduler as module
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import PortArgs, prepare_server_args

    load_plugins()
    server_args = prepare_server_args(flags)
    if server_args.lora_paths:
        check_lora_server_args(server_args)  # which reads them, too
        unpin()
    world_rank = module.spawn_world_rank(server_args, tp_rank=0, pp_rank=0)
    ranks = module.SpawnRanks(world_rank=world_rank, dp_rank=None, gpu_id=0)
    module.publish(server_args, role="scheduler", ranks=ranks)
    return module.Scheduler(server_args, PortArgs.init_new(server_args))


def unpin() -> None:
    """SGLang's LoRA asks for pinned memory even on a CPU, for which torch has none without a GPU."""
    import torch

    def unpinned(stock: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return stock(*args, **{**kwargs, "pin_memory": False})

    for name in ("tensor", "empty", "zeros"):
        setattr(torch, name, partial(unpinned, getattr(torch, name)))
    torch.Tensor.pin_memory = lambda tensor, *_: tensor


def feed(scheduler: Any, script: Sequence[Asked]) -> None:
    """Run the scheduler's loop, one step an iteration, until no request is left."""
    from sglang.srt.runtime_context import get_lora

    adapters = {ref.lora_name: ref.lora_id for ref in get_lora().lora_paths or ()}
    steps = iter(range(RUNAWAY))
    left = sorted(script, key=lambda asked: asked.step)

    def receive(*_: Any, **__: Any) -> list[Any]:
        step = next(steps)
        come = []
        while left and left[0].step <= step:
            asked = left.pop(0)
            come.append(request(asked, adapters[asked.adapter] if asked.adapter else None))
        is_busy = scheduler.last_batch or not scheduler.running_batch.is_empty()
        if not (come or left or scheduler.waiting_queue or scheduler.chunked_req or is_busy):
            scheduler.gracefully_exit = True
        return come

    type(scheduler.request_receiver).recv_requests = receive


def request(asked: Asked, lora_id: str | None) -> Any:
    """As the tokenizer's process would send it."""
    from sglang.srt.managers.io_struct import TokenizedGenerateReqInput
    from sglang.srt.sampling.sampling_params import SamplingParams

    sampling = SamplingParams(max_new_tokens=asked.outputs, temperature=0)
    sampling.normalize(None)
    return TokenizedGenerateReqInput(
        rid=asked.name,
        input_text="",
        input_ids=array("q", asked.prompt),
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=sampling,
        return_logprob=False,
        logprob_start_len=-1,
        top_logprobs_num=0,
        token_ids_logprob=None,
        stream=False,
        routing_key=asked.client,
        lora_id=lora_id,
    )


def record(scheduler: Any, batches: list[Batch], delay_s: float) -> None:
    """Write down each batch as it is run, some time later if this rank is to be slow."""
    stock = scheduler.run_batch
    rng = random.Random(delay_s)

    def run_batch(batch: Any, *args: Any, **kwargs: Any) -> Any:
        names = [req.rid for req in batch.reqs]
        batches.append(Batch(batch.forward_mode.is_extend(), names))
        time.sleep(delay_s * rng.random())
        return stock(batch, *args, **kwargs)

    scheduler.run_batch = run_batch


def be_another_rank(scheduler: Any, rank: int) -> None:
    """Make a scheduler without metrics, on a machine with another clock."""
    scheduler._writes_metrics = False
    for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "perf_counter_ns"):
        setattr(time, name, partial(_wrong, getattr(time, name), rank))


def _wrong(clock: Callable[[], float], rank: int) -> float:
    right = clock()
    return type(right)(right * (1 + 0.1 * rank) + 1000 * rank)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])

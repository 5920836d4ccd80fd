"""A real vLLM Scheduler without weights, workers or compiled parts: requests in, planned steps out.

Used by the tests beside it, by the version matrix in processes of their own, and by the benchmark.
The model is a `config.json`; outputs are made up, one token (7) for each request that is past its
prompt, unless a test says otherwise.
"""

import inspect
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any

import torch
import vllm
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler as StockScheduler
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    SlidingWindowSpec,
)
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

# Says which version the tests were meant for, lest they run on another one unnoticed.
assert os.environ.get("EXPECT_VLLM", vllm.__version__) == vllm.__version__, vllm.__version__

BLOCK = 16
TOKEN = 7

__all__ = [
    "AsyncScheduler",
    "RequestStatus",
    "StockScheduler",
    "Trace",
    "make_request",
    "make_scheduler",
]

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "max_position_embeddings": 8192,
    "torch_dtype": "float32",
}  # fmt: skip


@cache
def model_config() -> ModelConfig:
    """Resolving an architecture takes seconds, so once a process."""
    init_none_hash(sha256)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        return ModelConfig(
            model=folder, dtype="float32", max_model_len=8192, skip_tokenizer_init=True
        )


def make_scheduler(
    kind: type,
    /,
    *,
    blocks: int = 256,
    max_num_seqs: int = 4,
    budget: int = 512,
    caching: bool = True,
    run_ahead: bool = False,
    window: int = 0,
    max_model_len: int | None = None,
    kv_transfer: Any = None,
    **fairhit: object,
) -> Any:
    """A scheduler over `blocks` blocks of 16 tokens; `fairhit` is what the operator sets.

    A request may be as long as there is memory for, if `max_model_len` does not say otherwise.
    """
    model = copy(model_config())
    model.max_model_len = max_model_len or min(8192, (blocks - 1) * BLOCK)
    cache_config = CacheConfig(block_size=BLOCK, enable_prefix_caching=caching)
    cache_config.num_gpu_blocks = blocks
    config = VllmConfig(
        model_config=model,
        cache_config=cache_config,
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=budget,
            max_model_len=8192,
            is_encoder_decoder=False,
        ),
        device_config=DeviceConfig("cpu"),
        kv_transfer_config=kv_transfer,
        additional_config={"fairhit": fairhit} if fairhit else {},
    )
    config.scheduler_config.async_scheduling = run_ahead
    shape = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 1, "dtype": torch.float32}
    groups = [KVCacheGroupSpec(["full"], FullAttentionSpec(**shape))]
    if window:  # a hybrid model; its windowed layers come first, as they may
        windowed = SlidingWindowSpec(**shape, sliding_window=window)
        groups.insert(0, KVCacheGroupSpec(["windowed"], windowed))
    return kind(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=groups,
        ),
        block_size=BLOCK,
        log_stats=True,
        structured_output_manager=StructuredOutputManager(config),
    )


def make_request(
    name: str,
    prompt: Sequence[int],
    *,
    client: str | None = None,
    max_tokens: int = 8,
    caching: bool = True,
    resumable: bool = False,
    **sampling: Any,
) -> Any:
    """A request as the engine's front end would hand it over."""
    extra = {"fair_client": client} if client is not None else None
    optional = {"eos_token_id": None}  # asked for by 0.15 only
    accepted = inspect.signature(Request.__init__).parameters
    return Request(
        request_id=name,
        prompt_token_ids=list(prompt),
        pooling_params=None,
        resumable=resumable,
        sampling_params=SamplingParams(
            max_tokens=max_tokens, ignore_eos=True, extra_args=extra, **sampling
        ),
        block_hasher=get_request_block_hasher(BLOCK, sha256) if caching else None,
        **{key: value for key, value in optional.items() if key in accepted},
    )


class Trace:
    """Drives a scheduler and writes down what vLLM itself reports."""

    def __init__(self, scheduler: Any, *, run_ahead: bool = False) -> None:
        self.scheduler = scheduler
        self.admitted: list[tuple[str, int]] = []  # (name, computed tokens found), first runs only
        self.scheduled: list[dict[str, int]] = []  # by step
        self.emitted: dict[str, int] = {}
        self.preempted: list[str] = []
        self.finished: dict[str, str] = {}
        self._in_flight: list[tuple[Any, Any]] = []
        self._depth = 1 if run_ahead else 0

    def add(self, *requests: Any) -> None:
        for request in requests:
            self.scheduler.add_request(request)

    def step(self, sample: Callable[[str], Sequence[int]] = lambda _: [TOKEN]) -> Any:
        """Plan a step and hand back the outputs of one: of this one, or of the last if running ahead."""
        output = self.scheduler.schedule()
        self.preempted += sorted(output.preempted_req_ids or ())
        for new in output.scheduled_new_reqs:
            if new.req_id not in dict(self.admitted):
                self.admitted.append((new.req_id, new.num_computed_tokens))
        self.scheduled.append(dict(output.num_scheduled_tokens))
        self._in_flight.append((output, self._sampled(output.num_scheduled_tokens, sample)))
        if len(self._in_flight) > self._depth or not output.num_scheduled_tokens:
            while len(self._in_flight) > (self._depth if output.num_scheduled_tokens else 0):
                self._deliver(*self._in_flight.pop(0))
        return output

    def run(self, *, steps: int = 1000) -> "Trace":
        """Until everything is finished."""
        for _ in range(steps):
            if not self.scheduler.has_unfinished_requests() and not self._in_flight:
                return self
            self.step()
        raise AssertionError(f"unfinished after {steps} steps: {list(self.scheduler.requests)}")

    @property
    def running(self) -> list[str]:
        return [request.request_id for request in self.scheduler.running]

    def _sampled(self, planned: Mapping[str, int], sample: Callable[[str], Sequence[int]]) -> Any:
        requests = self.scheduler.requests
        is_past = {n: requests[n].num_computed_tokens >= requests[n].num_tokens for n in planned}
        return ModelRunnerOutput(
            req_ids=list(planned),
            req_id_to_index={name: index for index, name in enumerate(planned)},
            sampled_token_ids=[list(sample(name)) if is_past[name] else [] for name in planned],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )

    def _deliver(self, output: Any, sampled: Any) -> None:
        for engine_outputs in self.scheduler.update_from_output(output, sampled).values():
            for one in engine_outputs.outputs:
                name = one.request_id
                self.emitted[name] = self.emitted.get(name, 0) + len(one.new_token_ids)
                if one.finish_reason is not None:
                    assert name not in self.finished, f"{name} finished twice"
                    self.finished[name] = str(one.finish_reason)

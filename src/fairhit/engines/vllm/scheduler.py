"""FairScheduler: vLLM's own scheduler with a fair waiting queue. `schedule()` itself is never copied.

    --scheduler-cls fairhit.engines.vllm.FairScheduler
    --additional-config '{"fairhit": {"scheduler": "dlpm", "quantum": 4096}}'

Integration points (vLLM 0.15 to 0.33), each found by feature, not by version:

    Scheduler.__init__            super(), then `waiting` is replaced (and `skipped_waiting`, 0.20 to 0.26)
    schedule                      one step; orders the requests to preempt (`preemption.py`)
    _update_request_as_session    streaming input: the tokens of the next input are charged
    update_from_output            each `EngineCoreOutput.new_token_ids` is charged, after stops are trimmed
    finish_requests               aborts, of running requests too
    reset_prefix_cache            our block map replaces vLLM's again (`block_view.py`)
    schedule, update_from_output  the passes between them are measured (`passes.py`)
    kv_cache_manager.block_pool   its map of cached blocks is observed; its queue (`free_blocks.py`)
    kv_cache_config               kv_cache_groups
    vllm_config                   scheduler_config.async_scheduling, .policy; additional_config

Exact for a model with one full-attention KV group. With several groups the index follows the first
full-attention group, so requests are ordered by an upper bound of the match; charges are always exact.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

from vllm.logger import init_logger
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler as StockScheduler

from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.engines.client_metrics import MULTIPROC_DIR, ClientMetrics, EngineTotals, is_collected
from fairhit.engines.lora_slots import Taker
from fairhit.engines.pass_meter import PassMeter
from fairhit.engines.settings import Settings, read_settings
from fairhit.engines.vllm.audit import audit
from fairhit.engines.vllm.block_view import KVGroup, VllmBlockView
from fairhit.engines.vllm.identity import adapter_of
from fairhit.engines.vllm.passes import StepTimes, works_of
from fairhit.engines.vllm.preemption import order_victims
from fairhit.engines.vllm.skipped_queue import SkippedQueue
from fairhit.engines.vllm.waiting_queue import PROMOTIONS, VllmWaitingQueue
from fairhit.errors import ConfigError
from fairhit.policies import WITHOUT_CREDIT

logger = init_logger("vllm.fairhit")

SECTION = "fairhit"  # of `--additional-config`


class FairScheduler(StockScheduler):  # type: ignore[misc]  # vLLM is untyped here
    """The scheduler to name in `--scheduler-cls`; its base follows the engine's async setting."""

    def __new__(cls, vllm_config: Any, *_: Any, **__: Any) -> "FairScheduler":
        """Make an AsyncFairScheduler under async scheduling, where the engine runs ahead of the outputs."""
        is_async = vllm_config.scheduler_config.async_scheduling
        made = AsyncFairScheduler if cls is FairScheduler and is_async else cls
        return super().__new__(made)  # type: ignore[no-any-return]

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        try:
            settings = read_settings(
                _section(vllm_config.additional_config),
                os.environ,
                where=f"additional_config.{SECTION}",
            )
            if vllm_config.scheduler_config.policy != "fcfs":
                raise ConfigError(
                    "--scheduling-policy: expected fcfs with FairScheduler, which orders requests itself"
                )
            self._set_up(settings)
        except ConfigError as error:
            # The engine process prints a traceback around any exception but this one, which prints
            # one line and exits with status 1; the server then stops, too.
            raise SystemExit(f"fairhit: {error}") from None

    def _set_up(self, settings: Settings) -> None:
        self._group = KVGroup.of(self)
        self._blocks = VllmBlockView(self.kv_cache_manager.block_pool, self._group)
        self._fair = FairQueue(settings.policy(self._blocks))
        self._metrics = ClientMetrics(
            waiting=self._fair.waiting,
            deficit=self._deficit_of,
            totals=self._totals,
            cost=lambda: self._fair.cost,
            charges=self._fair.collect_charges,
            notify=partial(logger.info, "fairhit: %s"),
        )
        self._metrics.show()
        # With pipeline stages passes overlap for real, and none has a duration of its own.
        self._passes: StepTimes | None = None
        if self.vllm_config.parallel_config.pipeline_parallel_size == 1:
            meter = PassMeter(self._fair.fit)
            self._passes = StepTimes(meter, self._metrics.add_seconds)
        if not is_collected():
            logger.info(
                "fairhit: per-client metrics are off; set %s to turn them on", MULTIPROC_DIR
            )
        # 0.32 has a queue for requests that hold blocks, and counts paused sessions as running.
        self._counts_paused = hasattr(self, "kv_holding_waiting")
        self._rotation = settings.slot_rotation()
        self._queue = VllmWaitingQueue(
            self._fair,
            self,
            self._blocks,
            rotation=self._rotation,
            keeps_loading=not self._counts_paused,
            names_adapters=settings.names_adapters,
            service_of=self._metrics.touch,
            on_removed=self._cancel,
        )
        self.waiting = self._queue
        if hasattr(self, "skipped_waiting"):
            self.skipped_waiting = SkippedQueue(self._queue)
        limit: Any = getattr(self, "max_num_active_reqs", None) or self.max_num_running_reqs
        self._slots = int(limit)
        # Policies without credit preempt the newest request, as stock vLLM does.
        self._picks_victims = settings.scheduler not in WITHOUT_CREDIT
        self._ending: dict[RequestId, Request] | None = None
        self._is_aborting = False
        self._is_audited = bool(settings.audit)
        logger.info("fairhit: %s; %s", settings.described(self._fair.policy), self._group.accuracy)
        if self._blocks.cannot_keep:
            logger.warning(
                "fairhit: eviction lru: this vLLM's pool cannot evict wanted blocks last"
            )
        self._check_size()

    def _check_size(self) -> None:
        """Raises ConfigError if the KV cache cannot hold one request, which would block all others for ever.

        0.20 and later check that themselves; 0.15 accepts an overridden number of blocks. All accept a cache
        short of no more than the one block that the pool keeps for itself, as with a length that vLLM fitted
        to the memory: then a warning is logged.
        """
        blocks, size = self.kv_cache_config.num_blocks, self._group.block_size
        if not self._group.is_alone or (blocks - 1) * size >= self.max_model_len:
            return
        problem = (
            f"the KV cache holds {(blocks - 1) * size} tokens, one request may have "
            f"{self.max_model_len}, and one that never fits would block all others: lower --max-model-len"
        )
        if blocks * size < self.max_model_len:
            raise ConfigError(problem)
        logger.warning("fairhit: %s", problem)

    # -- vLLM's methods, around the stock ones --------------------------------------------------

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """Plan one step by the stock method, between `begin_step` and `end_step` of the waiting queue."""
        self._queue.begin_step()
        if self._picks_victims:
            order_victims(self, self._fair, self._queue)
        output = super().schedule(*args, **kwargs)
        self._queue.end_step(output.num_scheduled_tokens)
        if self._passes is not None:
            planned = output.num_scheduled_tokens
            self._passes.planned(output, works_of(planned, self.requests, self._queue.live))
        self._audit()
        return output

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Charge the output of each request, then forget the requests that ended. O(outputs)."""
        if self._passes is not None:
            self._passes.ended(scheduler_output)
        self._ending = {}
        try:
            outputs = super().update_from_output(scheduler_output, model_runner_output)
        finally:
            ending, self._ending = self._ending, None
        self._charge(outputs.values())
        self._forget_finished(outputs.values(), ending)
        for request in ending.values():
            self._cancel(request)
        self._metrics.flush(is_idle=not self._queue.live)
        self._audit()
        return outputs

    def _charge(self, answers: Iterable[Any]) -> None:
        """Charge the output of each request. Hot: called for every token. O(outputs)."""
        live, decode = self._queue.live, self._fair.decode
        emitted: dict[ClientId, int] = {}
        for answer in answers:
            for output in answer.outputs:
                tokens = len(output.new_token_ids)
                if tokens and (request := live.get(output.request_id)):
                    decode(request, tokens)
                    emitted[request.client] = emitted.get(request.client, 0) + tokens
                    if self._rotation.is_contended:
                        self._rotation.on_output(output.request_id, tokens)
        for client, tokens in emitted.items():
            self._metrics.touch(client).output_len += tokens

    def _forget_finished(self, answers: Iterable[Any], ending: Collection[RequestId]) -> None:
        """Forget finished requests, but for `ending`, which were aborted while their output was in flight."""
        for answer in answers:
            for output in answer.outputs:
                name = output.request_id
                if output.finish_reason is not None and name not in ending and self._is_over(name):
                    # A streaming session that is not over may get its next input.
                    if request := self._queue.end(name):
                        self._fair.finish(request)

    def finish_requests(self, request_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """Abort requests: waiting ones are removed through the waiting queue, running ones here."""
        if request_ids is None:
            names = list(self.requests)
        else:
            names = [request_ids] if isinstance(request_ids, str) else list(request_ids)
            request_ids = names
        self._is_aborting = True
        try:
            finished = super().finish_requests(request_ids, *args, **kwargs)
        finally:
            self._is_aborting = False
        for name in names:
            if (request := self._queue.live.get(name)) and self._is_over(name):
                self._cancel(request)
        if self._ending is None:
            self._metrics.flush(is_idle=not self._queue.live)
            self._audit()
        return finished

    def reset_prefix_cache(self, *args: Any, **kwargs: Any) -> Any:
        """Reset the cache by the stock method, which makes a new map of blocks, and replace that map."""
        try:
            return super().reset_prefix_cache(*args, **kwargs)
        finally:  # a connector may raise after the reset made a new map
            self._blocks.hook()

    def _update_request_as_session(self, session: Any, update: Any) -> None:
        """Charge the next input of a streaming session at once, since charged sessions are admitted first."""
        super()._update_request_as_session(session, update)
        tokens = len(update.prompt_token_ids or ())
        if tokens and (request := self._queue.live.get(session.request_id)):
            self._fair.extend(request, tokens)
            self._metrics.touch(request.client).extend_len += tokens

    # -- VllmSchedulerView ----------------------------------------------------------------------

    def has_free_slot(self) -> bool:
        """Count as `schedule()` does: paused streaming sessions keep their slot in later versions."""
        taken: int = len(self.running)
        if self._counts_paused:
            taken += self.num_waiting_for_streaming_input
        return taken < self._slots

    def promote(self, request: Any) -> bool:
        """Call vLLM's own promotion; 0.15 has none, and checks a request when it is offered."""
        for name in PROMOTIONS:
            if method := getattr(self, name, None):
                return bool(method(request))
        return True

    def lora_slots(self) -> tuple[int, dict[RequestId, Taker]]:
        """Count as `schedule()` does: each adapter of a running request has a slot."""
        live = self._queue.live
        running = {
            name: Taker(live[name].client, adapter)
            for request in self.running
            if (adapter := adapter_of(request)) and (name := request.request_id) in live
        }
        return self.lora_config.max_loras if self.lora_config else 0, running

    def kv_holding_with_adapter(self) -> list[Any]:
        """Return the requests with an adapter in `kv_holding_waiting` (from 0.32). O(returned)."""
        if not self.lora_config or not self._counts_paused:
            return []
        known = self._queue.live
        return [
            one for one in self.kv_holding_waiting if one.lora_request and one.request_id in known
        ]

    def is_between_inputs(self, request: Any) -> bool:
        """Return whether a streaming session that vLLM removes is only between two of its inputs.

        vLLM removes each preempted request for which an output in flight turns out to be the last.
        """
        return self._ending is not None and not self._is_aborting and not request.is_finished()

    def _cancel(self, request: Request) -> None:
        """Remove an aborted request; while outputs are processed, only after its last one is charged."""
        if self._ending is not None:
            self._ending[request.id] = request
        elif self._queue.end(request.id):
            self._fair.cancel(request)
            self._metrics.touch(request.client)

    def _audit(self) -> None:
        if self._is_audited:
            audit(self, core=self._fair, queue=self._queue, rotation=self._rotation)

    def _is_over(self, name: RequestId) -> bool:
        known = self.requests.get(name)
        return known is None or known.is_finished()

    def _totals(self) -> EngineTotals:
        rounds = self._fair.refill_rounds
        return EngineTotals(
            self._fair.recomputed_len,
            rounds,
            self._queue.truncated_passes,
            self._rotation.rotations,
        )

    def _deficit_of(self, client: ClientId) -> float:
        return self._fair.credit(client) / UNITS_PER_TOKEN


class AsyncFairScheduler(FairScheduler, AsyncScheduler):  # type: ignore[misc]
    """FairScheduler over vLLM's `AsyncScheduler`."""


def _section(additional_config: object) -> object:
    """Return our section of `--additional-config`, empty if there is none."""
    return additional_config.get(SECTION, {}) if isinstance(additional_config, Mapping) else {}

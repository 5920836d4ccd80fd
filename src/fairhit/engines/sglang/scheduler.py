"""FairSglangScheduler: SGLang's own scheduler with a fair waiting queue. None of its loops is copied.

Integration points (SGLang 0.5.23; older ones: `versions.py`), besides those of `waiting_queue.py`,
`radix/` and `identity.py`:

    init_schedule_policy     the stock one makes an fcfs; ours begins each scheduling pass and sorts nothing
    waiting_queue            a property here, so that a new list becomes a SglangWaitingQueue again
    process_batch_result     each request of the batch is charged the growth of `output_ids`; some finished
    run_batch                its passes are measured: `passes.py`
    send_abort_output        for all requests that end otherwise: waiting, retracted, in mid-chunk
    update_running_batch     retracts by `ScheduleBatch._get_decode_retraction_order`
    _abort_on_queued_limit   refuses a request over --max-queued-requests; ours chooses which
    get_num_allocatable_reqs, PrefillAdder.budget_state   whether one more request may be admitted
    get_next_batch_to_run    the setting `audit` compares all records before each: `waiting_queue`,
                             `chunked_req`, `collect_inflight_reqs`, `Req.finished`, `is_retracted`
    get_prefill_adder_class  made for subclasses of `PrefillAdder`: `add_one_req` appends to `can_run_list`
                             each request it adds, in full or as a first chunk; the later chunks, which
                             `add_chunked_req` adds, were charged with the first

All tensor-parallel ranks decide alike: nothing here depends on a hash or a set's order, nor on a clock,
except for the prices of a fitted cost, which all ranks take from the first one.
"""

import logging
import os
from collections.abc import Iterable
from functools import partial
from itertools import chain
from typing import Any, cast

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.managers.schedule_policy import AddReqResult, PrefillAdder, SchedulePolicy
from sglang.srt.managers.scheduler import Scheduler as StockScheduler
from sglang.srt.runtime_context import get_parallel

from fairhit.core.fair_queue import FairQueue
from fairhit.core.policy import KeepsLedger
from fairhit.core.request import ClientId
from fairhit.core.service import UNITS_PER_TOKEN, Cost, Service, Weights
from fairhit.engines.client_metrics import ClientMetrics, EngineTotals, is_collected
from fairhit.engines.pass_meter import PassMeter
from fairhit.engines.settings import Settings, read_settings
from fairhit.engines.sglang import versions
from fairhit.engines.sglang.identity import client_of
from fairhit.engines.sglang.lora_slots import SglangLoraSlots
from fairhit.engines.sglang.passes import PassTimes
from fairhit.engines.sglang.queue_adapter import SglangQueueAdapter
from fairhit.engines.sglang.radix.rust_nodes import choose_core
from fairhit.engines.sglang.radix.tree import SglangTreeView
from fairhit.engines.sglang.waiting_queue import SglangWaitingQueue
from fairhit.errors import AuditFailed, ConfigError
from fairhit.policies import WITHOUT_CREDIT

logger = logging.getLogger("sglang.fairhit")

# Requests chosen for retraction per step; more are hardly ever retracted, and each choice is O(running).
MAX_VICTIMS = 8


def take_over(scheduler: Any, server_args: Any) -> None:
    """Make a scheduler a FairSglangScheduler before it is initialised, or end the process."""
    try:
        if type(scheduler) is not StockScheduler:
            raise ConfigError(
                f"--schedule-policy {server_args.schedule_policy}: cannot be had with the scheduler "
                f"{type(scheduler).__name__}, which is not SGLang's own"
            )
        _require(StockScheduler, PrefillAdder, ScheduleBatch)
        _refuse_others(server_args)
        has_host_cache = any(getattr(server_args, name, False) for name in _HOST_CACHES)
        choose_core(os.environ, has_host_cache=has_host_cache)
        where = "--schedule-policy"
        scheduler.fair_settings = read_settings(
            {"scheduler": server_args.schedule_policy}, os.environ, where=where
        )
        _refuse_stages(server_args, scheduler.fair_settings)
    except ConfigError as error:
        # SGLang prints a traceback around any exception but this one; the server then stops, too.
        raise SystemExit(f"fairhit: {error}") from None
    scheduler.__class__ = FairSglangScheduler


# Settings that keep KV in a cache beyond the device.
_HOST_CACHES = (
    "enable_hierarchical_cache", "enable_lmcache", "enable_unified_cache_external_linker",
)  # fmt: skip
# Methods that the plug-in calls or overrides; other versions may lack them.
_USED = {
    "Scheduler": (
        "init_schedule_policy", "process_batch_result", "update_running_batch",
        "get_num_allocatable_reqs", "_abort_on_queued_limit", "_release_aborted_request",
    ),
    "PrefillAdder": ("add_one_req", "budget_state"),
    "ScheduleBatch": ("_get_decode_retraction_order",),
}  # fmt: skip


def _require(*owners: type) -> None:
    """Raises ConfigError in a version of SGLang that lacks a method the plug-in uses."""
    missing = versions.missing()
    missing += [
        f"{owner.__name__}.{name}"
        for owner in owners
        for name in _USED[owner.__name__]
        if not hasattr(owner, name)
    ]
    if missing:
        raise ConfigError(versions.lacking(missing[0]))


def _refuse_others(server_args: Any) -> None:
    """Raise ConfigError for SGLang settings under which another component orders the queue."""
    for name, harmless in (
        ("disaggregation_mode", "null"),
        ("dllm_algorithm", None),
        ("lora_drain_wait_threshold", 0.0),
    ):
        value = getattr(server_args, name, harmless)
        if value != harmless:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(
                f"{flag} {value}: cannot be had with --schedule-policy {server_args.schedule_policy}"
            )


def _refuse_stages(server_args: Any, settings: Settings) -> None:
    """Raises ConfigError for a rotation of LoRA slots with pipeline stages, where no tenure would end.

    The outputs of one stage arrive while the batch of another is planned.
    """
    stages = getattr(server_args, "pp_size", 1)
    if stages > 1 and getattr(server_args, "enable_lora", None) and settings.slot_rotation().is_on:
        raise ConfigError(
            f"--pp-size {stages}: LoRA slots cannot rotate with pipeline stages; "
            "set FAIRHIT_ADAPTER_TURN=0"
        )


def measures_passes(server_args: Any, parallel: Any) -> bool:
    """Return whether a result is that of one pass: not with pipeline stages or split prefills."""
    return parallel.pp_size == 1 and not getattr(server_args, "enable_pdmux", False)


def writes_metrics(parallel: Any) -> bool:
    """Return whether this rank writes metrics: the first of each attention group, in the first stage."""
    ranks = (parallel.attn_tp_rank, parallel.attn_cp_rank, parallel.pp_rank)
    return not any(ranks)


class FairSglangPolicy(SchedulePolicy):  # type: ignore[misc]  # SGLang is untyped here
    """The hook in the method by which SGLang would sort its waiting list."""

    queue_adapter: SglangQueueAdapter

    def calc_priority(
        self, waiting_queue: Any, running_batch: Any = None, *_: Any, **__: Any
    ) -> None:
        """Begin a scheduling pass; the order is decided as SGLang iterates over the list."""
        self.queue_adapter.begin_pass(waiting_queue, running_batch)

    def waiting_queue_prefix_matched(self, waiting_queue: Any) -> bool:
        """Return False: SGLang's own match lengths of waiting requests are not kept up to date."""
        return False


class FairAdder(PrefillAdder):  # type: ignore[misc]
    """SGLang's admission of one scheduling pass; each admitted request is charged at once."""

    def __init__(self, *args: Any, queue_adapter: SglangQueueAdapter, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._queue_adapter = queue_adapter
        queue_adapter.expect_iteration(self)

    def add_one_req(self, req: Any, *args: Any, **kwargs: Any) -> Any:
        """Try to add a request, and charge it if the stock method did, before another one is chosen."""
        before = len(self.can_run_list)
        verdict = super().add_one_req(req, *args, **kwargs)
        if len(self.can_run_list) > before:
            self._queue_adapter.on_admit(req)
        return verdict


class FairSglangScheduler(StockScheduler):  # type: ignore[misc]
    """SGLang's scheduler after `take_over`."""

    fair_settings: Settings
    _passes: PassTimes | None = None  # where passes are measured

    def init_schedule_policy(self) -> None:
        """Set up the fair queue: the cache exists, and no request waits yet."""
        self.schedule_policy = "fcfs"
        super().init_schedule_policy()
        self.schedule_policy = self.fair_settings.scheduler
        try:
            self._set_up(self.fair_settings)
        except ConfigError as error:
            raise SystemExit(f"fairhit: {error}") from None

    def _set_up(self, settings: Settings) -> None:
        self._fair_tree = SglangTreeView(
            self.tree_cache, is_wanted=self._has_waiting, on_clear=self._rematch
        )
        self._fair = FairQueue(settings.policy(self._fair_tree))
        slots = SglangLoraSlots(self, settings.slot_rotation()) if self.enable_lora else None
        weights = Weights(settings.weights)
        self._queue_adapter = SglangQueueAdapter(
            self._fair, self._fair_tree, self, slots=slots, weights=weights
        )
        self._fair_metrics = ClientMetrics(
            waiting=self._fair.waiting,
            deficit=self._deficit_of,
            totals=self._fair_totals,
            cost=lambda: self._fair.cost,
            charges=self._fair.collect_charges if writes_metrics(get_parallel()) else dict,
            notify=partial(logger.info, "fairhit: %s"),
        )
        if measures_passes(self.server_args, get_parallel()):
            self._passes = PassTimes(
                PassMeter(self._fair.fit), self._queue_adapter.running_client, self._on_seconds
            )
        policy = self._fair.policy
        if isinstance(policy, KeepsLedger) and self._fair.fit and get_parallel().tp_size > 1:
            policy.cost.source = self._shared_cost
        versions.adapt_requests()
        versions.use_adder(partial(FairAdder, queue_adapter=self._queue_adapter))
        versions.observe_aborts(self, self._queue_adapter.remove)
        self._refuse_other_adders()
        self.policy.__class__ = FairSglangPolicy
        self.policy.queue_adapter = self._queue_adapter
        self.waiting_queue = self.waiting_queue  # a SglangWaitingQueue from now on
        if settings.audit:
            self.__dict__["get_next_batch_to_run"] = self._audited_next_batch
        # Policies without credit leave SGLang's own choices as they are.
        self._picks_victims = settings.scheduler not in WITHOUT_CREDIT
        self._names_adapters = settings.lora_clients is True
        self._writes_metrics = writes_metrics(get_parallel())
        if self._writes_metrics:
            self._fair_metrics.show()
        if not is_collected():
            logger.info("fairhit: per-client metrics are off; --enable-metrics turns them on")
        if self._fair_tree.cannot_keep:
            logger.warning("fairhit: eviction lru: this cache cannot evict wanted prompts last")
        is_exact = self._fair_tree.is_exact
        matching = "matching is exact" if is_exact else "requests are ordered by full attention"
        logger.info("fairhit: %s; %s", settings.described(self._fair.policy), matching)

    # -- SGLang's methods, around the stock ones ------------------------------------------------

    @property
    def waiting_queue(self) -> list[Any]:
        """The waiting requests: SGLang's list, a SglangWaitingQueue after the set-up."""
        return cast(list[Any], self.__dict__["_waiting"])

    @waiting_queue.setter
    def waiting_queue(self, reqs: list[Any]) -> None:
        adapter: SglangQueueAdapter | None = self.__dict__.get("_queue_adapter")
        if adapter is not None and not isinstance(reqs, SglangWaitingQueue):
            reqs = SglangWaitingQueue(reqs, adapter)
        self.__dict__["_waiting"] = reqs

    def get_prefill_adder_class(self) -> Any:
        """Return FairAdder, bound to the queue adapter."""
        return partial(FairAdder, queue_adapter=self._queue_adapter)

    def run_batch(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a pass, whose time begins now. O(batch)."""
        launch = partial(super().run_batch, batch, *args, **kwargs)
        return launch() if self._passes is None else self._passes.launched(batch, launch)

    def process_batch_result(self, batch: Any, result: Any) -> None:
        """Charge the output of each request, then forget the requests that ended. O(batch)."""
        if batch.forward_mode.is_extend():
            self._require_charged(batch.reqs)
        super().process_batch_result(batch, result)
        if self._passes is not None:
            self._passes.ended(result)
        self._queue_adapter.on_output(batch.reqs)
        if self._writes_metrics:
            self._fair_metrics.flush(is_idle=not self._queue_adapter.live)

    def send_abort_output(self, abort_req: Any, req: Any) -> None:
        """Remove a request that ends outside a batch: waiting, retracted for good, or in mid-chunk."""
        super().send_abort_output(abort_req, req)
        self._queue_adapter.remove(req)

    def _abort_on_queued_limit(self, recv_req: Any) -> bool:
        """Return whether `recv_req` is refused as the queue is full; another request may be dropped instead.

        SGLang always refuses the arriving request, so that one client's flood would shut out the others.
        """
        limit = self.max_queued_requests
        if limit is None or len(self.waiting_queue) < limit or not self._picks_victims:
            return bool(super()._abort_on_queued_limit(recv_req))
        dropped = self._queue_adapter.request_to_drop(recv_req)
        super()._abort_on_queued_limit(dropped)  # the queue is still full, so SGLang refuses it
        if dropped is recv_req:
            return True
        self._release_aborted_request(dropped)
        self.waiting_queue.remove(dropped)
        self.beam_coordinator.retire_group(dropped)
        return False

    def update_running_batch(self, batch: Any) -> Any:
        """Prepare a decode step; if memory is short, retract requests in the plug-in's order."""
        if self._picks_victims:
            stock = type(batch)._get_decode_retraction_order
            batch._get_decode_retraction_order = partial(self._retraction_order, stock)
        return super().update_running_batch(batch)

    def _retraction_order(self, stock: Any, reqs: list[Any]) -> list[int]:
        """Return the indices of requests, the first to retract last. O(running) for each choice."""
        order: list[int] = stock(reqs)
        at = {id(req): index for index, req in enumerate(reqs)}
        chosen = [at[id(req)] for req in self._queue_adapter.victims(reqs, MAX_VICTIMS)]
        return [index for index in order if index not in chosen] + chosen[::-1]

    # -- SglangSchedulerView, LoraSchedulerView --------------------------------------------------

    def client_of(self, req: Any) -> ClientId:
        """Return the client of a request; see `identity`."""
        return client_of(req, self._adapter_name if self._names_adapters else None)

    def has_capacity(self, adder: Any) -> bool:
        """Check what SGLang checks in its iteration, before a request is chosen; also mark a full batch."""
        batch, verdict = adder.running_batch, adder.budget_state()
        if verdict == AddReqResult.NO_TOKEN:
            batch.batch_is_full = bool(adder.can_run_list) or not batch.is_empty()
        if verdict != AddReqResult.CONTINUE:
            return False
        if len(adder.can_run_list) >= versions.free_rows(self, adder):
            batch.batch_is_full = True
        return not batch.batch_is_full

    def service_of(self, client: ClientId) -> Service:
        """Return the service to add to; a rank that writes no metrics keeps none."""
        return self._fair_metrics.touch(client) if self._writes_metrics else Service()

    def holds_lora_slot(self, adder: Any, req: Any) -> bool:
        """Return whether the adapter is among those that SGLang passes to `can_schedule_lora_req`."""
        in_batch = (each for each in adder.running_batch.reqs if not each.finished())
        return any(each.lora_id == req.lora_id for each in chain(adder.can_run_list, in_batch))

    def running_requests(self, batch: Any) -> Iterable[Any]:
        """Return the requests whose adapters SGLang counts in this pass.

        `self.running_batch` lags behind: requests of the last prefill may be in `batch` only.
        """
        in_batch = [req for req in batch.reqs if not req.finished()]
        return in_batch if self.chunked_req is None else [*in_batch, self.chunked_req]

    def slots(self) -> int:
        """Return the number of LoRA slots as SGLang's `validate_lora_batch` counts them."""
        return int(self.max_loras_per_batch - self._loras.num_pinned_loras)

    def is_pinned(self, req: Any) -> bool:
        """Return whether the request's adapter is pinned."""
        adapter = self._adapter(req)
        return adapter is not None and bool(adapter.pinned)

    # -- inside ---------------------------------------------------------------------------------

    def _audited_next_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Compare all records with SGLang's lists before SGLang's `get_next_batch_to_run`. O(requests)."""
        queue = self.waiting_queue[:]  # a slice, since iteration may mean admission
        waiting = dict.fromkeys(queue)
        # A batch keeps requests that ended since it was made, until SGLang filters it.
        in_flight = (
            req
            for req in (*self.collect_inflight_reqs(), self.chunked_req)
            if req and not req.finished() and not req.is_retracted
        )
        running = {req: None for req in in_flight if req not in waiting}
        wrong = [*self._queue_adapter.differences(waiting, running)]
        if len(waiting) != len(queue):
            wrong.append(f"{len(queue)} wait in SGLang's list, which has {len(waiting)} requests")
        if wrong:
            raise AuditFailed(f"fairhit: audit: {'; '.join(wrong)}")
        return super().get_next_batch_to_run(*args, **kwargs)

    def _refuse_other_adders(self) -> None:
        """Raises ConfigError if another plug-in has an adder of its own, which ours would replace."""
        asked = getattr(super(), "get_prefill_adder_class", None)
        if asked is not None and (adder := asked()) is not PrefillAdder:
            raise ConfigError(
                f"--schedule-policy {self.schedule_policy}: cannot be had with the adder {adder!r}, "
                "which is not SGLang's own"
            )

    def _require_charged(self, reqs: Iterable[Any]) -> None:
        """Raises ConfigError, which ends the server, if a request is computed without having been charged.

        A version that admits by something else than FairAdder would otherwise be silently unfair.
        """
        for req in reqs:
            if not (self._queue_adapter.is_charged(req) or req.finished() or req.is_retracted):
                raise ConfigError(
                    f"--schedule-policy {self.schedule_policy}: request {req.rid} was admitted past the "
                    "plug-in; see the versions that it was tested with"
                )

    @property
    def _loras(self) -> Any:
        return self.tp_worker.model_runner.lora_manager

    def _has_waiting(self) -> bool:
        adapter = self.__dict__.get("_queue_adapter")
        return adapter is not None and len(adapter) > 0

    def _rematch(self) -> None:
        self._queue_adapter.rematch()

    def _adapter(self, req: Any) -> Any:
        """Return SGLang's `LoRARef` of a request, None for the model itself."""
        return self._loras.lora_refs.get(req.lora_id) if self.enable_lora else None

    def _adapter_name(self, req: Any) -> object:
        return getattr(self._adapter(req), "lora_name", None)

    def _fair_totals(self) -> EngineTotals:
        adapter = self._queue_adapter
        return EngineTotals(
            recomputed_len=self._fair.recomputed_len,
            refill_rounds=self._fair.refill_rounds,
            truncated_passes=adapter.truncated_passes,
            slot_rotations=adapter.slot_rotations,
        )

    def _shared_cost(self, before: Cost) -> Cost:
        """Return the cost by the passes of the first rank; all ranks ask after equally many passes."""
        fit = self._fair.fit
        if fit is None or not fit.is_due:
            return before
        cost: Cost = versions.from_first_rank(fit.cost(before))
        return cost

    def _on_seconds(self, client: ClientId, seconds: float) -> None:
        if self._writes_metrics:
            self._fair_metrics.add_seconds(client, seconds)

    def _deficit_of(self, client: ClientId) -> float:
        return self._fair.credit(client) / UNITS_PER_TOKEN

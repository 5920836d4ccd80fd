"""FairScheduler: stock SGLang's scheduler with a fair waiting queue. None of its loops is copied.

Integration points (SGLang 0.5.23; older ones: `versions.py`), besides those of `queue.py`, `tree.py` and
`identity.py`:

    init_schedule_policy     the stock one makes an fcfs; ours begins each look and orders nothing
    waiting_queue            a property here, so that a list made anew is a FairQueue again
    process_batch_result     each request of the batch pays for the growth of `output_ids`; some finished
    send_abort_output        for all that end otherwise: waiting, retracted, in mid-chunk
    update_running_batch     retracts by `ScheduleBatch._get_decode_retraction_order`
    _abort_on_queued_limit   refuses a request over --max-queued-requests; ours says which
    get_num_allocatable_reqs, PrefillAdder.budget_state   whether there is room at all
    get_next_batch_to_run    the setting `audit` compares all records before each: `waiting_queue`,
                             `chunked_req`, `collect_inflight_reqs`, `Req.finished`, `is_retracted`
    get_prefill_adder_class  made for subclasses of `PrefillAdder`: `add_one_req` appends to `can_run_list`
                             each request it adds, in full or as a first chunk; the later chunks, which
                             `add_chunked_req` adds, were charged with the first

The same decisions on all tensor-parallel ranks: nothing here depends on a clock, a hash or a set's order.
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
from fairhit.core.request import ClientId
from fairhit.core.service import UNITS_PER_TOKEN, Service, Weights
from fairhit.engines.client_metrics import ClientMetrics, Totals, is_collected
from fairhit.engines.settings import Settings, read_settings
from fairhit.engines.sglang import versions
from fairhit.engines.sglang.identity import client_of
from fairhit.engines.sglang.lora_slots import SglangLoraSlots
from fairhit.engines.sglang.queue_adapter import SglangQueueAdapter
from fairhit.engines.sglang.radix.rust_nodes import choose_core
from fairhit.engines.sglang.radix.tree import EngineTree
from fairhit.engines.sglang.waiting_queue import SglangWaitingQueue
from fairhit.errors import AuditFailed, ConfigError
from fairhit.policies import OWED_ALIKE

logger = logging.getLogger("sglang.fairhit")

# More are hardly ever retracted in one step; the choice costs O(running) for each.
MAX_VICTIMS = 8


def take_over(scheduler: Any, server_args: Any) -> None:
    """Before the scheduler is initialised: from now on it is a FairScheduler, or the process ends."""
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


# Settings by which KV is kept beyond the device.
_HOST_CACHES = (
    "enable_hierarchical_cache", "enable_lmcache", "enable_unified_cache_external_linker",
)  # fmt: skip
# What is called or put in the place of: another version may have it under another name.
_USED = {
    "Scheduler": (
        "init_schedule_policy", "process_batch_result", "update_running_batch",
        "get_num_allocatable_reqs", "_abort_on_queued_limit", "_release_aborted_request",
    ),
    "PrefillAdder": ("add_one_req", "budget_state"),
    "ScheduleBatch": ("_get_decode_retraction_order",),
}  # fmt: skip


def _require(*owners: type) -> None:
    """Raises ConfigError in a version of SGLang that lacks what we use."""
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
    """What decides about the queue beside us. Raises ConfigError."""
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
    """What one stage emits comes while another's batch is planned: no turn would end. Raises ConfigError."""
    stages = getattr(server_args, "pp_size", 1)
    if stages > 1 and getattr(server_args, "enable_lora", None) and settings.turns().is_on:
        raise ConfigError(
            f"--pp-size {stages}: LoRA adapters take no turns with pipeline stages; "
            "set FAIRHIT_ADAPTER_TURN=0"
        )


def writes_metrics(parallel: Any) -> bool:
    """One rank speaks for all that decide alike: of each attention group the first, of its stages too."""
    ranks = (parallel.attn_tp_rank, parallel.attn_cp_rank, parallel.pp_rank)
    return not any(ranks)


class FairSglangPolicy(SchedulePolicy):  # type: ignore[misc]  # SGLang is untyped here
    """Stands where SGLang would sort the queue."""

    line: SglangQueueAdapter

    def calc_priority(
        self, waiting_queue: Any, running_batch: Any = None, *_: Any, **__: Any
    ) -> None:
        """Begin a look; who is next is decided as the queue is walked."""
        self.line.begin(waiting_queue, running_batch)

    def waiting_queue_prefix_matched(self, waiting_queue: Any) -> bool:
        """No: SGLang's own count of matched tokens is not kept up to date for those who wait."""
        return False


class FairAdder(PrefillAdder):  # type: ignore[misc]
    """SGLang's admission of one scheduling pass; each admitted request is charged at once."""

    def __init__(self, *args: Any, line: SglangQueueAdapter, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._line = line
        line.expect_walk(self)

    def add_one_req(self, req: Any, *args: Any, **kwargs: Any) -> Any:
        """Try to add a request, and charge it if the stock method did, before another one is chosen."""
        before = len(self.can_run_list)
        verdict = super().add_one_req(req, *args, **kwargs)
        if len(self.can_run_list) > before:
            self._line.admitted(req)
        return verdict


class FairSglangScheduler(StockScheduler):  # type: ignore[misc]
    """What `take_over` makes of the Scheduler."""

    fair_settings: Settings

    def init_schedule_policy(self) -> None:
        """The cache is there, and nobody waits yet."""
        self.schedule_policy = "fcfs"
        super().init_schedule_policy()
        self.schedule_policy = self.fair_settings.scheduler
        try:
            self._set_up(self.fair_settings)
        except ConfigError as error:
            raise SystemExit(f"fairhit: {error}") from None

    def _set_up(self, settings: Settings) -> None:
        self._fair_tree = EngineTree(
            self.tree_cache, is_wanted=self._is_anyone_waiting, on_clear=self._rematch
        )
        self._fair = FairQueue(settings.policy(self._fair_tree))
        slots = SglangLoraSlots(self, settings.turns()) if self.enable_lora else None
        weights = Weights(settings.weights)
        self._line = SglangQueueAdapter(
            self._fair, self._fair_tree, self, slots=slots, weights=weights
        )
        self._fair_metrics = ClientMetrics(
            waiting=self._fair.waiting, deficit=self._deficit_of, totals=self._fair_totals
        )
        versions.adapt_requests()
        versions.use_adder(partial(FairAdder, line=self._line))
        versions.hear_aborts(self, self._line.leave)
        self._refuse_other_adders()
        self.policy.__class__ = FairSglangPolicy
        self.policy.line = self._line
        self.waiting_queue = self.waiting_queue  # from now on a FairQueue
        if settings.audit:
            self.__dict__["get_next_batch_to_run"] = self._audited_next_batch
        # Where all are owed alike SGLang's own choices are as good.
        self._picks_victims = settings.scheduler not in OWED_ALIKE
        self._names_adapters = settings.lora_clients is True
        self._writes_metrics = writes_metrics(get_parallel())
        if self._writes_metrics:
            self._fair_metrics.show()
        if not is_collected():
            logger.info("fairhit: per-client metrics are off; --enable-metrics has them")
        said = (
            "matching is exact" if self._fair_tree.is_exact else "the order goes by full attention"
        )
        logger.info("fairhit: %s; %s", settings, said)

    # -- SGLang's methods, around the stock ones ------------------------------------------------

    @property
    def waiting_queue(self) -> list[Any]:
        """Who waits: SGLang's list, ours once there is a line."""
        return cast(list[Any], self.__dict__["_waiting"])

    @waiting_queue.setter
    def waiting_queue(self, reqs: list[Any]) -> None:
        line: SglangQueueAdapter | None = self.__dict__.get("_line")
        if line is not None and not isinstance(reqs, SglangWaitingQueue):
            reqs = SglangWaitingQueue(reqs, line)
        self.__dict__["_waiting"] = reqs

    def get_prefill_adder_class(self) -> Any:
        """Ours, which knows the line."""
        return partial(FairAdder, line=self._line)

    def process_batch_result(self, batch: Any, result: Any) -> None:
        """Charge what each request emitted, then forget those that ended. O(batch)."""
        if batch.forward_mode.is_extend():
            self._refuse_unseen(batch.reqs)
        super().process_batch_result(batch, result)
        self._line.emitted(batch.reqs)
        if self._writes_metrics:
            self._fair_metrics.flush(is_idle=not self._line.live)

    def send_abort_output(self, abort_req: Any, req: Any) -> None:
        """It ends outside a batch: from the queue, retracted for good, or in mid-chunk."""
        super().send_abort_output(abort_req, req)
        self._line.leave(req)

    def _abort_on_queued_limit(self, recv_req: Any) -> bool:
        """Whether `recv_req` is refused since the queue is full, and not another one in its place.

        SGLang refuses whoever arrives next, so that one client's flood would shut out the others.
        """
        limit = self.max_queued_requests
        if limit is None or len(self.waiting_queue) < limit or not self._picks_victims:
            return bool(super()._abort_on_queued_limit(recv_req))
        dropped = self._line.least_entitled(recv_req)
        super()._abort_on_queued_limit(dropped)  # it is still full: SGLang's own refusal
        if dropped is recv_req:
            return True
        self._release_aborted_request(dropped)
        self.waiting_queue.remove(dropped)
        self.beam_coordinator.retire_group(dropped)
        return False

    def update_running_batch(self, batch: Any) -> Any:
        """One decode step is prepared; if memory does not suffice, it retracts whom we say."""
        if self._picks_victims:
            stock = type(batch)._get_decode_retraction_order
            batch._get_decode_retraction_order = partial(self._retraction_order, stock)
        return super().update_running_batch(batch)

    def _retraction_order(self, stock: Any, reqs: list[Any]) -> list[int]:
        """Indices, the first to go last. O(running) for each that we choose."""
        order: list[int] = stock(reqs)
        at = {id(req): index for index, req in enumerate(reqs)}
        chosen = [at[id(req)] for req in self._line.victims(reqs, MAX_VICTIMS)]
        return [index for index in order if index not in chosen] + chosen[::-1]

    # -- what the line asks ---------------------------------------------------------------------

    def client_of(self, req: Any) -> ClientId:
        """See `identity`."""
        return client_of(req, self._adapter_name if self._names_adapters else None)

    def has_room(self, adder: Any) -> bool:
        """As the walk itself asks, but before anybody is chosen; it marks a full batch, too."""
        batch, verdict = adder.running_batch, adder.budget_state()
        if verdict == AddReqResult.NO_TOKEN:
            batch.batch_is_full = bool(adder.can_run_list) or not batch.is_empty()
        if verdict != AddReqResult.CONTINUE:
            return False
        if len(adder.can_run_list) >= versions.free_rows(self, adder):
            batch.batch_is_full = True
        return not batch.batch_is_full

    def received(self, client: ClientId) -> Service:
        """See `ClientMetrics.touch`; a rank that never writes them keeps nothing."""
        return self._fair_metrics.touch(client) if self._writes_metrics else Service()

    def holds_slot(self, adder: Any, req: Any) -> bool:
        """Whether its adapter is among those that `can_schedule_lora_req` is shown."""
        in_batch = (each for each in adder.running_batch.reqs if not each.finished())
        return any(each.lora_id == req.lora_id for each in chain(adder.can_run_list, in_batch))

    def running(self, batch: Any) -> Iterable[Any]:
        """Those whose adapters SGLang counts when it looks whom to admit.

        `self.running_batch` lags behind: those of the last prefill may be in `batch` only.
        """
        in_batch = [req for req in batch.reqs if not req.finished()]
        return in_batch if self.chunked_req is None else [*in_batch, self.chunked_req]

    def slots(self) -> int:
        """As SGLang's `validate_lora_batch` counts them."""
        return int(self.max_loras_per_batch - self._loras.num_pinned_loras)

    def is_pinned(self, req: Any) -> bool:
        """See `SlotHost`."""
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
        wrong = [*self._line.differences(waiting, running)]
        if len(waiting) != len(queue):
            wrong.append(f"{len(queue)} wait in SGLang's list, which has {len(waiting)} requests")
        if wrong:
            raise AuditFailed(f"fairhit: audit: {'; '.join(wrong)}")
        return super().get_next_batch_to_run(*args, **kwargs)

    def _refuse_other_adders(self) -> None:
        """Raises ConfigError where another plug-in admits by something of its own, which ours would drop."""
        asked = getattr(super(), "get_prefill_adder_class", None)
        if asked is not None and (adder := asked()) is not PrefillAdder:
            raise ConfigError(
                f"--schedule-policy {self.schedule_policy}: cannot be had with the adder {adder!r}, "
                "which is not SGLang's own"
            )

    def _refuse_unseen(self, reqs: Iterable[Any]) -> None:
        """Raises ConfigError, which ends the server, if one is computed that was never charged.

        So it would be where a version admits by something else than our adder: unfair, and in silence.
        """
        for req in reqs:
            if not (self._line.has_admitted(req) or req.finished() or req.is_retracted):
                raise ConfigError(
                    f"--schedule-policy {self.schedule_policy}: request {req.rid} was admitted past the "
                    "plug-in; see the versions that it was tested with"
                )

    @property
    def _loras(self) -> Any:
        return self.tp_worker.model_runner.lora_manager

    def _is_anyone_waiting(self) -> bool:
        line = self.__dict__.get("_line")
        return line is not None and len(line) > 0

    def _rematch(self) -> None:
        self._line.rematch()

    def _adapter(self, req: Any) -> Any:
        """SGLang's `LoRARef`, None for the model itself."""
        return self._loras.lora_refs.get(req.lora_id) if self.enable_lora else None

    def _adapter_name(self, req: Any) -> object:
        return getattr(self._adapter(req), "lora_name", None)

    def _fair_totals(self) -> Totals:
        line = self._line
        return Totals(
            self._fair.recomputed_len, self._fair.refill_rounds, line.cut_looks, line.adapter_turns
        )

    def _deficit_of(self, client: ClientId) -> float:
        return self._fair.policy.credit(client) / UNITS_PER_TOKEN

"""The waiting queue that vLLM peeks into and pops from, ordered by the fair queue.

Integration points (vLLM 0.15 to 0.33): the `RequestQueue` methods, called in vLLM's `schedule()` and around
it; `RequestStatus`; `Request.request_id`, `num_prompt_tokens`, `num_computed_tokens`.

vLLM asks whether the queue is true, peeks, tries to allocate, and pops what it admits; but it also pops
requests that it merely skips. So a pop is tentative: it is resolved at the next call or at the end of the
step, and the request is charged only if it then runs or loads its KV from elsewhere. Other calls mean:

    prepend of a popped request     skipped: put back, and retried in a later step
    prepend of a PREEMPTED request  it ran: retried first, and not charged again
    remove                          aborted, or stopped by an output that was still in flight
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count, islice
from typing import Any, Protocol

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import RequestStatus

from fairhit.core.fair_queue import FairQueue, RequestState
from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.service import Service
from fairhit.engines.lora_slots import LoraSlotRotation, Taker
from fairhit.engines.skipped_requests import RETRIES_PER_PASS, SkippedRequests
from fairhit.engines.vllm.block_view import VllmBlockView
from fairhit.engines.vllm.identity import adapter_of, client_of
from fairhit.errors import QueueFull

# Blocked requests polled per step: bounds the step, not the wait.
POLLS_PER_STEP = 8
# Skips after which a pass ends; each costs vLLM a lookup and the queue a removal and an insertion.
SKIPS_PER_PASS = 64
# Requests skipped per pass without a try, as their LoRA adapter found no slot in it: cheaper than a skip.
UNTRIED_SKIPS_PER_PASS = 256
# Requests retried per pass of one client and an adapter without a slot.
RETRIES_PER_ADAPTER = 2

# Bound once and compared by identity, as this runs for every admission.
_RUNNING, _LOADING = RequestStatus.RUNNING, RequestStatus.WAITING_FOR_REMOTE_KVS
READY = (RequestStatus.WAITING, RequestStatus.PREEMPTED)
# vLLM's methods that make a blocked request ready; 0.15 has none, and does so when the request is offered.
PROMOTIONS = ("_handle_blocked_waiting_request", "_try_promote_blocked_waiting_request")


class VllmSchedulerView(Protocol):
    """The scheduler state that the waiting queue reads, and vLLM's own promotion of blocked requests."""

    def has_free_slot(self) -> bool:
        """Return whether one more request may run; without a free slot no pass begins and no refill runs."""
        ...

    def promote(self, request: Any) -> bool:
        """Unblock a request if vLLM finds it ready; return whether to offer it to vLLM now."""
        ...

    def lora_slots(self) -> tuple[int, dict[RequestId, Taker]]:
        """Return the number of LoRA slots (0: no limit) and the takers that run. O(running)."""
        ...

    def kv_holding_with_adapter(self) -> Iterable[Any]:
        """Return the requests with a LoRA adapter in `kv_holding_waiting`, which vLLM drains first."""
        ...

    def is_between_inputs(self, request: Any) -> bool:
        """Return whether a removed request is a streaming session between two of its inputs."""
        ...


class VllmWaitingQueue(RequestQueue):  # type: ignore[misc]  # vLLM is untyped here
    """vLLM's waiting requests. `Any` is vLLM's request, `Request` the fair queue's, of the same id.

    `keeps_loading`: requests that load remote KV are put back here; 0.32 keeps them in another queue.
    `names_adapters`: an unnamed client is named after its LoRA adapter. `service_of` returns a client's
    service to add to, and `on_removed` ends an aborted request.
    """

    def __init__(
        self,
        core: FairQueue,
        engine: VllmSchedulerView,
        blocks: VllmBlockView,
        *,
        rotation: LoraSlotRotation,
        keeps_loading: bool,
        names_adapters: bool,
        service_of: Callable[[ClientId], Service],
        on_removed: Callable[[Request], None],
    ) -> None:
        self._core, self._engine, self._blocks, self._rotation = core, engine, blocks, rotation
        self._keeps_loading, self._names_adapters = keeps_loading, names_adapters
        self._service_of, self._on_removed = service_of, on_removed
        self._arrivals = count()
        self.live: dict[RequestId, Request] = {}  # from arrival to the end, running ones included
        self._ready: dict[RequestId, Any] = {}
        self._blocked: dict[RequestId, Any] = {}  # by a grammar
        self._skipped: SkippedRequests[Any] = SkippedRequests()  # for another reason
        self._loading: dict[RequestId, Any] = {}  # charged; waits for remote KV or more input
        self._loaded: dict[RequestId, Any] = {}  # charged and ready; holds blocks, so it goes first
        self._proposal: Any = None
        self._popped: Any = None
        self._to_put_back: set[RequestId] = set()  # popped and skipped in this step
        # Requests with an adapter that vLLM keeps in a queue of its own, as of the begin of the step.
        self._kv_holding: dict[RequestId, Any] = {}
        self._pass_has_begun = False
        self._skips = self._untried_skips = 0
        self._is_truncated = False
        self._without_slot: set[str | None] = set()  # adapters that found no slot in this pass
        self._slot_count = 0  # LoRA slots; 0: no limit
        # Adapters of the running requests; None until they are read in this step.
        self._running_adapters: set[str | None] | None = None
        self.truncated_passes = 0  # ended at one of the limits above

    # -- calls of the scheduler -----------------------------------------------------------------

    def begin_step(self) -> None:
        """Begin a step; the pass begins when vLLM first asks with a free slot."""
        assert self._popped is None and not self._to_put_back
        self._core.begin_pass()
        self._proposal = None
        self._pass_has_begun = False
        self._skips = self._untried_skips = 0
        self._is_truncated = False
        self._without_slot.clear()
        self._running_adapters = None
        self._kv_holding = {one.request_id: one for one in self._engine.kv_holding_with_adapter()}

    def end_step(self, scheduled: Mapping[RequestId, int]) -> None:
        """End a step; tokens that it scheduled already count in `num_computed_tokens`."""
        if self._popped is not None:
            self._resolve_popped(scheduled.get(self._popped.request_id, 0))
        assert not self._to_put_back, self._to_put_back
        for name, request in list(self._kv_holding.items()):
            self._still_waits(name, request)
        self._blocks.notify_listeners()

    # -- queries of vLLM ------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Return whether a request can be admitted now; vLLM asks before each peek."""
        if self._proposal is not None:
            return True
        self._resolve_popped()
        if not self._engine.has_free_slot():
            return bool(self._ready or self._loaded)
        return self._next() is not None

    def peek_request(self) -> Any:
        """Return the request to try now."""
        if self._proposal is None:
            self._resolve_popped()
            if self._next() is None:
                raise IndexError("nothing can be admitted")
        return self._proposal

    def pop_request(self) -> Any:
        """Remove the proposed request, for the batch or to be skipped: `_resolve_popped` finds out."""
        request = self.peek_request()
        name = request.request_id
        del (self._loaded if self._is_charged(name) else self._ready)[name]
        self._popped, self._proposal = request, None
        return request

    def _next(self) -> Any:
        """Return the request to try now, None if there is none. O(log waiting) once per admission."""
        if self._proposal is None:
            if not self._pass_has_begun:
                self._begin_pass()
            if self._loaded:
                self._proposal = next(iter(self._loaded.values()))
            else:
                self._proposal = self._propose()
        return self._proposal

    def _propose(self) -> Any:
        """Return the fair queue's choice, without requests whose adapter found no slot in this pass."""
        self._blocks.notify_listeners()
        while self._skips < SKIPS_PER_PASS and self._untried_skips < UNTRIED_SKIPS_PER_PASS:
            if (chosen := self._core.propose()) is None:
                return None
            request = self._ready[chosen.id]
            adapter = adapter_of(request)
            # 0.15 finds out that a request is no longer blocked only when it is offered that request.
            is_blocked = request.status not in READY
            if is_blocked or not (adapter in self._without_slot or self._is_barred(adapter)):
                return request
            self._untried_skips += 1
            del self._ready[chosen.id]
            self._core.block(chosen)
            self._skip(chosen.client, request)
        self.truncated_passes += not self._is_truncated
        self._is_truncated = True
        return None

    def _begin_pass(self) -> None:
        """Begin this step's pass: rotate LoRA slots, retry skipped requests, poll blocked ones."""
        self._pass_has_begun = True
        for name, request in list(self._kv_holding.items()):
            if self._still_waits(name, request):  # vLLM offers all of these first
                self._record_skip(request)
        if self._rotation.is_contended:
            self._rotate_slots()
        for request in self._skipped.take(self._retry_limit):
            self._unblock(request)
        for waiting in (self._loading, self._blocked):
            for request in list(islice(waiting.values(), POLLS_PER_STEP)):
                del waiting[request.request_id]
                if request.status in READY or self._engine.promote(request):
                    self._unblock(request)
                else:  # appended, so that others are polled next time
                    waiting[request.request_id] = request

    def _rotate_slots(self) -> None:
        """Rotate LoRA slots, and retry requests with a reserved slot first, so that they use it."""
        self._rotation.begin_pass(*self._engine.lora_slots())
        for taker in self._rotation.reserved:
            for request in self._skipped.take_like(taker):
                self._unblock(request)

    def _is_barred(self, adapter: str | None) -> bool:
        """Return whether the rotation forbids an adapter in this step; the model itself takes no slot."""
        return adapter is not None and self._rotation.forbids(adapter)

    def _retry_limit(self, taker: Taker) -> int:
        """Return how many requests of a client and adapter to retry in this pass. O(1)."""
        adapter = taker.adapter
        if self._is_barred(adapter):  # skipped again at once
            return 0
        is_short = adapter is not None and self._lacks_slot(adapter)
        return RETRIES_PER_ADAPTER if is_short else RETRIES_PER_PASS

    def _skip(self, client: ClientId, request: Any) -> None:
        self._skipped.add(
            request.request_id,
            Taker(client, adapter_of(request)),
            request,
            is_preempted=request.status == RequestStatus.PREEMPTED,
        )

    def _unblock(self, request: Any) -> None:
        """Let a blocked or skipped request be proposed again. O(log waiting)."""
        name = request.request_id
        if self._is_charged(name):
            self._loaded[name] = request
            self._register_for_slot(request)
            return
        self._ready[name] = request
        ours = self.live[name]
        try:
            self._core.unblock(ours)
        except QueueFull:  # the table of clients is full, and has forgotten this one meanwhile
            self._core.cancel(ours)
            self.live[name] = replace(ours, client=OTHER)
            self._core.add(self.live[name])
        self._register_for_slot(request)

    def _resolve_popped(self, scheduled_len: int = 0) -> None:
        """Admit or block the last popped request. `scheduled_len` tokens already count as computed."""
        if (popped := self._popped) is None:
            return
        self._popped = None
        request = self.live[popped.request_id]
        is_running, is_loading = popped.status is _RUNNING, popped.status is _LOADING
        if is_running and (self._without_slot or self._skipped):
            self._without_slot.discard(adapter_of(popped))
            for more in self._skipped.take_like(Taker(request.client, adapter_of(popped))):
                self._unblock(more)
        computed_len = popped.num_computed_tokens - scheduled_len
        is_put_back = not is_running and (self._keeps_loading or not is_loading)
        if self._is_charged(request.id):
            extend_len = popped.num_tokens - computed_len
        elif is_running or is_loading:
            extend_len = self._admit(request, popped, computed_len=computed_len)
        else:
            self._core.block(request)
            self._skips += 1
        if is_put_back:
            self._to_put_back.add(request.id)
        if is_running and (adapter := adapter_of(popped)):
            if self._running_adapters is not None:
                self._running_adapters.add(adapter)
            self._rotation.on_admit(request.id, Taker(request.client, adapter), extend_len)
        elif not is_running:
            self._record_skip(popped)

    def _record_skip(self, request: Any) -> None:
        """Record that vLLM did not admit a request: for want of a LoRA slot if others hold all. O(1)."""
        if request.status not in READY:  # no slot is reserved for it while it loads
            self._rotation.remove_waiting(request.request_id)
        elif adapter := adapter_of(request):
            self._register_for_slot(request)
            if self._lacks_slot(adapter):
                self._without_slot.add(adapter)
                self._rotation.on_no_slot()
            else:
                self._rotation.on_declined(adapter)

    def _lacks_slot(self, adapter: str | None) -> bool:
        """Return whether other adapters hold all LoRA slots. O(running) the first time in a step."""
        if self._running_adapters is None:
            self._slot_count, running = self._engine.lora_slots()
            self._running_adapters = {taker.adapter for taker in running.values()}
        held = self._running_adapters
        return adapter not in held and 0 < self._slot_count <= len(held)

    def _still_waits(self, name: RequestId, request: Any) -> bool:
        """Return whether a request of `kv_holding_waiting` still waits; if it runs, record that. O(1)."""
        if request.status is not _RUNNING:
            self._register_for_slot(request)
            return True
        del self._kv_holding[name]
        self._rotation.on_admit(name, Taker(self.live[name].client, adapter_of(request)), 0)
        return False

    def _is_charged(self, name: RequestId) -> bool:
        """Return whether a waiting request was charged before: it loads KV, or is a streaming session."""
        return self._core.state(self.live[name]) is RequestState.RUNNING

    def _register_for_slot(self, request: Any) -> None:
        """Record that a request waits for a LoRA slot, if it needs one and waits for nothing else."""
        if request.status in READY and (adapter := adapter_of(request)):
            ours = self.live[request.request_id]
            self._rotation.add_waiting(ours.id, Taker(ours.client, adapter))

    def _admit(self, request: Request, popped: Any, *, computed_len: int) -> int:
        """Charge a request for the prompt tokens not in the cache, with the match locked now; return them."""
        if self._core.state(request) is RequestState.PREEMPTED:
            # Charged before; the system bears the recomputation.
            self._core.admit(request, extend_len=popped.num_tokens - computed_len)
            return 0
        # 0.15 reports only here what it loads; later versions count it as computed.
        loaded_len = getattr(popped, "num_external_computed_tokens", 0)
        cached_len = min(max(computed_len, loaded_len), request.input_len - 1)
        extend_len = request.input_len - cached_len
        self._core.admit(request, extend_len=extend_len)
        service = self._service_of(request.client)
        service.extend_len += extend_len
        service.cached_len += cached_len
        return extend_len

    # -- insertions and removals by vLLM --------------------------------------------------------

    def add_request(self, request: Any) -> None:
        """Add a request that arrives, or a streaming session that waits for its next input. O(prompt)."""
        self._resolve_popped()
        self._proposal = None
        name = request.request_id
        is_ready = request.status in READY
        if name in self.live and self._is_charged(name):
            (self._loaded if is_ready else self._loading)[name] = request
        elif name in self.live:
            self._block_preempted_session(request)
        else:
            ours = self._add_arrival(request)
            (self._ready if is_ready else self._blocked)[name] = request
            if not is_ready:
                self._core.block(ours)
        if name not in self._blocked:
            self._register_for_slot(request)

    def _block_preempted_session(self, request: Any) -> None:
        """Block a streaming session that was preempted while the last output for its input was in flight."""
        ours = self.live[request.request_id]
        self._ready.pop(ours.id, None)
        self._skipped.remove(ours.id)
        self._rotation.remove_waiting(ours.id)
        if self._core.state(ours) is not RequestState.BLOCKED:
            self._core.block(ours)
        self._blocked[ours.id] = request

    def _add_arrival(self, request: Any) -> Request:
        """Add a new request to the fair queue. O(prompt)."""
        self._blocks.notify_listeners()
        ours = Request(
            id=request.request_id,
            client=client_of(request, names_adapters=self._names_adapters),
            prompt=self._blocks.prompt_units(request),
            input_len=max(1, request.num_prompt_tokens),  # vLLM's scheduler accepts an empty prompt
            max_tokens=max(1, request.max_tokens),
            order=next(self._arrivals),
        )
        try:
            self._core.add(ours)
        except QueueFull:  # an exception would end the engine; OTHER is never refused
            ours = replace(ours, client=OTHER)
            self._core.add(ours)
        self.live[ours.id] = ours
        self._service_of(ours.client)  # listed in the metrics from now on
        return ours

    def prepend_request(self, request: Any) -> None:
        """Take back a request that was preempted, or skipped earlier in this step."""
        self._resolve_popped()
        self._proposal = None
        name = request.request_id
        if name in self._to_put_back:
            self._to_put_back.remove(name)
            self._put_back(request)
            return
        if request.status == RequestStatus.PREEMPTED:
            self._core.preempt(self.live[name])
            self._ready[name] = request
        else:
            # Its remote KV did not arrive: it lost its blocks, and keeps its charge.
            self._loaded[name] = request
        self._register_for_slot(request)

    def _put_back(self, request: Any) -> None:
        name = request.request_id
        if self._is_charged(name):
            self._loading[name] = request
        elif request.status in READY:
            self._skip(self.live[name].client, request)
        else:
            self._blocked[name] = request

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """Make all requests skipped in this step waiting again."""
        for request in list(requests):
            self.prepend_request(request)

    def remove_request(self, request: Any) -> None:
        """Remove a request that ended; vLLM also passes requests that wait elsewhere."""
        self._resolve_popped()
        self._proposal = None
        if self._engine.is_between_inputs(request):
            return
        name = request.request_id
        for waiting in self._waiting():
            waiting.pop(name, None)
        self._skipped.remove(name)
        self._kv_holding.pop(name, None)
        self._rotation.remove(name)
        if ours := self.live.get(name):
            self._on_removed(ours)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """Remove requests that ended. O(removed), where the stock queue costs O(waiting)."""
        for request in list(requests):
            self.remove_request(request)

    def end(self, name: RequestId) -> Request | None:
        """Remove and return the record of a request that vLLM has ended, waiting or running. O(1).

        Every record is removed here: the end of a running request does not reach the queue otherwise.
        """
        self._kv_holding.pop(name, None)
        self._rotation.remove(name)
        return self.live.pop(name, None)

    # -- contents -------------------------------------------------------------------------------

    def _waiting(self) -> tuple[dict[RequestId, Any], ...]:
        """Return the containers of waiting requests, but for the skipped ones."""
        return (self._loaded, self._ready, self._blocked, self._loading)

    def containers(self) -> dict[str, list[Any]]:
        """Return the waiting requests by container; for audits. O(waiting)."""
        names = ("loaded", "ready", "blocked", "loading")
        waiting = zip(names, map(dict.values, self._waiting()), strict=True)
        return {"skipped": list(self._skipped), **{name: list(each) for name, each in waiting}}

    def __len__(self) -> int:
        return sum(map(len, self._waiting())) + len(self._skipped)

    def __iter__(self) -> Iterator[Any]:
        """Yield requests that hold blocks, then preempted ones, then the rest, each in order of arrival.

        vLLM iterates nowhere in a step. O(waiting log waiting).
        """
        lists = (each.values() for each in self._waiting())
        return iter(sorted([*chain.from_iterable(lists), *self._skipped], key=self._rank))

    def _rank(self, request: Any) -> tuple[bool, bool, int]:
        ours = self.live[request.request_id]
        is_preempted = request.status == RequestStatus.PREEMPTED
        return ours.id not in self._loaded, not is_preempted, ours.order

    def __reversed__(self) -> Iterator[Any]:
        yield from reversed(list(self))

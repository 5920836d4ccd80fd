"""The waiting queue that vLLM peeks and pops, with our scheduler deciding who is next.

Integration points (vLLM 0.15 to 0.33): the `RequestQueue` methods, called in `Scheduler.schedule()`
and around it; `RequestStatus`; `Request.request_id`, `num_prompt_tokens`, `num_computed_tokens`.

vLLM asks whether the queue is true, peeks, tries to allocate, and pops what it admits; but it also
pops what it merely skips. So a pop is tentative: it is settled at the next question or at the end
of the step, and charged only if the request then runs or loads its KV from elsewhere (DESIGN 4).
Everything else that vLLM does to a queue is translated here:

    prepend of a popped request     skipped: held aside, tried again in a later step
    prepend of a PREEMPTED request  it ran: comes back first, pays nothing twice
    remove                          aborted, or stopped by an output that was still in flight
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, count, islice
from typing import Any, Protocol

from vllm.v1.core.sched.request_queue import RequestQueue
from vllm.v1.request import RequestStatus

from fairhit.core.client_table import OTHER
from fairhit.core.fair_queue import FairQueue, RequestState
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

    def adapters(self) -> tuple[int, dict[RequestId, Taker]]:
        """Return the number of LoRA slots (0: no limit) and who runs with an adapter. O(running)."""
        ...

    def holding(self) -> Iterable[Any]:
        """Return the requests with a LoRA adapter in `kv_holding_waiting`, which vLLM drains first."""
        ...

    def goes_on(self, request: Any) -> bool:
        """Return whether a removed request is a streaming session between two of its inputs."""
        ...


class VllmWaitingQueue(RequestQueue):  # type: ignore[misc]  # vLLM is untyped here
    """All that waits in vLLM. `Any` is the engine's request, `Request` is ours; one id names both."""

    def __init__(
        self,
        core: FairQueue,
        engine: VllmSchedulerView,
        blocks: VllmBlockView,
        *,
        turns: LoraSlotRotation,
        keeps_loading: bool,
        names_adapters: bool,
        received: Callable[[ClientId], Service],
        on_removed: Callable[[Request], None],
    ) -> None:
        self._core, self._engine, self._blocks, self._turns = core, engine, blocks, turns
        self._names_adapters = names_adapters  # whether the LoRA adapter names an unnamed client
        self._received, self._on_removed = received, on_removed
        # Whether requests that load remote KV come back here; 0.32 has a queue of its own for them.
        self._keeps_loading = keeps_loading
        self._order = count()
        self.live: dict[RequestId, Request] = {}  # from arrival to the end, running ones included
        self._ready: dict[RequestId, Any] = {}
        self._blocked: dict[RequestId, Any] = {}  # by a grammar
        self._aside: SkippedRequests[Any] = SkippedRequests()  # for another reason
        self._loading: dict[RequestId, Any] = {}  # paid, and waits for remote KV or more input
        self._loaded: dict[RequestId, Any] = {}  # paid and ready; holds blocks, so it goes first
        self._proposal: Any = None
        self._popped: Any = None
        self._skipped: set[RequestId] = set()  # popped, to be put back at the end of the step
        # Requests with an adapter that vLLM keeps in a queue of its own, from the begin of a step on.
        self._holding: dict[RequestId, Any] = {}
        self._is_open = False  # whether this step's look has begun
        self._skips = self._parked = 0
        self._is_cut = False
        self._slotless: set[str | None] = set()  # adapters that found no slot in this look
        self._slots = 0  # for LoRA adapters; 0: without limit
        # Adapters of the running requests; None until they are asked for in this step.
        self._adapters: set[str | None] | None = None
        self.cut_looks = 0  # looks that ended at one of the limits above

    # -- what the scheduler around it says ------------------------------------------------------

    def begin_step(self) -> None:
        """A step begins; proposals wait until vLLM asks with a slot free."""
        assert self._popped is None and not self._skipped
        self._core.begin()
        self._proposal = None
        self._is_open = False
        self._skips = self._parked = 0
        self._is_cut = False
        self._slotless.clear()
        self._adapters = None
        self._holding = {one.request_id: one for one in self._engine.holding()}

    def end_step(self, scheduled: Mapping[RequestId, int]) -> None:
        """The step is planned; what it scheduled is already in `num_computed_tokens`."""
        if self._popped is not None:
            self._settle(scheduled.get(self._popped.request_id, 0))
        assert not self._skipped, self._skipped
        for name, request in list(self._holding.items()):
            self._review(name, request)
        self._blocks.catch_up()

    # -- what vLLM asks -------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Whether something can be admitted now; before each peek vLLM asks this first."""
        if self._proposal is not None:
            return True
        self._settle()
        if not self._engine.has_free_slot():
            return bool(self._ready or self._loaded)
        return self._next() is not None

    def peek_request(self) -> Any:
        """The request to try now."""
        if self._proposal is None:
            self._settle()
            if self._next() is None:
                raise IndexError("nothing can be admitted")
        return self._proposal

    def pop_request(self) -> Any:
        """It leaves the queue, for the batch or to be skipped: `_settle` will see which."""
        request = self.peek_request()
        name = request.request_id
        del (self._loaded if self._is_paid(name) else self._ready)[name]
        self._popped, self._proposal = request, None
        return request

    def _next(self) -> Any:
        """What `propose` says, once per admission. O(log waiting)."""
        if self._proposal is None:
            if not self._is_open:
                self._open()
            if self._loaded:
                self._proposal = next(iter(self._loaded.values()))
            else:
                self._proposal = self._propose()
        return self._proposal

    def _propose(self) -> Any:
        """The core's choice, but for those whose adapter found no slot a moment ago."""
        self._blocks.catch_up()
        while self._skips < SKIPS_PER_PASS and self._parked < UNTRIED_SKIPS_PER_PASS:
            if (chosen := self._core.propose()) is None:
                return None
            request = self._ready[chosen.id]
            adapter = adapter_of(request)
            # 0.15 sees that a request is no longer blocked only when it is offered that request.
            is_blocked = request.status not in READY
            if is_blocked or not (adapter in self._slotless or self._is_barred(adapter)):
                return request
            self._parked += 1
            del self._ready[chosen.id]
            self._core.hold(chosen)
            self._skip(chosen.client, request)
        self.cut_looks += not self._is_cut
        self._is_cut = True
        return None

    def _open(self) -> None:
        """Begin this step's look, with what became ready since the last one."""
        self._is_open = True
        for name, request in list(self._holding.items()):
            if self._review(name, request):  # vLLM offers all of these first
                self._was_skipped(request)
        if self._turns.is_contended:
            self._take_turns()
        for request in self._aside.take(self._retry_limit):
            self._release(request)
        for waiting in (self._loading, self._blocked):
            for request in list(islice(waiting.values(), POLLS_PER_STEP)):
                del waiting[request.request_id]
                if request.status in READY or self._engine.promote(request):
                    self._release(request)
                else:  # at the end: next time it is others' turn
                    waiting[request.request_id] = request

    def _take_turns(self) -> None:
        """Those for whom there is a slot are tried first, lest they miss the moment."""
        self._turns.begin_pass(*self._engine.adapters())
        for taker in self._turns.reserved:
            for request in self._aside.take_like(taker):
                self._release(request)

    def _is_barred(self, adapter: str | None) -> bool:
        """Whether others' turns keep it out of this step, whatever ends; the model itself takes no slot."""
        return adapter is not None and self._turns.forbids(adapter)

    def _retry_limit(self, taker: Taker) -> int:
        """Return how many requests of a client and adapter to retry in this pass. O(1)."""
        adapter = taker.adapter
        if self._is_barred(adapter):  # skipped again at once
            return 0
        is_short = adapter is not None and self._lacks_slot(adapter)
        return RETRIES_PER_ADAPTER if is_short else RETRIES_PER_PASS

    def _skip(self, client: ClientId, request: Any) -> None:
        self._aside.add(
            request.request_id,
            Taker(client, adapter_of(request)),
            request,
            is_preempted=request.status == RequestStatus.PREEMPTED,
        )

    def _release(self, request: Any) -> None:
        name = request.request_id
        if self._is_paid(name):
            self._loaded[name] = request
            self._wants(request)
            return
        self._ready[name] = request
        ours = self.live[name]
        try:
            self._core.release(ours)
        except QueueFull:  # its client was forgotten meanwhile, and the table is full
            self._core.cancel(ours)
            self.live[name] = replace(ours, client=OTHER)
            self._core.add(self.live[name])
        self._wants(request)

    def _settle(self, scheduled_len: int = 0) -> None:
        """Find out what became of the last pop. `scheduled_len` tokens already count as computed."""
        if (popped := self._popped) is None:
            return
        self._popped = None
        request = self.live[popped.request_id]
        is_running, is_loading = popped.status is _RUNNING, popped.status is _LOADING
        if is_running and (self._slotless or self._aside):
            self._slotless.discard(adapter_of(popped))
            for more in self._aside.take_like(Taker(request.client, adapter_of(popped))):
                self._release(more)
        computed_len = popped.num_computed_tokens - scheduled_len
        comes_back = not is_running and (self._keeps_loading or not is_loading)
        if self._is_paid(request.id):
            extend_len = popped.num_tokens - computed_len
        elif is_running or is_loading:
            extend_len = self._admit(request, popped, computed_len=computed_len)
        else:
            self._core.hold(request)
            self._skips += 1
        if comes_back:
            self._skipped.add(request.id)
        if is_running and (adapter := adapter_of(popped)):
            if self._adapters is not None:
                self._adapters.add(adapter)
            self._turns.on_admit(request.id, Taker(request.client, adapter), extend_len)
        elif not is_running:
            self._was_skipped(popped)

    def _was_skipped(self, request: Any) -> None:
        """Record that vLLM did not admit a request: for want of a LoRA slot if all are others'. O(1)."""
        if request.status not in READY:  # none is kept for it while it loads
            self._turns.remove_waiting(request.request_id)
        elif adapter := adapter_of(request):
            self._wants(request)
            if self._lacks_slot(adapter):
                self._slotless.add(adapter)
                self._turns.on_no_slot()
            else:
                self._turns.on_declined(adapter)

    def _lacks_slot(self, adapter: str | None) -> bool:
        """Whether all LoRA slots are other adapters'. O(running) the first time in a step."""
        if self._adapters is None:
            self._slots, running = self._engine.adapters()
            self._adapters = {taker.adapter for taker in running.values()}
        return adapter not in self._adapters and 0 < self._slots <= len(self._adapters)

    def _review(self, name: RequestId, request: Any) -> bool:
        """Whether a request of vLLM's own queue still waits; record it as admitted if it runs. O(1)."""
        if request.status is not _RUNNING:
            self._wants(request)
            return True
        del self._holding[name]
        self._turns.on_admit(name, Taker(self.live[name].client, adapter_of(request)), 0)
        return False

    def _is_paid(self, name: RequestId) -> bool:
        """Whether a request that waits was charged before: it loads KV, or is a streaming session."""
        return self._core.state(self.live[name]) is RequestState.RUNNING

    def _wants(self, request: Any) -> None:
        """If it waits for nothing else, it waits for a LoRA slot if it needs one."""
        if request.status in READY and (adapter := adapter_of(request)):
            ours = self.live[request.request_id]
            self._turns.add_waiting(ours.id, Taker(ours.client, adapter))

    def _admit(self, request: Request, popped: Any, *, computed_len: int) -> int:
        """Charge what its prompt costs with the match that is locked now: so many tokens."""
        if self._core.state(request) is RequestState.PREEMPTED:
            # Paid for before; this is what the system recomputes.
            self._core.admit(request, extend_len=popped.num_tokens - computed_len)
            return 0
        # 0.15 says only here what it loads; later versions count it as computed.
        loaded_len = getattr(popped, "num_external_computed_tokens", 0)
        cached_len = min(max(computed_len, loaded_len), request.input_len - 1)
        extend_len = request.input_len - cached_len
        self._core.admit(request, extend_len=extend_len)
        service = self._received(request.client)
        service.extend_len += extend_len
        service.cached_len += cached_len
        return extend_len

    # -- what vLLM puts in and takes out --------------------------------------------------------

    def add_request(self, request: Any) -> None:
        """It arrived. O(prompt). A known one is streaming input that waits for its next turn or has it."""
        self._settle()
        self._proposal = None
        name = request.request_id
        is_ready = request.status in READY
        if name in self.live and self._is_paid(name):
            (self._loaded if is_ready else self._loading)[name] = request
        elif name in self.live:
            self._pause_preempted(request)
        else:
            ours = self._arrive(request)
            (self._ready if is_ready else self._blocked)[name] = request
            if not is_ready:
                self._core.hold(ours)
        if name not in self._blocked:
            self._wants(request)

    def _pause_preempted(self, request: Any) -> None:
        """Block a streaming session that was preempted while the last output of its turn was in flight."""
        ours = self.live[request.request_id]
        self._ready.pop(ours.id, None)
        self._aside.remove(ours.id)
        self._turns.remove_waiting(ours.id)
        if self._core.state(ours) is not RequestState.HELD:
            self._core.hold(ours)
        self._blocked[ours.id] = request

    def _arrive(self, request: Any) -> Request:
        """Make it ours and the core's. An exception here would end the engine: OTHER always has a place."""
        self._blocks.catch_up()
        ours = Request(
            id=request.request_id,
            client=client_of(request, names_adapters=self._names_adapters),
            prompt=self._blocks.prompt_units(request),
            input_len=max(1, request.num_prompt_tokens),  # vLLM's scheduler accepts an empty prompt
            max_tokens=max(1, request.max_tokens),
            order=next(self._order),
        )
        try:
            self._core.add(ours)
        except QueueFull:
            ours = replace(ours, client=OTHER)
            self._core.add(ours)
        self.live[ours.id] = ours
        self._received(ours.client)  # listed in the metrics from now on
        return ours

    def prepend_request(self, request: Any) -> None:
        """It was preempted, or skipped earlier in this step."""
        self._settle()
        self._proposal = None
        name = request.request_id
        if name in self._skipped:
            self._skipped.remove(name)
            self._set_aside(request)
            return
        if request.status == RequestStatus.PREEMPTED:
            self._core.preempt(self.live[name])
            self._ready[name] = request
        else:
            # Its remote KV did not arrive: it lost its blocks, not what it has paid.
            self._loaded[name] = request
        self._wants(request)

    def _set_aside(self, request: Any) -> None:
        name = request.request_id
        if self._is_paid(name):
            self._loading[name] = request
        elif request.status in READY:
            self._skip(self.live[name].client, request)
        else:
            self._blocked[name] = request

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """The step's skipped requests come back together."""
        for request in list(requests):
            self.prepend_request(request)

    def remove_request(self, request: Any) -> None:
        """It is gone; vLLM also says so of requests that wait elsewhere."""
        self._settle()
        self._proposal = None
        if self._engine.goes_on(request):
            return
        name = request.request_id
        for part in self._parts():
            part.pop(name, None)
        self._aside.remove(name)
        self._holding.pop(name, None)
        self._turns.remove(name)
        if ours := self.live.get(name):
            self._on_removed(ours)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """O(gone), where the stock queue costs O(waiting)."""
        for request in list(requests):
            self.remove_request(request)

    def end(self, name: RequestId) -> Request | None:
        """Remove the record of a request that vLLM has ended, wherever it was then. O(1).

        The only end of a record: of a running request the queue sees nothing else.
        """
        self._holding.pop(name, None)
        self._turns.remove(name)
        return self.live.pop(name, None)

    # -- counting -------------------------------------------------------------------------------

    def _parts(self) -> tuple[dict[RequestId, Any], ...]:
        return (self._loaded, self._ready, self._blocked, self._loading)

    def containers(self) -> dict[str, list[Any]]:
        """What waits here, by container; for audits. O(waiting)."""
        names = ("loaded", "ready", "blocked", "loading")
        parts = zip(names, map(dict.values, self._parts()), strict=True)
        return {"aside": list(self._aside), **{name: list(part) for name, part in parts}}

    def __len__(self) -> int:
        return sum(map(len, self._parts())) + len(self._aside)

    def __iter__(self) -> Iterator[Any]:
        """What is ready with its blocks, what was preempted, the others; each as they arrived.

        vLLM iterates nowhere in a step. O(waiting log waiting).
        """
        waiting = [*chain.from_iterable(part.values() for part in self._parts()), *self._aside]
        return iter(sorted(waiting, key=self._rank))

    def _rank(self, request: Any) -> tuple[bool, bool, int]:
        ours = self.live[request.request_id]
        is_preempted = request.status == RequestStatus.PREEMPTED
        return ours.id not in self._loaded, not is_preempted, ours.order

    def __reversed__(self) -> Iterator[Any]:
        yield from reversed(list(self))

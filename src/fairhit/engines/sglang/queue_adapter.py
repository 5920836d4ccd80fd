"""The fair queue of SGLang's requests: which is tried next, and what each client is charged.

SGLang sorts its waiting list, iterates over it and admits until the first request that does not fit. Here
nothing is sorted: each step of that iteration asks the fair queue for the next request, and learns the
outcome (admitted or skipped) before it asks again. So an admitted request is charged before another one is
chosen, nothing else is charged, and no refill runs for a choice that was not made.

    skipped by SGLang         blocked for this scheduling pass: a prefetch is under way, say
    adapter without a slot    skipped with all requests for the adapter; each pass retries one of them
    retracted                 retried first, and not charged again
    refused by SGLang         computed as one token, like any request, and refunded at its end
    a new list                SGLang makes one after each admission; requests missing in it have ended
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from fairhit.core.fair_queue import FairQueue, RequestState
from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.service import WEIGHT_SCALE, Service, Weights
from fairhit.engines.sglang.followers import Followers
from fairhit.engines.sglang.lora_slots import SglangLoraSlots
from fairhit.errors import QueueFull

if TYPE_CHECKING:
    from fairhit.engines.sglang.radix.tree import SglangTreeView

# Requests blocked in one pass after which the pass ends: a pass must not cost O(waiting).
MAX_BLOCKED_PER_PASS = 64


class SglangSchedulerView(Protocol):
    """The state of the SGLang scheduler that the queue reads, and the service that it adds to."""

    def client_of(self, req: Any) -> ClientId:
        """Return the client of a request."""
        ...

    def has_capacity(self, adder: Any) -> bool:
        """Return whether one more request might be admitted; if not, none is chosen and no refill runs."""
        ...

    def service_of(self, client: ClientId) -> Service:
        """Return the client's service since its metrics were last written, to be added to."""
        ...

    def holds_lora_slot(self, adder: Any, req: Any) -> bool:
        """Return whether a request's adapter runs already. O(running)."""
        ...

    def running_requests(self, batch: Any) -> Iterable[Any]:
        """Return the requests that run and so hold LoRA slots; `batch` is the argument of `begin_pass`."""
        ...


@dataclass(slots=True)
class TrackedRequest:
    """A request of SGLang, with the fair queue's request for it and its charges."""

    req: Any
    ours: Request
    charged_output_len: int = 0
    extend_len: int = 0  # charged prompt tokens
    computed_len: int = 0  # of the prompt, before the first output; a retraction drops it
    admission: int = 0  # number in the order of admission
    is_refused: bool = False  # SGLang answers it with an error, after a prefill of one token


class SglangQueueAdapter:
    """SGLang's requests from arrival to end. `Any` is SGLang's request, `Request` the fair queue's.

    `slots` is None without LoRA.
    """

    def __init__(
        self,
        core: FairQueue,
        tree: "SglangTreeView",
        engine: SglangSchedulerView,
        *,
        slots: SglangLoraSlots | None = None,
        weights: Weights | None = None,
    ) -> None:
        self._core, self._tree, self._engine = core, tree, engine
        self._slots, self._weights = slots, weights or Weights()
        self._followers = Followers(tree)
        self._arrivals, self._admissions = count(), count()
        self._tracked: dict[Any, TrackedRequest] = {}  # by SGLang's request, running ones included
        self._by_name: dict[RequestId, TrackedRequest] = {}
        self._blocked: list[Request] = []  # for this pass
        self._adder: Any = None  # of the pass under way, until its iteration begins
        self._proposed: TrackedRequest | None = None
        self.truncated_passes = 0  # ended at MAX_BLOCKED_PER_PASS or MAX_SKIPPED_PER_PASS

    def __len__(self) -> int:
        """Return the number of waiting requests. O(1)."""
        return len(self._core)

    @property
    def slot_rotations(self) -> int:
        """Return how often a LoRA adapter was drained for another one. O(1)."""
        return self._slots.rotations if self._slots is not None else 0

    @property
    def live(self) -> int:
        """The number of requests that wait or run. O(1)."""
        return len(self._tracked)

    # -- the scheduling pass --------------------------------------------------------------------

    def begin_pass(self, reqs: Sequence[Any], batch: Any = None) -> None:
        """Begin a scheduling pass, after synchronising with SGLang's list `reqs`.

        `batch` holds the running requests; the scheduler's own batch is older.
        """
        self._adder = None
        self.sync(reqs)
        blocked, self._blocked = self._blocked, []
        for ours in blocked:
            if ours.id in self._core:
                self._unblock(ours)
        if self._slots is not None:
            running = self._engine.running_requests(batch) if self._slots.is_contended else ()
            known = (tracked for req in running if (tracked := self._tracked.get(req)))
            for ours in self._slots.begin_pass((each.ours, each.req) for each in known):
                self._unblock(ours)
        self._core.begin_pass()

    def expect_iteration(self, adder: Any) -> None:
        """Announce that the next iteration over the waiting list is the one that admits."""
        self._adder = adder

    @property
    def is_iteration_expected(self) -> bool:
        """True if the next iteration over the waiting list admits."""
        return self._adder is not None

    def candidates(self) -> Iterator[Any]:
        """Yield the request to try next, until none may be admitted or SGLang stops."""
        adder, self._adder = self._adder, None
        while (tracked := self._next(adder)) is not None:
            self._proposed = tracked
            yield tracked.req
            if self._proposed is tracked:  # not admitted: SGLang went on to the next request
                self._on_skipped(adder, tracked)
        self._proposed = None

    def _next(self, adder: Any) -> TrackedRequest | None:
        slots = self._slots
        while len(self._blocked) < MAX_BLOCKED_PER_PASS:
            if slots is not None and slots.is_pass_over:
                break
            if not len(self._core) or not self._engine.has_capacity(adder):
                return None
            if (ours := self._core.propose()) is None:
                return None
            tracked = self._by_name[ours.id]
            if slots is not None and slots.bars(tracked.req):
                self._skip_for_slot(tracked)
                continue
            is_new = self._core.state(ours) is RequestState.WAITING
            if not (is_new and self._followers.defers(ours)):
                return tracked
            self._block(ours)
        self.truncated_passes += 1
        return None

    def _on_skipped(self, adder: Any, tracked: TrackedRequest) -> None:
        """Block a request that SGLang skipped; if for want of a LoRA slot, until its adapter has one."""
        if self._slots is None or self._engine.holds_lora_slot(adder, tracked.req):
            self._block(tracked.ours)
            return
        self._slots.on_no_slot(tracked.req)
        self._skip_for_slot(tracked)

    def _skip_for_slot(self, tracked: TrackedRequest) -> None:
        assert self._slots is not None
        is_preempted = self._core.state(tracked.ours) is RequestState.PREEMPTED
        self._core.block(tracked.ours)
        self._slots.skip(tracked.ours, tracked.req, is_preempted=is_preempted)

    def on_admit(self, req: Any) -> None:
        """Charge an admitted request for its uncached prompt tokens, those of later chunks included."""
        self._proposed = None
        if (tracked := self._tracked.get(req)) is None:
            return
        ours, length = tracked.ours, len(req.full_untruncated_fill_ids)
        tracked.admission = next(self._admissions)
        is_readmitted = self._core.state(ours) is RequestState.PREEMPTED
        extend_len = max(1, length - req.prefix_len)
        if not is_readmitted:
            extend_len = min(extend_len, ours.input_len)
        self._core.admit(ours, extend_len=extend_len)
        if self._slots is not None:
            is_free = is_readmitted or tracked.is_refused
            for more in self._slots.on_admit(ours, req, 0 if is_free else extend_len):
                self._unblock(more)
        if is_readmitted:  # charged before; the system bears the recomputation
            return
        tracked.extend_len = extend_len
        if tracked.is_refused:  # refunded at its end, while counters of metrics can only rise
            self._followers.remove(ours)
            return
        self._followers.on_prefill(ours)
        service = self._engine.service_of(ours.client)
        service.extend_len += extend_len
        service.cached_len += ours.input_len - extend_len

    def is_charged(self, req: Any) -> bool:
        """Return whether a request was charged for its prompt and has not ended. O(1)."""
        return (tracked := self._tracked.get(req)) is not None and tracked.extend_len > 0

    def running_client(self, req: Any) -> ClientId:
        """Return the client that a running request is charged to. O(1)."""
        return tracked.ours.client if (tracked := self._tracked.get(req)) else OTHER

    def _block(self, ours: Request) -> None:
        self._core.block(ours)
        self._blocked.append(ours)

    def _unblock(self, ours: Request) -> None:
        try:
            self._core.unblock(ours)
        except QueueFull:  # the table of clients is full, and has forgotten this one meanwhile
            self._core.cancel(ours)
            self._followers.remove(ours)
            tracked = self._by_name[ours.id]
            tracked.ours = replace(ours, client=OTHER)
            self._core.add(tracked.ours)
            if self._slots is not None:
                self._slots.on_arrival(tracked.ours, tracked.req)

    # -- arrivals, outputs and ends -------------------------------------------------------------

    def add(self, req: Any) -> None:
        """Record that a request waits: for the first time, or again after a retraction. O(prompt)."""
        if (tracked := self._tracked.get(req)) is not None:
            if self._core.state(tracked.ours) is RequestState.RUNNING:
                self._followers.remove(tracked.ours)
                self._core.preempt(tracked.ours)
                if self._slots is not None:
                    self._slots.on_arrival(tracked.ours, req)
            return
        tokens = req.origin_input_ids
        ours = Request(
            id=str(order := next(self._arrivals)),
            client=self._engine.client_of(req),
            prompt=self._tree.units(tokens, req.extra_key, req.cache_salt),
            input_len=max(1, len(tokens)),
            max_tokens=max(1, req.sampling_params.max_new_tokens or 1),
            order=order,
        )
        try:
            self._core.add(ours)
        except QueueFull:  # an exception would end the engine; OTHER is never refused
            ours = replace(ours, client=OTHER)
            self._core.add(ours)
        is_refused = req.to_finish is not None
        self._tracked[req] = self._by_name[ours.id] = TrackedRequest(
            req, ours, is_refused=is_refused
        )
        if self._slots is not None:
            self._slots.on_arrival(ours, req)

    def sync(self, reqs: Sequence[Any]) -> None:
        """Add and remove requests until those that wait are `reqs`, SGLang's new list.

        O(1) if `reqs` has the expected length: then it has the expected requests.
        """
        if len(reqs) == len(self._core):
            return
        listed = dict.fromkeys(reqs)
        for req in listed:
            if req not in self._tracked:
                self.add(req)
        waiting = [self._by_name[ours.id] for ours in self._core]
        for tracked in waiting:
            if tracked.req not in listed:
                self.remove(tracked.req)

    def remove(self, req: Any) -> None:
        """Remove a request that ended, waiting or running; its service stays charged. O(log waiting)."""
        if tracked := self._tracked.get(req):
            self._forget(tracked)
            if tracked.extend_len and not tracked.charged_output_len:
                self._refund_uncomputed(tracked)
            self._core.cancel(tracked.ours)

    def _forget(self, tracked: TrackedRequest) -> None:
        """Remove every record of a request but the fair queue's. O(1)."""
        del self._tracked[tracked.req], self._by_name[tracked.ours.id]
        self._followers.remove(tracked.ours)
        if self._slots is not None:
            self._slots.remove(tracked.ours.id)

    def _refund_uncomputed(self, tracked: TrackedRequest) -> None:
        """Refund the charged chunks of a prompt that will not be computed. O(log clients).

        Metrics keep them, as their counters can only rise.
        """
        if tracked.is_refused:
            self._core.correct(tracked.ours, input_len=0, extend_len=0)
            return
        ours, end = tracked.ours, max(tracked.computed_len, tracked.req.extend_end or 0)
        if not ours.input_len - tracked.extend_len < end < ours.input_len:
            return
        missing = ours.input_len - end
        self._core.correct(ours, input_len=end, extend_len=tracked.extend_len - missing)

    def on_output(self, reqs: Iterable[Any]) -> None:
        """Charge the new output tokens of a batch, and forget the requests that ended. O(batch)."""
        for req in reqs:
            if (tracked := self._tracked.get(req)) is None:
                continue
            if tracked.is_refused:  # its output is charged to no client
                if req.finished():
                    self.remove(req)
                continue
            tokens = _output_len(req) - tracked.charged_output_len
            if tokens > 0:  # negative after a retraction that dropped outputs
                tracked.charged_output_len += tokens
                self._core.decode(tracked.ours, tokens)
                if self._slots is not None:
                    self._slots.on_output(tracked.ours.id, tokens)
                self._engine.service_of(tracked.ours.client).output_len += tokens
            elif not tracked.charged_output_len:  # a chunk of its prompt
                tracked.computed_len = max(tracked.computed_len, req.extend_end or 0)
            if req.finished():
                self._forget(tracked)
                self._core.finish(tracked.ours)
            elif tokens > 0:
                self._followers.remove(tracked.ours)

    def request_to_drop(self, req: Any) -> Any:
        """Return the request to drop as `req` arrives at a full queue; possibly `req` itself.

        The newest request of the client with the most waiting requests for its weight, `req` included;
        requests that never ran come first. O(clients), and O(requests) if that is not the client of `req`.
        """
        tracked = self._tracked.get(req)  # None unless retracted
        client = tracked.ours.client if tracked else self._engine.client_of(req)
        shares = {
            each: (count + (each == client)) * WEIGHT_SCALE**2 // self._weights.of(each)
            for each, count in {client: 0, **self._core.waiting_by_client()}.items()
        }
        # The request's own client wins a tie, lest two clients drop each other's requests alternately.
        most = max(shares, key=shares.__getitem__)
        if most == client and tracked is None:
            return req
        droppable = [self._by_name[ours.id] for ours in self._core if ours.client == most]
        if most == client and tracked is not None:
            droppable.append(tracked)
        return max(droppable, key=lambda each: (not each.extend_len, each.ours.order)).req

    def rematch(self) -> None:
        """Match every waiting prompt again, after the cache was emptied. O(waiting)."""
        waiting = [ours for ours in self._core if self._core.state(ours) is RequestState.WAITING]
        for ours in waiting:
            self._core.block(ours)
        for ours in waiting:
            self._unblock(ours)

    def victims(self, running: list[Any], most: int) -> list[Any]:
        """Return up to `most` requests to retract, each the newest of the client with the least credit.

        O(running) each.
        """
        candidates = [tracked for req in running if (tracked := self._tracked.get(req))]
        candidates.sort(key=lambda tracked: tracked.admission)
        left = [tracked.ours for tracked in candidates]
        chosen: list[Any] = []
        while len(left) > 1 and len(chosen) < most and (victim := self._core.victim(left)):
            left.remove(victim)
            chosen.append(self._by_name[victim.id].req)
        return chosen

    # -- audits ---------------------------------------------------------------------------------

    def differences(self, waiting: Collection[Any], running: Collection[Any]) -> Iterator[str]:
        """Yield each record that contradicts SGLang's lists `waiting` and `running`. O(requests)."""
        for what, reqs in (("waits", waiting), ("runs", running)):
            for req in reqs:
                if (tracked := self._tracked.get(req)) is None:
                    yield f"{req.rid} {what} and has no record"
                elif (state := self._state(tracked)) is None:
                    yield f"{req.rid} {what} and is not in the core"
                elif (state is RequestState.RUNNING) != (what == "runs"):
                    yield f"{req.rid} {what}, and is {state.value} in the core"
        for req in self._tracked.keys() - {*waiting, *running}:
            yield f"{req.rid} has ended and has a record"
        if wrong := {each.ours.id for each in self._tracked.values()} ^ self._core.known():
            yield f"requests {sorted(wrong)} are in the core or have a record, not both"
        waits = {self._tracked[req].ours.id: req for req in waiting if req in self._tracked}
        runs = {self._tracked[req].ours for req in running if req in self._tracked}
        yield from self._followers.differences(
            {self._tracked[req].ours for req in waits.values()}, runs
        )
        yield from self._differences_of_blocked(waits)

    def _state(self, tracked: TrackedRequest) -> RequestState | None:
        name = tracked.ours.id
        known = name in self._core and self._by_name.get(name) is tracked
        return self._core.state(tracked.ours) if known else None

    def _differences_of_blocked(self, waits: dict[RequestId, Any]) -> Iterator[str]:
        blocked = [ours.id for ours in self._blocked if ours.id in waits]
        if self._slots is not None:
            blocked += self._slots.skipped()
            live = {tracked.ours.id for tracked in self._tracked.values()}
            owners = {name: (self._by_name[name].ours, req) for name, req in waits.items()}
            yield from self._slots.differences(owners, live)
        in_core = [ours.id for ours in self._core if self._core.state(ours) is RequestState.BLOCKED]
        if sorted(blocked) != sorted(in_core):
            yield f"requests {sorted(blocked)} are blocked or skipped, {sorted(in_core)} in the core"


def _output_len(req: Any) -> int:
    """Return the number of tokens emitted for a request, in all of its beams.

    A step may emit tokens behind the end of the answer, by speculation say; those do not count.
    """
    finished_len = getattr(req, "finished_len", None)
    length = len(req.output_ids) if finished_len is None else finished_len
    beams = getattr(req, "beam_group", None)
    return int(length * (beams.beam_width if beams else 1))

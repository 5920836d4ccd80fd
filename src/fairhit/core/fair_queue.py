"""The queue around a policy: what is the same for all policies, so that none has to implement it.

Preempted requests are proposed first and charged nothing again; blocked requests neither have nor
block credit; a scheduling pass skips a bounded number of requests that do not fit; the service of
each client is recorded.
"""

from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from fairhit.core.costs import ContextCost
from fairhit.core.engine_time import PassTimeFit
from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.policy import Charging, KeepsLedger, Policy, Refunding
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.request_record import (
    PREEMPTION_COOLDOWN_PASSES,
    RequestRecord,
    RequestState,
)
from fairhit.core.service import Cost, Service
from fairhit.core.service_table import ServiceTable
from fairhit.errors import QueueFull

__all__ = ["PREEMPTION_COOLDOWN_PASSES", "FairQueue", "RequestState"]


class FairQueue:
    """The requests of an engine, waiting and running, in the order of a policy.

    An engine calls `add` for each arrival; in each scheduling pass `begin_pass`, then `propose` until it
    returns None, answering each proposal with `admit`, `skip` or `block`; `decode` for emitted
    outputs; `finish` or `cancel` at the end of a request.

    `max_skips` bounds how many requests one pass may skip; None is no bound, as in the ideal engine
    of the theorems. `max_clients` bounds the table of recorded service, not the policy's own;
    with 0 none is recorded, for a host that has its own records.
    Lengths are in tokens, costs and credit in units of 10^-8 token.
    """

    def __init__(
        self, policy: Policy, *, max_skips: int | None = 32, max_clients: int = 100_000
    ) -> None:
        self.policy = policy
        self.truncated_passes = 0  # passes that left requests untried, for max_skips
        self.recomputed_len = 0  # tokens prefilled again after a preemption: the system's cost
        self._charging = policy if isinstance(policy, Charging) else None
        self._refunding = policy if isinstance(policy, Refunding) else None
        self._accounts = policy if isinstance(policy, KeepsLedger) else None
        # The host reports its passes here, if the policy's cost follows them.
        self.fit: PassTimeFit | None = None
        if self._accounts:
            self._accounts.ledger.sync = self.sync_charges
            cost = self._accounts.cost
            if isinstance(cost.current, ContextCost) and cost.current.fitted:
                self.fit = PassTimeFit()
                cost.source = self.fit.cost
        # Without a ledger that asks for them, pending outputs are charged before each pass.
        self._syncs_first = self._charging is not None and self._accounts is None
        self._max_skips = max_skips
        self._records: dict[RequestId, RequestRecord] = {}
        self._preempted: list[tuple[int, Request]] = []  # by order
        self._services = ServiceTable(max_clients=max_clients) if max_clients else None
        self._waiting: dict[ClientId, int] = {}
        self._batch = 0  # running requests
        self._running: dict[ClientId, dict[RequestId, RequestRecord]] = {}
        self._ticks = 0
        self._synced = 0  # the tick up to which all outputs are charged
        self._extensions = 0
        self._pass_number = 0
        self._skips = 0
        self._ended = False

    def follow(self, prices: Callable[[Cost], Cost]) -> None:
        """Take the prices of a fitted cost from elsewhere: this host has no passes to report."""
        if self.fit is not None:
            assert self._accounts is not None
            self.fit, self._accounts.cost.source = None, prices

    # -- accounting ----------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """Insert an arrived request. Raises QueueFull if the policy's table of clients is full."""
        assert request.id not in self._records, request.id
        if self._syncs_first:
            self.sync_charges()
        self.policy.add(request)
        self._records[request.id] = RequestRecord(request)
        self._count(request.client, 1)

    def decode(self, request: Request, tokens: int) -> None:
        """Charge `tokens` emitted outputs; each is charged once, the first included."""
        record = self._records[request.id]
        assert record.paid and tokens >= 0, (request.id, tokens)
        self._emit(record, tokens)

    def tick(self, passes: int) -> None:
        """Note that every running request emitted one output in each of `passes` passes. O(1).

        Each is charged when a decision depends on it, or when its request ends.
        """
        self._ticks += passes

    def sync_charges(self, client: ClientId | None = None) -> None:
        """Charge the outputs noted by `tick`, of one client or of all. O(their running requests)."""
        if self._synced == self._ticks:  # always so where outputs are reported by `decode`
            return
        if client is not None:
            for record in self._running.get(client, {}).values():
                self._sync(record)
            return
        for records in self._running.values():
            for record in records.values():
                self._sync(record)
        self._synced = self._ticks  # last, since a charge may read another client's counter

    def extend(self, request: Request, tokens: int) -> None:
        """Charge `tokens` more prompt tokens of a running request (streaming input).

        The policy sees a request of that length, which is admitted at once.
        """
        assert self._records[request.id].paid and tokens > 0, (request.id, tokens)
        client = request.client
        if self._charging:
            self._extensions += 1
            # Below all orders of arrival, as those must be unique.
            order = -self._extensions
            chunk = replace(request, prompt=request.prompt[:0], input_len=tokens, order=order)
            try:
                self.policy.add(chunk)
            except QueueFull:  # the client's record was forgotten while the request ran
                client = OTHER
                chunk = replace(chunk, client=client)
                self.policy.add(chunk)
            self._charging.on_admit(chunk, extend_len=tokens)
        if self._services is not None:
            self._services.record(client).extend_len += tokens

    def correct(self, request: Request, *, input_len: int, extend_len: int) -> None:
        """Replace the charged prompt by the true one; 0, 0 if nothing was served.

        Both at the prices at which the request was admitted. Outputs behind a prompt of another length are
        charged anew at them, too: exact under `fair`, which charges them so.
        For hosts that admit by an estimate, before `finish` or `cancel`.
        """
        record = self._records[request.id]
        assert record.paid and 0 <= extend_len <= input_len, (request.id, extend_len, input_len)
        input_before, extend_before = record.input_len, record.extend_len
        if input_before == input_len and extend_before == extend_len:
            return
        record.input_len, record.extend_len = input_len, extend_len
        if self._accounts:
            cost, outputs = record.cost, record.output_len
            assert cost is not None, request.id
            price = self._accounts.cost.prompt(input_before, extend_before, cost)
            true_price = self._accounts.cost.prompt(input_len, extend_len, cost)
            if outputs and 0 < input_len != input_before:
                # Each was charged behind the estimated prompt.
                price += cost.decode(input_before, 0, outputs)
                true_price += cost.decode(input_len, 0, outputs)
            self._accounts.ledger.replace(request.client, charged=price, true=true_price)
        if self._services is not None:
            service = self._services.record(request.client)
            service.extend_len += extend_len - extend_before
            service.cached_len += input_len - extend_len - (input_before - extend_before)

    def preempt(self, request: Request) -> None:
        """Return a running request to the queue; it is proposed first and charged nothing again."""
        record = self._records[request.id]
        assert record.state is RequestState.RUNNING, record.state
        record.preempted_at = self._pass_number
        self._detach(record)
        self._requeue(record)
        self._count(request.client, 1)

    def finish(self, request: Request) -> None:
        """Remove a request that emitted its last output."""
        assert self._records[request.id].paid
        self._end(request, finished=True)

    def cancel(self, request: Request) -> None:
        """Remove a request in whatever state; what it consumed stays charged."""
        self._end(request, finished=False)

    # -- a scheduling pass ---------------------------------------------------------------------

    def begin_pass(self) -> None:
        """Begin a scheduling pass; once a step."""
        if self._syncs_first and self._waiting:
            self.sync_charges()
        self._pass_number += 1
        self._skips = 0
        self._ended = False
        self.policy.begin_pass()

    def count_passes(self, passes: int) -> None:
        """Count passes that a simulated engine computes in closed form: no slot is free in any. O(1)."""
        assert passes >= 0, passes
        self._pass_number += passes

    def propose(self) -> Request | None:
        """Return the request to try now; answer with `admit`, `skip` or `block`. None ends the pass."""
        if self._ended:
            return None
        if self._preempted:
            return self._preempted[0][1]
        request = self.policy.next()
        if self._skips == self._max_skips and request is not None:
            self._ended = True
            self.truncated_passes += 1
            return None
        return request

    def admit(self, request: Request, *, extend_len: int) -> None:
        """Move the request to the batch; `extend_len` prompt tokens miss the match locked now."""
        record = self._records[request.id]
        assert 0 < extend_len <= request.input_len or record.paid, extend_len
        self._count(request.client, -1)
        if record.paid:
            assert record.state is RequestState.PREEMPTED, record.state
            self._preempted.remove((request.order, request))
            self.recomputed_len += extend_len
        else:
            assert record.state is RequestState.WAITING, record.state
            if self._charging:
                self._charging.on_admit(request, extend_len=extend_len)
            else:
                self.policy.remove(request)
            record.extend_len, record.paid = extend_len, True
            if self._accounts:
                record.cost = self._accounts.cost.current
            if self._services is not None:
                service = self._services.record(request.client)
                service.extend_len += extend_len
                service.cached_len += request.input_len - extend_len
        record.state, record.ticked = RequestState.RUNNING, self._ticks
        self._batch += 1
        self._running.setdefault(request.client, {})[request.id] = record

    def skip(self, request: Request) -> None:
        """Leave the request out of this pass: it does not fit. A preempted request ends the pass."""
        if self._records[request.id].state is RequestState.PREEMPTED:
            self._ended = True
            return
        self.policy.skip(request)
        self._skips += 1

    def block(self, request: Request) -> None:
        """Take out a request that waits for something else than memory (grammar, LoRA slot, remote KV).

        Until `unblock` it neither has nor blocks credit.
        """
        record = self._records[request.id]
        assert record.state in (RequestState.WAITING, RequestState.PREEMPTED), record.state
        self._detach(record)
        record.state = RequestState.BLOCKED
        self._count(request.client, 1)

    def unblock(self, request: Request) -> None:
        """Insert a blocked request again, at its position in the order of arrival."""
        record = self._records[request.id]
        assert record.state is RequestState.BLOCKED, record.state
        if record.paid:
            self._requeue(record)
        else:
            self.policy.add(request)
            record.state = RequestState.WAITING

    # -- queries -------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of waiting requests, blocked and preempted ones included. O(1)."""
        return len(self._records) - self._batch

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._records

    def __iter__(self) -> Iterator[Request]:
        """Iterate over the requests that are not running, in no defined order. O(requests)."""
        return (
            one.request for one in self._records.values() if one.state is not RequestState.RUNNING
        )

    def known(self) -> Set[RequestId]:
        """Return the ids of all requests, from `add` to `finish` or `cancel`. O(1)."""
        return self._records.keys()

    @property
    def refill_rounds(self) -> int:
        """Return how many rounds of refill the policy has run; 0 for a policy without refills."""
        return int(getattr(self._accounts.ledger, "rounds", 0)) if self._accounts else 0

    def collect_charges(self) -> dict[ClientId, int]:
        """Collect what the policy charges each client from now on, in units; the caller empties the result.

        What is given back counts as negative. Stays empty under a policy that charges nothing. O(1).
        """
        charges: dict[ClientId, int] = {}
        if self._accounts:
            self._accounts.ledger.charges = charges
        return charges

    @property
    def cost(self) -> Cost | None:
        """Return the cost in force; None for a policy without one."""
        return self._accounts.cost.current if self._accounts else None

    def state(self, request: Request) -> RequestState:
        """Return the request's state. O(1)."""
        return self._records[request.id].state

    def waiting(self, client: ClientId) -> int:
        """Return how many of the client's requests wait. O(1)."""
        return self._waiting.get(client, 0)

    def waiting_by_client(self) -> Mapping[ClientId, int]:
        """Return how many requests of each client wait, read-only. O(1)."""
        return self._waiting

    def service(self, client: ClientId) -> Service:
        """Return what the client has received. O(its running requests)."""
        assert self._services is not None, "no service is recorded"
        self.sync_charges(client)
        return self._services.of(client)

    def credit(self, client: ClientId) -> int:
        """Return the client's standing under the policy in units; 0 if the policy charges nothing. O(1)."""
        return self._charging.credit(client) if self._charging else 0

    def victim(self, running: Sequence[Request]) -> Request | None:
        """Return the request to preempt: the newest of the client with the least credit (DESIGN 3.1).

        `running` is in the order of admission. None if each was preempted in one of the last
        PREEMPTION_COOLDOWN_PASSES passes. O(running).
        """
        self.sync_charges()
        candidates = [
            (self.credit(request.client), -position, request)
            for position, request in enumerate(running)
            if self._pass_number - self._records[request.id].preempted_at
            >= PREEMPTION_COOLDOWN_PASSES
        ]
        return min(candidates, key=lambda item: item[:2])[2] if candidates else None

    # -- inside --------------------------------------------------------------------------------

    def _end(self, request: Request, *, finished: bool) -> None:
        record = self._records.pop(request.id)
        self._detach(record)
        if record.paid and self._refunding:
            self._refunding.on_end(request, output_len=record.output_len, finished=finished)

    def _emit(self, record: RequestRecord, tokens: int) -> None:
        request = record.request
        if self._charging:
            self._charging.on_decode(request, before=record.output_len, tokens=tokens)
        record.output_len += tokens
        if self._services is not None:
            self._services.record(request.client).output_len += tokens

    def _sync(self, record: RequestRecord) -> None:
        """Charge what a running request emitted by `tick` since its last charge. O(1)."""
        tokens = self._ticks - record.ticked
        if tokens:
            record.ticked = self._ticks
            self._emit(record, tokens)

    def _detach(self, record: RequestRecord) -> None:
        """Remove the request from the batch or from the queue, whichever holds it."""
        request = record.request
        if record.state is RequestState.RUNNING:
            self._sync(record)
            self._batch -= 1
            of_client = self._running[request.client]
            del of_client[request.id]
            if not of_client:
                del self._running[request.client]
            return
        self._count(request.client, -1)
        if record.state is RequestState.WAITING:
            self.policy.remove(request)
        elif record.state is RequestState.PREEMPTED:
            self._preempted.remove((request.order, request))

    def _requeue(self, record: RequestRecord) -> None:
        record.state = RequestState.PREEMPTED
        insort(self._preempted, (record.request.order, record.request))

    def _count(self, client: ClientId, change: int) -> None:
        waiting = self._waiting.get(client, 0) + change
        assert waiting >= 0, client
        if waiting:
            self._waiting[client] = waiting
        else:
            self._waiting.pop(client, None)

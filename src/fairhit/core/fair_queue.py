"""Any policy made safe for a host: what is the same for all of them, so that none has to say it.

Implements Selection, Accounting and Wakeup (DESIGN 4) over a `Policy`. Preempted requests come back
first and pay nothing again; held ones neither have nor block credit; a look passes over a bounded
number of misfits; what each client received is written down.
"""

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

from fairhit.core.client_table import OTHER
from fairhit.core.policy import Asking, Correcting, Policy, Settling
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.request_record import CALM_LOOKS, Prompt, RequestRecord, RequestState
from fairhit.core.service import Service
from fairhit.core.service_table import ServiceTable
from fairhit.errors import QueueFull

__all__ = ["CALM_LOOKS", "FairQueue", "RequestState"]


class FairQueue:
    """One engine's queue under one policy.

    `max_misfits` bounds how many requests one look may pass over; None means all of them, which
    only the ideal engine of the theorems wants; `max_clients` bounds what is `ServiceTable`.
    """

    def __init__(
        self, policy: Policy, *, max_misfits: int | None = 32, max_clients: int = 100_000
    ) -> None:
        self.policy = policy
        self.cut_looks = 0  # looks that left somebody untried, for max_misfits
        self.recomputed_len = 0  # tokens prefilled again after a preemption: the system's cost
        self._settling = policy if isinstance(policy, Settling) else None
        self._correcting = policy if isinstance(policy, Correcting) else None
        # Whether the policy must be told what was emitted before it is asked anything.
        self._tells = getattr(policy, "charges_outputs", True)
        if isinstance(policy, Asking):
            policy.settle = self.settle
            self._tells = False
        self._max_misfits = max_misfits
        self._seats: dict[RequestId, RequestRecord] = {}
        self._preempted: list[tuple[int, Request]] = []  # by order
        self._received = ServiceTable(max_clients=max_clients)
        self._waiting: dict[ClientId, int] = {}
        self._batch = 0  # running requests
        self._running: dict[ClientId, dict[RequestId, RequestRecord]] = {}
        self._ticks = 0
        self._settled = 0  # the tick up to which all were charged
        self._turns = 0
        self._look = 0
        self._misfits = 0
        self._ended = False

    # -- Accounting ----------------------------------------------------------------------------

    def add(self, request: Request) -> None:
        """It arrived. Raises QueueFull if the policy's table of clients is full."""
        assert request.id not in self._seats, request.id
        if self._tells:
            self.settle()
        self.policy.add(request)
        self._seats[request.id] = RequestRecord(request)
        self._count(request.client, 1)

    def decode(self, request: Request, tokens: int) -> None:
        """It emitted `tokens` outputs; each is charged once, the first included."""
        seat = self._seats[request.id]
        assert seat.paid and tokens >= 0, (request.id, tokens)
        self._emit(seat, tokens)

    def tick(self, passes: int) -> None:
        """Every running request emitted one token in each of `passes` passes. O(1).

        Each is charged for them when somebody needs to know, or when it ends.
        """
        self._ticks += passes

    def settle(self, client: ClientId | None = None) -> None:
        """Charge what was emitted by `tick`, by one client or by all. O(their running requests)."""
        if self._settled == self._ticks:  # always so where outputs are told one by one
            return
        if client is not None:
            for seat in self._running.get(client, {}).values():
                self._catch_up(seat)
            return
        for seats in self._running.values():
            for seat in seats.values():
                self._catch_up(seat)
        self._settled = self._ticks  # not before: a charge may ask what another client was charged

    def extend(self, request: Request, tokens: int) -> None:
        """The prompt of a paid request grew (streaming input): it pays for `tokens` more to compute.

        To the policy this is a request of that length, which is admitted at once.
        """
        assert self._seats[request.id].paid and tokens > 0, (request.id, tokens)
        self._turns += 1
        # Below all orders of arrival, as those must be unique.
        turn = replace(request, prompt=request.prompt[:0], input_len=tokens, order=-self._turns)
        try:
            self.policy.add(turn)
        except QueueFull:  # its client was forgotten while it ran
            turn = replace(turn, client=OTHER)
            self.policy.add(turn)
        self.policy.on_admit(turn, extend_len=tokens)
        self._received.record(turn.client).extend_len += tokens

    def correct(self, request: Request, *, input_len: int, extend_len: int) -> None:
        """What the prompt really took replaces what it was charged; 0, 0 where nothing was served.

        For hosts that admit by an estimate, before `finish` or `cancel`.
        """
        seat = self._seats[request.id]
        assert seat.paid and 0 <= extend_len <= input_len, (request.id, extend_len, input_len)
        charged, true = Prompt(seat.input_len, seat.extend_len), Prompt(input_len, extend_len)
        seat.input_len, seat.extend_len = true
        if charged == true:
            return
        if self._correcting:
            self._correcting.correct(request, charged=charged, true=true)
        service = self._received.record(request.client)
        service.extend_len += extend_len - charged.extend_len
        service.cached_len += input_len - extend_len - (charged.input_len - charged.extend_len)

    def preempt(self, request: Request) -> None:
        """It was running and waits again; it comes back first and pays nothing twice."""
        seat = self._seats[request.id]
        assert seat.state is RequestState.RUNNING, seat.state
        seat.preempted_at = self._look
        self._leave(seat)
        self._return(seat)
        self._count(request.client, 1)

    def finish(self, request: Request) -> None:
        """It emitted its last output."""
        assert self._seats[request.id].paid
        self._end(request, finished=True)

    def cancel(self, request: Request) -> None:
        """It is gone, from whatever state; what it consumed stays charged."""
        self._end(request, finished=False)

    # -- Selection -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a look; once a step."""
        if self._tells and self._waiting:
            self.settle()
        self._look += 1
        self._misfits = 0
        self._ended = False
        self.policy.begin()

    def skip(self, looks: int) -> None:
        """Count scheduling passes that a simulated engine leaves out: no slot is free in any. O(1)."""
        assert looks >= 0, looks
        self._look += looks

    def propose(self) -> Request | None:
        """The request to try now; answer with `admit`, `pass_over` or `hold`. None ends the look."""
        if self._ended:
            return None
        if self._preempted:
            return self._preempted[0][1]
        request = self.policy.next()
        if self._misfits == self._max_misfits and request is not None:
            self._ended = True
            self.cut_looks += 1
            return None
        return request

    def admit(self, request: Request, *, extend_len: int) -> None:
        """It runs; `extend_len` prompt tokens are computed with the match that is locked now."""
        seat = self._seats[request.id]
        assert 0 < extend_len <= request.input_len or seat.paid, extend_len
        self._count(request.client, -1)
        if seat.paid:
            assert seat.state is RequestState.PREEMPTED, seat.state
            self._preempted.remove((request.order, request))
            self.recomputed_len += extend_len
        else:
            assert seat.state is RequestState.WAITING, seat.state
            self.policy.on_admit(request, extend_len=extend_len)
            seat.extend_len, seat.paid = extend_len, True
            service = self._received.record(request.client)
            service.extend_len += extend_len
            service.cached_len += request.input_len - extend_len
        seat.state, seat.ticked = RequestState.RUNNING, self._ticks
        self._batch += 1
        self._running.setdefault(request.client, {})[request.id] = seat

    def pass_over(self, request: Request) -> None:
        """It does not fit now. A preempted request that does not fit ends the look."""
        if self._seats[request.id].state is RequestState.PREEMPTED:
            self._ended = True
            return
        self.policy.pass_over(request)
        self._misfits += 1

    # -- Wakeup --------------------------------------------------------------------------------

    def hold(self, request: Request) -> None:
        """It waits for something else than memory: it neither has nor blocks credit."""
        seat = self._seats[request.id]
        assert seat.state in (RequestState.WAITING, RequestState.PREEMPTED), seat.state
        self._leave(seat)
        seat.state = RequestState.HELD
        self._count(request.client, 1)

    def release(self, request: Request) -> None:
        """What it waited for is there; it keeps its place in the order of arrival."""
        seat = self._seats[request.id]
        assert seat.state is RequestState.HELD, seat.state
        if seat.paid:
            self._return(seat)
        else:
            self.policy.add(request)
            seat.state = RequestState.WAITING

    # -- questions -----------------------------------------------------------------------------

    def __len__(self) -> int:
        """Waiting requests: held and preempted ones included. O(1)."""
        return len(self._seats) - self._batch

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._seats

    def __iter__(self) -> Iterator[Request]:
        """Every request that is not running, in no order that means anything. O(requests)."""
        return (
            seat.request for seat in self._seats.values() if seat.state is not RequestState.RUNNING
        )

    def known(self) -> Set[RequestId]:
        """The names of all requests, from `add` to `finish` or `cancel`. O(1)."""
        return self._seats.keys()

    @property
    def refill_rounds(self) -> int:
        """How many rounds of refill the policy has run; 0 for one that has none."""
        return int(getattr(self.policy, "refill_rounds", 0))

    def state(self, request: Request) -> RequestState:
        """Where the request is. O(1)."""
        return self._seats[request.id].state

    def waiting(self, client: ClientId) -> int:
        """How many of the client's requests wait. O(1)."""
        return self._waiting.get(client, 0)

    def waiting_by_client(self) -> Mapping[ClientId, int]:
        """How many requests of each client wait; not to be changed. O(1)."""
        return self._waiting

    def service(self, client: ClientId) -> Service:
        """What the client has received. O(its running requests)."""
        self.settle(client)
        return self._received.of(client)

    def victim(self, running: Sequence[Request]) -> Request | None:
        """Whom to preempt: the newest request of the client owed least (DESIGN 3.1). O(running).

        `running` is in the order of admission. None if all were preempted a moment ago.
        """
        self.settle()
        calm = [
            (self.policy.credit(request.client), -place, request)
            for place, request in enumerate(running)
            if self._look - self._seats[request.id].preempted_at >= CALM_LOOKS
        ]
        return min(calm, key=lambda item: item[:2])[2] if calm else None

    # -- inside --------------------------------------------------------------------------------

    def _end(self, request: Request, *, finished: bool) -> None:
        seat = self._seats.pop(request.id)
        self._leave(seat)
        if seat.paid and self._settling:
            self._settling.on_end(request, output_len=seat.output_len, finished=finished)

    def _emit(self, seat: RequestRecord, tokens: int) -> None:
        request = seat.request
        self.policy.on_decode(request, before=seat.output_len, tokens=tokens)
        seat.output_len += tokens
        self._received.record(request.client).output_len += tokens

    def _catch_up(self, seat: RequestRecord) -> None:
        """Charge what a running request emitted by `tick` since it was last charged. O(1)."""
        tokens = self._ticks - seat.ticked
        if tokens:
            seat.ticked = self._ticks
            self._emit(seat, tokens)

    def _leave(self, seat: RequestRecord) -> None:
        """Take the request out of wherever it is."""
        request = seat.request
        if seat.state is RequestState.RUNNING:
            self._catch_up(seat)
            self._batch -= 1
            of_client = self._running[request.client]
            del of_client[request.id]
            if not of_client:
                del self._running[request.client]
            return
        self._count(request.client, -1)
        if seat.state is RequestState.WAITING:
            self.policy.remove(request)
        elif seat.state is RequestState.PREEMPTED:
            self._preempted.remove((request.order, request))

    def _return(self, seat: RequestRecord) -> None:
        seat.state = RequestState.PREEMPTED
        insort(self._preempted, (seat.request.order, seat.request))

    def _count(self, client: ClientId, change: int) -> None:
        waiting = self._waiting.get(client, 0) + change
        assert waiting >= 0, client
        if waiting:
            self._waiting[client] = waiting
        else:
            self._waiting.pop(client, None)

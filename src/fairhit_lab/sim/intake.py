"""From the rows of a trace to requests that may be routed: programs, rate limits, callers that leave.

Rows are read one at a time, as their time comes, and only those are kept that have not ended; so a
trace may be larger than memory.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from fairhit.core.request import ClientId, Request, RequestId
from fairhit_lab.events import Cancel, Observer, Reason, Reject
from fairhit_lab.sim.engines.interface import EngineJob
from fairhit_lab.sim.event_order import arrival_priority, cancel_priority
from fairhit_lab.sim.kernel import Kernel
from fairhit_lab.traces.hash_set import HashSet
from fairhit_lab.traces.trace import TraceRow


class TraceTicket:
    """One request from its line's time to its end; `place` is its line's in the trace, from 0."""

    __slots__ = (
        "admitted", "children", "first_us", "job", "paid", "parents", "place", "request", "row",
    )  # fmt: skip

    request: Request  # since it started; it keeps it wherever it is dispatched

    def __init__(self, row: TraceRow, place: int) -> None:
        self.row = row
        self.place = place
        self.job: EngineJob | None = None  # while it is at a worker
        # What its job was at a worker that failed since, for the next.
        self.admitted = False
        self.first_us: int | None = None
        self.paid: int | None = None  # outputs that it paid for there, where that counts elsewhere
        self.parents = 0  # that have not finished
        self.children: list[TraceTicket] = []

    def start(self, order: int, now_us: int) -> None:
        """For its scheduler it arrives now, as the `order`-th of all."""
        row = self.row
        self.request = Request(
            id=row.id,
            client=row.client,
            prompt=row.prompt,
            input_len=len(row.prompt),
            max_tokens=row.max_tokens,
            order=order,
            arrival_us=now_us,
            routing_key=row.program or "",
        )

    def job_at(self, worker: int) -> EngineJob:
        """What it would be at that worker."""
        job = EngineJob(self.row, self.request, worker)
        job.admitted, job.first_us = self.admitted, self.first_us
        job.ticket = self
        return job

    def lost(self, paid: int | None) -> None:
        """Its worker is gone, where it `paid` for so many outputs if that counts elsewhere."""
        assert self.job is not None
        self.admitted, self.first_us = self.job.admitted, self.job.first_us
        self.job = None
        self.paid = paid


class OnStart(Protocol):
    """Hears that a request starts, before any event tells of it."""

    def __call__(
        self, request: RequestId, client: ClientId, t_us: int, program: str | None = None
    ) -> None:
        """Its latency counts from `t_us` on; it belongs to `program`."""
        ...


class RateGate(Protocol):
    """A limit for each client over the whole cluster, asked once for each request."""

    def start_us(self, client: ClientId, now_us: int) -> int | None:
        """When the request may start; None if it is rejected."""
        ...


class Submitting(Protocol):
    """Where requests go when they may."""

    def fits_ever(self, request: Request) -> bool:
        """Whether any worker could run it."""
        ...

    def send(self, ticket: TraceTicket) -> None:
        """Route it, now."""
        ...

    def cancel(self, ticket: TraceTicket) -> None:
        """Its caller is gone; it was sent."""
        ...


class TraceIntake:
    """Reads `rows`, which are sorted by arrival, and follows each request until it ends."""

    def __init__(
        self,
        rows: Iterable[TraceRow],
        *,
        kernel: Kernel,
        cluster: Submitting,
        emit: Observer,
        gate: RateGate | None = None,
        learn_weight: Callable[[ClientId, int], None],
        on_start: OnStart | None = None,
    ) -> None:
        self.rows_read = 0
        self._rows = iter(rows)
        self._kernel = kernel
        self._cluster = cluster
        self._emit = emit
        self._gate = gate
        self._learn_weight = learn_weight
        self._on_start = on_start
        self._alive: dict[RequestId, TraceTicket] = {}
        self._dead = HashSet()  # rejected or cancelled: their children will be rejected, too
        self._started = 0

    def __len__(self) -> int:
        """Requests that have arrived and not ended."""
        return len(self._alive)

    def alive(self) -> Iterator[TraceRow]:
        """Those, in the order of their lines."""
        return (ticket.row for ticket in self._alive.values())

    def output_len(self, request: Request) -> int:
        """The truth about a request that has not ended. O(1)."""
        return self._alive[request.id].row.output_len

    def read(self) -> None:
        """Foresee the next row's arrival."""
        row = next(self._rows, None)
        if row is not None:
            priority = arrival_priority(self.rows_read)
            self._kernel.at(row.arrival_us, priority, self._arrive, row)

    def ended(self, ticket: TraceTicket, *, finished: bool) -> None:
        """The request is gone: its children may begin, or never will. O(those)."""
        ticket.job = None  # which knows it: nobody collects cycles
        if not finished:
            self._bury(ticket)
            return
        del self._alive[ticket.row.id]
        now_us = self._kernel.now_us
        for child in ticket.children:
            child.parents -= 1
            if not child.parents and child.row.id in self._alive:
                self._kernel.at(now_us, arrival_priority(child.place), self._begin, child)

    def _bury(self, ticket: TraceTicket) -> None:
        """It was not served, so nobody is who waits for it, however long the chain."""
        del self._alive[ticket.row.id]
        gone = deque([ticket])
        while gone:
            ticket = gone.popleft()
            self._dead.add(ticket.row.id)
            for child in ticket.children:
                if self._alive.pop(child.row.id, None):
                    self._tell_rejected(child, "parent", None)
                    gone.append(child)

    def again(self, ticket: TraceTicket) -> None:
        """Its worker failed, or there was none: it is sent in its turn among this instant's arrivals."""
        self._kernel.at(self._kernel.now_us, arrival_priority(ticket.place), self._send, ticket)

    def reject(self, ticket: TraceTicket, reason: Reason, worker: int | None = None) -> None:
        """It will not be served, and nobody who waits for it."""
        ticket.job = None
        self._tell_rejected(ticket, reason, worker)
        self._bury(ticket)

    def _tell_rejected(self, ticket: TraceTicket, reason: Reason, worker: int | None) -> None:
        self._emit(Reject(self._kernel.now_us, worker, ticket.row.id, ticket.row.client, reason))

    def _arrive(self, row: TraceRow) -> None:
        """The row's time has come."""
        ticket = TraceTicket(row, self.rows_read)
        self.rows_read += 1
        self.read()
        if row.weight is not None:
            self._learn_weight(row.client, row.weight)
        self._alive[row.id] = ticket
        if row.cancel_us is not None:
            when_us = max(row.cancel_us, self._kernel.now_us)
            self._kernel.at(when_us, cancel_priority(ticket.place), self._cancel, ticket)
        if not row.after:
            self._begin(ticket)
        elif any(parent in self._dead for parent in row.after):
            self.reject(ticket, "parent")
        else:
            self._wait_for_parents(ticket)

    def _wait_for_parents(self, ticket: TraceTicket) -> None:
        """Who is neither alive nor dead has finished."""
        for parent in ticket.row.after:
            if parent in self._alive:
                self._alive[parent].children.append(ticket)
                ticket.parents += 1
        if not ticket.parents:
            self._begin(ticket)

    def _begin(self, ticket: TraceTicket) -> None:
        """It starts, unless it cannot or may not."""
        now_us = self._kernel.now_us
        if ticket.row.id not in self._alive:  # cancelled at this instant
            return
        if self._on_start:
            row = ticket.row
            self._on_start(row.id, row.client, now_us, row.program)
        ticket.start(self._started, now_us)
        self._started += 1
        if not self._cluster.fits_ever(ticket.request):
            self.reject(ticket, "too-large")
            return
        start_us = (
            self._gate.start_us(ticket.row.client, now_us) if self._gate is not None else now_us
        )
        if start_us is None:
            self.reject(ticket, "rpm")
        elif start_us > now_us:
            self._kernel.at(start_us, arrival_priority(ticket.place), self._send, ticket)
        else:
            self._cluster.send(ticket)

    def _send(self, ticket: TraceTicket) -> None:
        """The rate limit lets it through, if it is still there."""
        if ticket.row.id in self._alive:
            self._cluster.send(ticket)

    def _cancel(self, ticket: TraceTicket) -> None:
        """Its caller leaves."""
        if ticket.row.id not in self._alive:
            return
        if ticket.job is not None:
            self._cluster.cancel(ticket)
            return
        self._emit(Cancel(self._kernel.now_us, None, ticket.row.id, ticket.row.client))
        self.ended(ticket, finished=False)

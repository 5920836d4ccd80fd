"""Turns the rows of a trace into requests for the cluster: dependencies, rate limits and cancellations.

Rows are read one at a time, when they arrive, and kept until their request ends; so a trace may be larger
than memory.
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
    """The state of one request from its arrival to its end; `position` is its row's in the trace, from 0."""

    __slots__ = (
        "admitted", "children", "first_us", "job", "paid", "parents", "position", "request", "row",
    )  # fmt: skip

    request: Request  # set by `start`; the same for every worker that the request is sent to

    def __init__(self, row: TraceRow, position: int) -> None:
        self.row = row
        self.position = position
        self.job: EngineJob | None = None  # while the request is at a worker
        # The state of its job at a worker that has failed since, for the job at the next worker.
        self.admitted = False
        self.first_us: int | None = None
        self.paid: int | None = (
            None  # outputs already charged to the client, if all workers share one policy
        )
        self.parents = 0  # number of parents that have not finished
        self.children: list[TraceTicket] = []

    def start(self, order: int, now_us: int) -> None:
        """Create the Request, which arrives now, as the `order`-th of all."""
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
        """Create the job that the request is at that worker."""
        job = EngineJob(self.row, self.request, worker)
        job.admitted, job.first_us = self.admitted, self.first_us
        job.ticket = self
        return job

    def lost(self, paid: int | None) -> None:
        """Detach the request from its failed worker; `paid`: outputs charged there, if they share."""
        assert self.job is not None
        self.admitted, self.first_us = self.job.admitted, self.job.first_us
        self.job = None
        self.paid = paid


class OnStart(Protocol):
    """Called when a request starts, before any event about it."""

    def __call__(
        self,
        request: RequestId,
        client: ClientId,
        t_us: int,
        program: str | None = None,
        demand: int = 0,
    ) -> None:
        """Record that the latency of `request` counts from `t_us` on, its program, and its demand.

        `demand` is input + 2 * output, in tokens.
        """
        ...


class RateGate(Protocol):
    """A rate limit for each client over the whole cluster, consulted once for each request."""

    def start_us(self, client: ClientId, now_us: int) -> int | None:
        """Return when the request may start; None if it is rejected."""
        ...


class TicketSink(Protocol):
    """The cluster, as the intake calls it."""

    def fits_ever(self, request: Request) -> bool:
        """Return whether an empty worker has memory for the request."""
        ...

    def send(self, ticket: TraceTicket) -> None:
        """Route the request now."""
        ...

    def cancel(self, ticket: TraceTicket) -> None:
        """Cancel a request that was sent."""
        ...


class TraceIntake:
    """Reads `rows`, which are sorted by arrival, and follows each request until it ends."""

    def __init__(
        self,
        rows: Iterable[TraceRow],
        *,
        kernel: Kernel,
        cluster: TicketSink,
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
        self._failed = (
            HashSet()
        )  # rejected or cancelled requests, whose children will be rejected too
        self._started = 0

    def __len__(self) -> int:
        """Requests that have arrived and not ended."""
        return len(self._alive)

    def alive(self) -> Iterator[TraceRow]:
        """Iterate over the rows of requests that have arrived and not ended, in the order of the trace."""
        return (ticket.row for ticket in self._alive.values())

    def output_len(self, request: Request) -> int:
        """Return the true output length of a request that has not ended. O(1)."""
        return self._alive[request.id].row.output_len

    def read(self) -> None:
        """Read the next row and schedule its arrival."""
        row = next(self._rows, None)
        if row is not None:
            priority = arrival_priority(self.rows_read)
            self._kernel.at(row.arrival_us, priority, self._arrive, row)

    def ended(self, ticket: TraceTicket, *, finished: bool) -> None:
        """End a request: start its children if it finished, else reject them. O(children)."""
        ticket.job = None  # breaks a reference cycle; the garbage collector is off
        if not finished:
            self._drop(ticket)
            return
        del self._alive[ticket.row.id]
        now_us = self._kernel.now_us
        for child in ticket.children:
            child.parents -= 1
            if not child.parents and child.row.id in self._alive:
                self._kernel.at(now_us, arrival_priority(child.position), self._begin, child)

    def _drop(self, ticket: TraceTicket) -> None:
        """Remove a request that did not finish; reject all its descendants, breadth first."""
        del self._alive[ticket.row.id]
        dropped = deque([ticket])
        while dropped:
            ticket = dropped.popleft()
            self._failed.add(ticket.row.id)
            for child in ticket.children:
                if self._alive.pop(child.row.id, None):
                    self._emit_reject(child, "parent", None)
                    dropped.append(child)

    def again(self, ticket: TraceTicket) -> None:
        """Send again a request whose worker failed, or that had none, in trace order at this instant."""
        self._kernel.at(self._kernel.now_us, arrival_priority(ticket.position), self._send, ticket)

    def reject(self, ticket: TraceTicket, reason: Reason, worker: int | None = None) -> None:
        """Reject a request, and its descendants."""
        ticket.job = None
        self._emit_reject(ticket, reason, worker)
        self._drop(ticket)

    def _emit_reject(self, ticket: TraceTicket, reason: Reason, worker: int | None) -> None:
        self._emit(Reject(self._kernel.now_us, worker, ticket.row.id, ticket.row.client, reason))

    def _arrive(self, row: TraceRow) -> None:
        """Create a ticket for an arriving row; start it, let it wait for its parents, or reject it."""
        ticket = TraceTicket(row, self.rows_read)
        self.rows_read += 1
        self.read()
        if row.weight is not None:
            self._learn_weight(row.client, row.weight)
        self._alive[row.id] = ticket
        if row.cancel_us is not None:
            when_us = max(row.cancel_us, self._kernel.now_us)
            self._kernel.at(when_us, cancel_priority(ticket.position), self._cancel, ticket)
        if not row.after:
            self._begin(ticket)
        elif any(parent in self._failed for parent in row.after):
            self.reject(ticket, "parent")
        else:
            self._wait_for_parents(ticket)

    def _wait_for_parents(self, ticket: TraceTicket) -> None:
        """Start the request when its last parent finishes; a parent neither alive nor failed has finished."""
        for parent in ticket.row.after:
            if parent in self._alive:
                self._alive[parent].children.append(ticket)
                ticket.parents += 1
        if not ticket.parents:
            self._begin(ticket)

    def _begin(self, ticket: TraceTicket) -> None:
        """Start a request, unless it is too large or the rate limit delays or rejects it."""
        now_us = self._kernel.now_us
        if ticket.row.id not in self._alive:  # cancelled at this instant
            return
        if self._on_start:
            row = ticket.row
            demand = len(row.prompt) + 2 * row.output_len
            self._on_start(row.id, row.client, now_us, row.program, demand)
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
            self._kernel.at(start_us, arrival_priority(ticket.position), self._send, ticket)
        else:
            self._cluster.send(ticket)

    def _send(self, ticket: TraceTicket) -> None:
        """Send a delayed request, if it was not cancelled meanwhile."""
        if ticket.row.id in self._alive:
            self._cluster.send(ticket)

    def _cancel(self, ticket: TraceTicket) -> None:
        """Cancel a request, at a worker or before."""
        if ticket.row.id not in self._alive:
            return
        if ticket.job is not None:
            self._cluster.cancel(ticket)
            return
        self._emit(Cancel(self._kernel.now_us, None, ticket.row.id, ticket.row.client))
        self.ended(ticket, finished=False)

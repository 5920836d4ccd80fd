"""An observer of events that summarises a run (DESIGN 6.2). Fields: docs/reference/summary.md.

It keeps a record a client, a worker and a request in flight, so a day of requests needs no more
memory than its busiest minute. Whether a run of passes is reported as one event or pass by pass, the
numbers are the same: within a run every total is linear, and its boundaries are looked up.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fairhit.core.request import ClientId, RequestId
from fairhit.core.service import WEIGHT_SCALE
from fairhit_lab.events import (
    PS_PER_US,
    Admit,
    Cancel,
    Decode,
    Dispatch,
    Enqueue,
    Event,
    Evict,
    Finish,
    FirstToken,
    Preempt,
    Reason,
    Refill,
    Reject,
    WorkerUpOrDown,
)
from fairhit_lab.metrics.distribution import Distribution
from fairhit_lab.metrics.gaps import Bound, PairGaps, no_bound
from fairhit_lab.metrics.summary.active import AllActive
from fairhit_lab.metrics.summary.latency import Programs, per_token_us
from fairhit_lab.metrics.summary.places import AtWorker, Flight, WorkerTable
from fairhit_lab.metrics.summary.report import RunTotals, report
from fairhit_lab.metrics.summary.tally import Tally


class Summary:
    """Counts events, or what they say, given to one of `takes`; `as_dict` at the end.

    `weight_of` gives a client's weight in millionths. With `one_queue`, requests wait for any worker
    from their dispatch until one takes and enqueues them; gaps are then over all workers. It says how
    many workers, numbered from 0, share the queue from the start.
    Events of one worker come in order of time, and no other event of it lies inside a run of passes.
    A mapping of counts is never written to again.
    """

    def __init__(
        self,
        *,
        bound: Bound | None = None,
        weight_of: Callable[[ClientId], int] | None = None,
        one_queue: int = 0,
    ) -> None:
        self._bound = bound or no_bound("no bound was given")
        self._weight_of = weight_of
        self._tallies: dict[ClientId, Tally] = {}
        self._flights: dict[RequestId, Flight] = {}
        self._started: dict[RequestId, tuple[int, int | None]] = {}
        self._demands: dict[ClientId, int] = {}
        self._pairs = PairGaps(weight_of)
        self._workers = WorkerTable(self._pairs, sharing=one_queue)
        self._queue = self._workers.queue
        self._all = AllActive(self._workers.settled_us)
        self._whole_input = self._bound.view == "client"
        self._programs = Programs()
        self._tpot = Distribution()
        self._totals = RunTotals()
        self.takes: Mapping[type, Callable[..., None]] = {
            Dispatch: self._dispatch, Enqueue: self._enqueue, Reject: self._reject,
            Admit: self._admit, Decode: self._decode, FirstToken: self._first_token,
            Finish: self._finish, Cancel: self._cancel, Preempt: self._preempt,
            Refill: self._refill, Evict: self._evict, WorkerUpOrDown: self._worker,
        }  # fmt: skip

    def __call__(self, event: Event, /) -> None:
        self.takes[type(event)](*event)

    def start(
        self,
        request: RequestId,
        client: ClientId,
        t_us: int,
        program: str | None = None,
        demand: int = 0,
    ) -> None:
        """`request` starts at `t_us`: its latencies count from there, not from its dispatch.

        Call it before the request's first event, where it has a program or is dispatched later than it
        starts; a file of events knows neither. `demand` is what it asks for, input + 2 * output: without
        demands there are no entitlements. O(1).
        """
        self._demands[client] = self._demands.get(client, 0) + demand
        number = None if program is None else self._programs.start(program, client, t_us)
        self._started[request] = (t_us, number)

    def left(self, request: RequestId, client: ClientId, t_us: int) -> None:
        """The run is over at `t_us`, and `request` has come and not ended, dispatched or not. O(1)."""
        if request not in self._flights:
            self._unserved(request, client, t_us)

    def as_dict(self, *, interrupted: bool = False, end_us: int | None = None) -> dict[str, Any]:
        """The summary as JSON values; more events may follow. O(clients + pairs + programs)."""
        whole = self.report(interrupted=interrupted, end_us=end_us)
        return whole | {"clients": dict(whole["clients"])}

    def report(self, *, interrupted: bool = False, end_us: int | None = None) -> dict[str, Any]:
        """As `as_dict`, but each client's row is made when it is read (ClientRows)."""
        reported = (worker.reported_us for worker in self._workers.values())
        end_us = max(self._totals.end_us, end_us or 0, *reported)
        for worker in self._workers.values():
            self._settle(worker)
            worker.gaps.close()
        if self._queue is not None:
            self._queue.gaps.close()
        return report(
            totals=self._totals,
            end_us=end_us,
            interrupted=interrupted,
            tallies=self._tallies,
            demands=self._demands,
            idle_us={number: at.idle_by(end_us) for number, at in sorted(self._workers.items())},
            epoch=self._all.epoch,
            all_active_us=self._all.length_us(end_us),
            pairs=self._pairs,
            bound=self._bound,
            programs=self._programs,
            tpot=self._tpot,
        )

    # -- requests come and go --------------------------------------------------------------------

    def _dispatch(
        self, t_us: int, worker: int | None, request: RequestId, client: ClientId
    ) -> None:
        if request in self._flights:  # again, after its worker failed
            if self._queue is not None:
                self._queue.wait(self._flights[request], t_us)
            return
        tally = self._tallies.get(client) or self._new_client(client)
        start_us, program = self._started.pop(request, (t_us, None))
        tally.requests += 1
        self._flights[request] = flight = Flight(tally, start_us, program)
        if start_us < self._totals.begin_us:  # noqa: PLR1730 - as in _admit
            self._totals.begin_us = start_us
        if not tally.active:
            if not tally.seen:
                tally.seen = True
                self._all.appear()
            self._all.begin(t_us)
        tally.active += 1
        if self._queue is not None:
            self._queue.wait(flight, t_us)

    def _enqueue(self, t_us: int, worker: int, request: RequestId, client: ClientId) -> None:
        at = self._workers.get(worker) or self._workers.new(worker)
        flight = self._flights[request]
        assert flight.at is None, (t_us, request)
        flight.at = at
        at.waiting += 1
        if self._queue is not None:
            self._queue.leave(flight, t_us)
        if at.gaps.begins(client):
            self._settle(at)
        at.gaps.wait(client)
        if not at.running:
            at.watch_idle(t_us)

    def _admit(  # noqa: PLR0917 - the fields of the event
        self, t_us: int, worker: int, request: RequestId, client: ClientId,
        step: int, extend_len: int, input_len: int, again: bool = False,
    ) -> None:  # fmt: skip
        flight = self._flights[request]
        at, tally = flight.at, flight.tally
        assert at is not None and not flight.running, (t_us, request)
        gaps = at.gaps
        if gaps.compares:
            self._settle(at)
        flight.running = True
        flight.input_len = input_len
        at.waiting -= 1
        at.running += 1
        if at.idle_since_us is not None:
            at.watch_idle(t_us)
        # It is backlogged up to this moment, not past it: what it gets now counts if more of it wait.
        gaps.leave(client)
        if again:
            tally.again_len += extend_len
            return
        cached_len = input_len - extend_len
        tally.extend_len += extend_len
        tally.cached_len += cached_len
        charged = input_len if self._whole_input else extend_len
        gaps.serve(client, charged)
        if self._queue is not None:
            self._queue.gaps.serve(client, charged)
        if input_len > self._totals.longest_input:  # noqa: PLR1730 - a call costs as much as the rest
            self._totals.longest_input = input_len
        if self._all.now:
            inside = tally.inside_since(self._all.epoch)
            inside.extend_len += extend_len
            inside.cached_len += cached_len

    def _first_token(self, t_us: int, worker: int, request: RequestId, client: ClientId) -> None:
        flight = self._flights[request]
        flight.first_us = t_us
        tally = flight.tally
        if tally.ttft is None:
            tally.ttft = Distribution()
        tally.ttft.add(t_us - flight.start_us)

    def _finish(  # noqa: PLR0917 - the fields of the event
        self, t_us: int, worker: int, request: RequestId, client: ClientId,
        step: int, output_len: int,
    ) -> None:  # fmt: skip
        flight = self._flights.pop(request)
        tally, totals = flight.tally, self._totals
        tally.finished += 1
        if tally.completion is None:
            tally.completion = Distribution()
        tally.completion.add(t_us - flight.start_us)
        if (spent_us := per_token_us(flight.first_us, t_us, output_len)) is not None:
            self._tpot.add(spent_us)
        totals.finished_input += flight.input_len
        totals.finished_output += output_len
        totals.last_finish_us = t_us
        if flight.program is not None:
            self._programs.finish(flight.program, t_us)
        self._gone(flight, t_us)

    def _reject(
        self, t_us: int, worker: int | None, request: RequestId, client: ClientId, reason: Reason
    ) -> None:
        self._unserved(request, client, t_us).reject(reason)

    def _cancel(self, t_us: int, worker: int | None, request: RequestId, client: ClientId) -> None:
        self._unserved(request, client, t_us).cancelled += 1

    def _unserved(self, request: RequestId, client: ClientId, t_us: int) -> Tally:
        """End a request without its last token, dispatched or not; return its client's tally."""
        flight = self._flights.pop(request, None)
        if flight is not None:
            self._gone(flight, t_us)
            return flight.tally
        tally = self._tallies.get(client) or self._new_client(client)
        tally.requests += 1
        start_us, _ = self._started.pop(request, (t_us, None))
        self._totals.begin_us = min(self._totals.begin_us, start_us)
        self._totals.end_us = max(self._totals.end_us, t_us)
        return tally

    def _preempt(
        self, t_us: int, worker: int, request: RequestId, client: ClientId, step: int
    ) -> None:
        flight = self._flights[request]
        at = flight.at
        assert at is not None, (t_us, request)
        if flight.running:
            flight.tally.preempted += 1
        if at is not self._workers[worker]:
            # Its worker failed, with its queue; it will be dispatched again.
            flight.at, flight.running = None, False
            return
        assert flight.running, (t_us, request)
        self._settle(at)
        flight.running = False
        at.running -= 1
        at.waiting += 1
        at.gaps.wait(client)
        at.watch_idle(t_us)

    def _gone(self, flight: Flight, t_us: int) -> None:
        """Remove `flight` from the system."""
        self._leave(flight, t_us)
        self._totals.end_us = t_us
        tally = flight.tally
        tally.active -= 1
        if not tally.active:
            self._all.end(t_us)

    def _leave(self, flight: Flight, t_us: int) -> None:
        """Remove `flight` from its worker, whatever its state."""
        at = flight.at
        if at is None:
            if self._queue is not None:
                self._queue.leave(flight, t_us)
        elif flight.running:
            at.running -= 1
            flight.running = False
            if not at.running:
                at.watch_idle(t_us)
        else:
            if at.gaps.compares:
                self._settle(at)
            at.waiting -= 1
            at.gaps.leave(flight.tally.client)
            at.watch_idle(t_us)

    def _new_client(self, client: ClientId) -> Tally:
        weight = self._weight_of(client) if self._weight_of else WEIGHT_SCALE
        self._pairs.track(client)
        self._tallies[client] = tally = Tally(client, weight)
        return tally

    # -- workers ---------------------------------------------------------------------------------

    def _decode(  # noqa: PLR0917 - the fields of the event
        self, t_us: int, worker: int, step: int, counts: Mapping[ClientId, int],
        passes: int, start_ps: int, pass_ps: int, growth_ps: int,
    ) -> None:  # fmt: skip
        at, everyone = self._workers[worker], self._all
        if counts is not at.counts and counts != at.counts:
            self._settle(at)
            at.counts = counts
        at.passes += passes
        at.reported_us = t_us
        if everyone.changes_us:
            if everyone.changes_us[-1] < (start_ps + pass_ps) // PS_PER_US:  # mostly, and cheaper
                inside = passes if everyone.now else 0
            else:
                run = Decode(t_us, worker, step, counts, passes, start_ps, pass_ps, growth_ps)
                inside = everyone.passes_inside(run)
            if inside:
                if at.epoch != everyone.epoch:
                    at.epoch, at.inside = everyone.epoch, 0
                at.inside += inside
        if self._queue is not None:
            self._settle(at)  # what workers give is compared in the order in which they give it
            self._queue.gaps.serve_all(counts, passes)

    def _settle(self, at: AtWorker) -> None:
        """Book the passes that were reported and not yet booked. O(clients that ran)."""
        if at.passes:
            at.book(self._tallies, self._all.epoch)

    def _refill(self, t_us: int, worker: int, rounds: int) -> None:
        self._totals.passes_with_refill += 1
        self._totals.refill_rounds += rounds

    def _evict(self, t_us: int, worker: int, tokens: int) -> None:
        self._totals.evicted_len += tokens

    def _worker(self, t_us: int, worker: int, up: bool) -> None:
        """Record that a worker came up or failed; the requests of a failed one are dispatched again."""
        if up:
            self._workers.come(worker, t_us)
        elif worker in self._workers:
            self._settle(self._workers[worker])
            self._workers.go(worker, t_us)

"""One run in one JSON object: an observer of events (DESIGN 6.2). Fields: docs/reference/summary.md.

It keeps a record a client, a worker and a request in flight, so a day of requests needs no more
memory than its busiest minute. Whether a run of passes is told as one event or pass by pass, the
numbers are the same: within a run every total is linear, and its boundaries are looked up.
"""

from collections.abc import Callable
from typing import Any

from fairlead.core.events import (
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
    Refill,
    Reject,
    Worker,
)
from fairlead.core.request import ClientId, RequestId
from fairlead.core.service import WEIGHT_SCALE
from fairlead.metrics.active import AllActive
from fairlead.metrics.distribution import Distribution
from fairlead.metrics.gaps import Bound, PairGaps, WorkerGaps, no_bound
from fairlead.metrics.latency import Programs, per_token_us
from fairlead.metrics.places import AtWorker, Flight, SharedQueue
from fairlead.metrics.report import NEVER, Totals, report
from fairlead.metrics.tally import Tally


class Summary:
    """Counts events; `as_dict` at the end.

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
        self._workers: dict[int, AtWorker] = {}
        self._all = AllActive(self._settled_us)
        self._pairs = PairGaps(weight_of)
        self._queue = SharedQueue(WorkerGaps(self._pairs, None)) if one_queue else None
        self._whole_input = self._bound.view == "client"
        self._programs = Programs()
        self._tpot = Distribution()
        self._totals = Totals()
        self._on: dict[type, Callable[[Any], None]] = {
            Dispatch: self._dispatch, Enqueue: self._enqueue, Reject: self._reject,
            Admit: self._admit, Decode: self._decode, FirstToken: self._first_token,
            Finish: self._finish, Cancel: self._cancel, Preempt: self._preempt,
            Refill: self._refill, Evict: self._evict, Worker: self._worker,
        }  # fmt: skip
        for number in range(one_queue):
            self._share_queue(number, 0)

    def __call__(self, event: Event, /) -> None:
        self._on[type(event)](event)

    def start(
        self, request: RequestId, client: ClientId, t_us: int, program: str | None = None
    ) -> None:
        """`request` starts at `t_us`: its latencies count from there, not from its dispatch.

        Call it before the request's first event, where it has a program or is dispatched later than it
        starts; a file of events knows neither. O(1).
        """
        number = None if program is None else self._programs.start(program, client, t_us)
        self._started[request] = (t_us, number)

    def left(self, request: RequestId, client: ClientId, t_us: int) -> None:
        """The run is over at `t_us`, and `request` has come and not ended, dispatched or not. O(1)."""
        if request not in self._flights:
            self._unserved(request, client, t_us)

    def as_dict(self, *, interrupted: bool = False, end_us: int | None = None) -> dict[str, Any]:
        """The summary as JSON values; more events may follow. O(clients + pairs + programs)."""
        told = (worker.told_us for worker in self._workers.values())
        end_us = max(self._totals.end_us, end_us or 0, *told)
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
            idle_us={number: at.idle_by(end_us) for number, at in sorted(self._workers.items())},
            epoch=self._all.epoch,
            all_active_us=self._all.length_us(end_us),
            pairs=self._pairs,
            bound=self._bound,
            programs=self._programs,
            tpot=self._tpot,
        )

    # -- requests come and go --------------------------------------------------------------------

    def _dispatch(self, event: Dispatch) -> None:
        t_us, _, request, client = event
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

    def _enqueue(self, event: Enqueue) -> None:
        t_us, worker, request, client = event
        at = self._workers.get(worker) or self._new_worker(worker)
        flight = self._flights[request]
        assert flight.at is None, event
        flight.at = at
        at.waiting += 1
        if self._queue is not None:
            self._queue.leave(flight, t_us)
        gaps = at.gaps
        if client in self._pairs.scales:
            if client not in gaps.places:
                self._settle(at)
            gaps.wait(client)
        if not at.running:
            at.watch_idle(t_us)

    def _admit(self, event: Admit) -> None:
        t_us, _, request, client, _, extend_len, input_len, again = event
        flight = self._flights[request]
        at, tally = flight.at, flight.tally
        assert at is not None and not flight.running, event
        self._settle(at)
        flight.running = True
        flight.input_len = input_len
        at.waiting -= 1
        at.running += 1
        if at.idle_since_us is not None:
            at.watch_idle(t_us)
        # It is backlogged up to this moment, not past it: what it gets now counts if more of it wait.
        at.gaps.leave(client)
        if again:
            tally.again_len += extend_len
            return
        cached_len = input_len - extend_len
        tally.extend_len += extend_len
        tally.cached_len += cached_len
        charged = input_len if self._whole_input else extend_len
        at.gaps.serve(client, charged)
        if self._queue is not None:
            self._queue.gaps.serve(client, charged)
        if input_len > self._totals.longest_input:  # noqa: PLR1730 - a call costs as much as the rest
            self._totals.longest_input = input_len
        if self._all.now:
            inside = tally.inside_since(self._all.epoch)
            inside.extend_len += extend_len
            inside.cached_len += cached_len

    def _first_token(self, event: FirstToken) -> None:
        t_us, _, request, _ = event
        flight = self._flights[request]
        flight.first_us = t_us
        tally = flight.tally
        if tally.ttft is None:
            tally.ttft = Distribution()
        tally.ttft.add(t_us - flight.start_us)

    def _finish(self, event: Finish) -> None:
        t_us, _, request, _, _, output_len = event
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

    def _reject(self, event: Reject) -> None:
        t_us, _, request, client, reason = event
        self._unserved(request, client, t_us).reject(reason)

    def _cancel(self, event: Cancel) -> None:
        t_us, _, request, client = event
        self._unserved(request, client, t_us).cancelled += 1

    def _unserved(self, request: RequestId, client: ClientId, t_us: int) -> Tally:
        """It ends without its last token, dispatched or not; its client's tally."""
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

    def _preempt(self, event: Preempt) -> None:
        t_us, worker, request, client, _ = event
        flight = self._flights[request]
        at = flight.at
        assert at is not None, event
        if flight.running:
            flight.tally.preempted += 1
        if at is not self._workers[worker]:
            # Its worker failed, with its queue; it will be dispatched again.
            flight.at, flight.running = None, False
            return
        assert flight.running, event
        self._settle(at)
        flight.running = False
        at.running -= 1
        at.waiting += 1
        at.gaps.wait(client)
        at.watch_idle(t_us)

    def _gone(self, flight: Flight, t_us: int) -> None:
        """It has left the system."""
        self._leave(flight, t_us)
        self._totals.end_us = t_us
        tally = flight.tally
        tally.active -= 1
        if not tally.active:
            self._all.end(t_us)

    def _leave(self, flight: Flight, t_us: int) -> None:
        """It has left its worker, from whatever state."""
        at = flight.at
        if at is None:
            if self._queue is not None:
                self._queue.leave(flight, t_us)
            return
        if flight.running:
            at.running -= 1
            flight.running = False
            if not at.running:
                at.watch_idle(t_us)
        else:
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

    def _decode(self, event: Decode) -> None:
        t_us, worker, _, counts, passes, _, _, _ = event
        at, everyone = self._workers[worker], self._all
        if counts is not at.counts and counts != at.counts:
            self._settle(at)
            at.counts = counts
        at.passes += passes
        at.told_us = t_us
        if everyone.changes_us and (inside := everyone.passes_inside(event)):
            if at.epoch != everyone.epoch:
                at.epoch, at.inside = everyone.epoch, 0
            at.inside += inside
        if self._queue is not None:
            self._settle(at)  # what workers give is compared in the order in which they give it
            self._queue.gaps.serve_all(counts, passes)

    def _settle(self, at: AtWorker) -> None:
        """Book the passes that were told and not yet booked. O(clients that ran)."""
        if at.passes:
            at.book(self._tallies, self._all.epoch)

    def _settled_us(self) -> int:
        """No pass that ended before is still to be told. O(workers)."""
        told = [at.told_us for at in self._workers.values() if at.running]
        return min(told, default=NEVER)

    def _refill(self, event: Refill) -> None:
        self._totals.refilled_looks += 1
        self._totals.refill_rounds += event.rounds

    def _evict(self, event: Evict) -> None:
        self._totals.evicted_len += event.tokens

    def _worker(self, event: Worker) -> None:
        """One that fails leaves with its queue; whoever was there is dispatched again."""
        before = self._workers.get(event.worker)
        if event.up:
            self._share_queue(event.worker, event.t_us)
            return
        if before is None:
            return
        if self._queue is not None:
            self._queue.go(event.worker)
        self._settle(before)
        before.gaps.close()
        before.running = before.waiting = 0
        before.watch_idle(event.t_us)
        gaps = WorkerGaps(self._pairs, event.worker)
        self._workers[event.worker] = AtWorker(gaps, before.idle_us)

    def _new_worker(self, number: int) -> AtWorker:
        self._workers[number] = at = AtWorker(WorkerGaps(self._pairs, number))
        return at

    def _share_queue(self, number: int, t_us: int) -> None:
        if self._queue is not None:
            self._queue.come(number, self._workers.get(number) or self._new_worker(number), t_us)

"""One engine in virtual time: asks its host what to compute, its step time how long that takes.

A replica owns time and tells what happened. Who runs, and what is in memory, is its host's business.
It counts in picoseconds while it is busy, so that a run of alike passes in closed form ends at the
same microsecond as the passes one by one.
"""

from collections.abc import Callable
from typing import TypeAlias

from fairhit_lab.events import (
    PS_PER_US,
    Admit,
    Cancel,
    Decode,
    Enqueue,
    Evict,
    Finish,
    FirstToken,
    Preempt,
    Refill,
    after,
)
from fairhit_lab.sim.engines.interface import EngineJob, Pass, SimulatedEngine, StepTime
from fairhit_lab.sim.event_bus import Telling
from fairhit_lab.sim.event_order import end_priority, start_priority
from fairhit_lab.sim.kernel import Kernel

# Hears that a job has ended here: True if it finished, False if it was cancelled.
Ended: TypeAlias = Callable[[EngineJob, bool], None]


class _Stretch:
    """The alike passes under way; the first `left` of them are still to end.

    `then`: the stretch that follows at once, if nobody arrives or leaves before.
    """

    __slots__ = ("begun_us", "end_ps", "growth_ps", "left", "pass_ps", "start_ps", "then", "work")

    def __init__(self, work: Pass, left: int, start_ps: int, step_time: StepTime) -> None:
        self.work = work
        self.left = left
        self.begun_us = start_ps // PS_PER_US
        self.start_ps = start_ps
        self.pass_ps = pass_ps = step_time.pass_ps(work)
        self.then: _Stretch | None = None
        if left == 1:
            self.growth_ps = 0
            self.end_ps = start_ps + pass_ps
        else:
            self.growth_ps = step_time.growth_ps(work)
            self.end_ps = start_ps + after(left, pass_ps, self.growth_ps)

    def over_by(self, now_us: int) -> int:
        """How many of them have ended at `now_us`, fewer than all. O(1) as long as growth is slow."""
        room_ps = (now_us + 1) * PS_PER_US - 1 - self.start_ps
        pass_ps, growth_ps = self.pass_ps, self.growth_ps
        most = self.left - 1
        if pass_ps:
            most = min(most, room_ps // pass_ps)  # if none were longer than the first
        if not growth_ps or not most:
            return most if most * pass_ps <= room_ps else 0
        # If all were as long as the mean of so many; then one by one.
        over = min(most, 2 * room_ps // (2 * pass_ps + growth_ps * (most - 1)))
        while over < most and after(over + 1, pass_ps, growth_ps) <= room_ps:
            over += 1
        return over

    def cut(self) -> None:
        """Only the first of them, and nothing after it."""
        self.left = 1
        self.end_ps = self.start_ps + self.pass_ps
        self.then = None

    def advance(self, passes: int) -> int:
        """So many are over; when the last of those ended. O(1)."""
        left = self.left = self.left - passes
        if left:
            self.start_ps += after(passes, self.pass_ps, self.growth_ps)
            self.pass_ps += passes * self.growth_ps
        else:
            self.start_ps = self.end_ps
        return self.start_ps


class Replica:
    """Runs one host, pass after pass; `skips` alike passes in closed form if it may."""

    def __init__(
        self,
        number: int,
        *,
        kernel: Kernel,
        host: SimulatedEngine,
        step_time: StepTime,
        telling: Telling,
        ended: Ended,
        skips: bool = True,
    ) -> None:
        self.number = number
        self.host = host
        self.steps = 0  # passes that have ended
        self._end_priority, self._start_priority = end_priority(number), start_priority(number)
        self._kernel = kernel
        self._step_time = step_time
        self._emit = telling
        self._tell_admit, self._tell_decode = telling.of[Admit], telling.of[Decode]
        self._tell_enqueue, self._tell_finish = telling.of[Enqueue], telling.of[Finish]
        self._tell_first = telling.of[FirstToken]
        self._tell_refill, self._tell_evict = telling.of[Refill], telling.of[Evict]
        self._ended = ended
        self._skips = skips and step_time.alike
        self._jobs: dict[EngineJob, bool] = {}  # all that are here, and whether they run
        self._leaving: list[EngineJob] = []  # running, and cancelled: they go when the pass ends
        self._stretch: _Stretch | None = None
        self._free_ps = 0  # when the last pass ended
        self._starting = False
        self._epoch = 0  # an end that was foreseen in an earlier one does not come

    # -- what comes from outside ---------------------------------------------------------------

    def enqueue(self, job: EngineJob) -> None:
        """The job waits here, after `catch_up`. Raises QueueFull."""
        self.host.enqueue(job)
        self._jobs[job] = False
        request = job.request
        self._tell_enqueue(self._kernel.now_us, self.number, request.id, request.client)
        if self._stretch is None or not self._stretch.work.full:
            self._cut_short()

    def wake(self) -> None:
        """Its host was given something to look at, which nobody is told of yet."""
        self.catch_up()
        if self._stretch is None or not self._stretch.work.full:
            self._cut_short()

    def take(self, job: EngineJob) -> None:
        """What its host was given is a job of this replica now: it admits it in the look under way."""
        self._jobs[job] = False
        request = job.request
        self._tell_enqueue(self._kernel.now_us, self.number, request.id, request.client)

    def cancel(self, job: EngineJob) -> None:
        """Its caller is gone: a waiting job leaves at once, a running one when the pass ends."""
        self.catch_up()
        if self._jobs[job] and not self._is_between():
            self._leaving.append(job)
            self._cut_short()
        else:
            self._let_go(job)
            self._cut_short()

    def fail(self) -> list[EngineJob]:
        """All is lost but what was emitted; give it a new `host`. The jobs, oldest first."""
        self.catch_up()
        self._epoch += 1
        self._stretch = None
        self._starting = False
        self._free_ps = 0
        for job in self._leaving:
            del self._jobs[job]
            self._tell_cancelled(job)
        jobs = sorted(self._jobs, key=lambda job: job.request.order)
        self._jobs.clear()
        self._leaving.clear()
        return jobs

    def catch_up(self) -> None:
        """End the passes that are over, though more like them follow: before anything else is told."""
        stretch = self._stretch
        if stretch is None:
            return
        now_us = self._kernel.now_us
        passes = 0
        if stretch.then is not None and stretch.end_ps // PS_PER_US <= now_us:
            passes = self._pass_by(stretch, 1)
            self._stretch = stretch = stretch.then
        if stretch.left > 1 and (over := stretch.over_by(now_us)):
            passes += self._pass_by(stretch, over)
        if passes:
            finished = self.host.end_pass(passes, stretch.start_ps // PS_PER_US)
            assert not finished, finished

    # -- passes --------------------------------------------------------------------------------

    def _start_soon(self) -> None:
        """Begin a pass at this instant, after everything that comes before that."""
        if self._starting:
            return
        self._starting = True
        kernel, priority = self._kernel, self._start_priority
        if kernel.comes_before(priority):
            kernel.at(kernel.now_us, priority, self._start, self._epoch)
        else:
            self._start(self._epoch)

    def _start(self, epoch: int) -> None:
        """Look at the queue, and compute."""
        if epoch != self._epoch:
            return
        assert self._stretch is None
        self._starting = False
        now_us = self._kernel.now_us
        work = self.host.begin_pass(now_us)
        if work is None:
            return
        self._tell(work, now_us)
        start_ps = max(self._free_ps, now_us * PS_PER_US)
        repeats = work.repeats if self._skips else 1
        stretch = last = _Stretch(work, repeats, start_ps, self._step_time)
        if work.then is not None and self._skips:
            last = _Stretch(work.then, work.then.repeats, stretch.end_ps, self._step_time)
            last.begun_us = stretch.begun_us  # as one of a run: it may be cut where it starts
            stretch.then = last
        self._stretch = stretch
        self._foresee(last)

    def _foresee(self, last: _Stretch) -> None:
        """The end of all that is known to come."""
        self._epoch += 1
        self._kernel.at(last.end_ps // PS_PER_US, self._end_priority, self._end, self._epoch)

    def _cut_short(self) -> None:
        """Look again after the pass under way; between two passes, look now."""
        stretch = self._stretch
        if stretch is None:
            self._start_soon()
        elif self._is_between():
            self._stretch = None
            self._free_ps = stretch.start_ps
            self._start_soon()
        elif stretch.left > 1 or stretch.then is not None:
            stretch.cut()
            self._foresee(stretch)

    def _is_between(self) -> bool:
        """Whether a pass ended at this instant and the next has not begun, as far as anyone can tell."""
        stretch, now_us = self._stretch, self._kernel.now_us
        if stretch is None:
            return True
        return stretch.begun_us < now_us == stretch.start_ps // PS_PER_US

    def _end(self, epoch: int) -> None:
        """The last pass that was foreseen is over."""
        stretch = self._stretch
        if stretch is None or epoch != self._epoch:
            return
        passes = 0
        if stretch.then is not None:
            passes = self._pass_by(stretch, 1)
            stretch = stretch.then
        passes += self._pass_by(stretch, stretch.left)
        self._stretch = None
        self._free_ps = stretch.end_ps
        now_us, number, last = self._kernel.now_us, self.number, self.steps - 1
        for job in self.host.end_pass(passes, now_us):
            del self._jobs[job]
            request = job.request
            self._tell_finish(now_us, number, request.id, request.client, last, job.emitted)
            self._ended(job, True)
        if self._leaving:
            for job in self._leaving:
                if job in self._jobs:
                    self._let_go(job)
            self._leaving.clear()
        self._start_soon()

    def _pass_by(self, stretch: _Stretch, passes: int) -> int:
        """So many passes of the stretch are over, which the host hears next; how many."""
        start_ps, pass_ps, growth_ps = stretch.start_ps, stretch.pass_ps, stretch.growth_ps
        end_us = stretch.advance(passes) // PS_PER_US
        work, number = stretch.work, self.number
        self._tell_decode(
            end_us, number, self.steps, work.counts, passes, start_ps, pass_ps, growth_ps
        )
        self.steps += passes
        for job in work.first:
            if job.first_us is None:
                job.first_us = end_us
                request = job.request
                self._tell_first(end_us, number, request.id, request.client)
        return passes

    def _tell(self, work: Pass, now_us: int) -> None:
        """What led to the pass that begins now."""
        number = self.number
        for job in work.preempted:
            self._jobs[job] = False
            self._emit(Preempt(now_us, number, job.request.id, job.request.client, self.steps))
        if work.refills:
            self._tell_refill(now_us, number, work.refills)
        if work.evicted:
            self._tell_evict(now_us, number, work.evicted)
        if not work.admitted:
            return
        tell_admit = self._tell_admit
        for job, extend_len, again in work.admitted:
            self._jobs[job] = True
            if not again:
                job.extend_len = extend_len
            request = job.request
            tell_admit(
                now_us, number, request.id, request.client,
                self.steps, extend_len, request.input_len, again or job.admitted,
            )  # fmt: skip
            job.admitted = True

    def _let_go(self, job: EngineJob) -> None:
        """It was cancelled."""
        self.host.cancel(job)
        del self._jobs[job]
        self._tell_cancelled(job)

    def _tell_cancelled(self, job: EngineJob) -> None:
        request = job.request
        self._emit(Cancel(self._kernel.now_us, self.number, request.id, request.client))
        self._ended(job, False)

"""The ideal engine of the theorems (DESIGN 6.3): every running request emits one token in each pass.

Prompts are prefilled whole, in the pass that admits them; admission reserves all that a request may
ever need, so nobody is preempted. What a pass costs here does not depend on how many are running:
they are counted once, as they come and go.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

from fairhit.core.cache.token_runs import Runs
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import ClientId, Request, RequestId
from fairhit_lab.sim.engines.interface import AdmittedJob, EngineJob, Pass
from fairhit_lab.sim.memory.admission import Grant, Reserve


class _Place:
    """A running job: its memory, and the number of the pass that ended when it was admitted."""

    __slots__ = ("grant", "job", "since")

    def __init__(self, job: EngineJob, grant: Grant, since: int) -> None:
        self.job = job
        self.grant = grant
        self.since = since


class IdealHost:
    """Implements Host; at most `max_running` requests run at a time.

    `skips_misfits`: a request that does not fit is skipped, instead of ending the scheduling pass.
    """

    def __init__(
        self,
        *,
        scheduler: FairQueue,
        memory: Reserve,
        max_running: int,
        skips_misfits: bool,
    ) -> None:
        self.scheduler = scheduler
        self.memory = memory
        self._max_running = max_running
        self._skips_misfits = skips_misfits
        self._waiting: dict[RequestId, EngineJob] = {}
        self._places: dict[EngineJob, _Place] = {}
        self._last: list[
            tuple[int, int, EngineJob]
        ] = []  # (its last pass, serial of admission, job)
        self._serial = 0
        self._passes = 0  # that have ended
        self._context = 0  # tokens in memory of all that run
        self._fresh: list[_Place] = []  # admitted in the pass under way, and cached when it ends
        # Running requests by client; what is in a Pass is never written to again.
        self._counts: dict[ClientId, int] = {}
        self._shown = False

    def fits_ever(self, request: Request) -> bool:
        """Whether prompt and max_tokens fit in an empty memory."""
        return self.memory.fits_ever(request)

    def enqueue(self, job: EngineJob) -> None:
        """See `Host.enqueue`."""
        self.scheduler.add(job.request)
        self._waiting[job.request.id] = job

    def begin_pass(self, now_us: int) -> Pass | None:
        """Admit who is next and fits, then compute one token for each that runs. O(admitted)."""
        places = self._places
        work = Pass.emitting(self._counts)
        work.context = self._context
        if self._waiting and len(places) < self._max_running:
            self._look(work, now_us)
        running = len(places)
        if not running:
            assert not self._waiting, "idle while someone waits"
            return None
        self._shown = True
        work.decodes = running - work.chunks
        work.full = running == self._max_running
        if not work.chunks:
            work.repeats = self._repeats() if work.full or not self._waiting else 1
        elif self.memory.shares and (work.full or not self._waiting):
            work.then = self._behind(work, running)
        return work

    def _behind(self, work: Pass, running: int) -> Pass | None:
        """The passes after one that admits, if there is no look before them and nobody finishes in it."""
        repeats = self._repeats() - 1
        if not repeats:
            return None
        then = Pass.emitting(work.counts)
        then.decodes = running
        then.context = self._context + running
        then.full = work.full
        then.repeats = repeats
        return then

    def end_pass(self, passes: int, now_us: int) -> Sequence[EngineJob]:
        """Each running job emitted one token a pass. O(finished * log running)."""
        if self._fresh:
            for place in self._fresh:
                place.grant = self.memory.prefilled(place.grant, place.job.request, now_us)
            self._fresh.clear()
        ended = self._passes = self._passes + passes
        self._context += passes * len(self._places)
        self.scheduler.tick(passes)
        last = self._last
        if not last or last[0][0] > ended:
            return ()
        finished: list[EngineJob] = []
        while last and last[0][0] <= ended:
            ends, _, job = heappop(last)
            if job in self._places:
                assert ends == ended, (ends, ended)
                if job.row.output is not None:
                    self._keep_output(job, job.row.output, now_us)
                self._leave(job)
                self.scheduler.finish(job.request)
                finished.append(job)
        return finished

    def cancel(self, job: EngineJob) -> None:
        """See `Host.cancel`."""
        if job in self._places:
            self._leave(job)
        else:
            del self._waiting[job.request.id]
        self.scheduler.cancel(job.request)

    def check(self) -> None:
        """Assert every invariant. O(tree + running)."""
        self.memory.check()
        places = self._places.values()
        assert sum(self._counts.values()) == len(places)
        emitted = sum(self._passes - place.since for place in places)
        assert self._context == emitted + sum(job.request.input_len for job in self._places)
        assert len(self._waiting) == len(self.scheduler)

    def _look(self, work: Pass, now_us: int) -> None:
        scheduler, memory, waiting = self.scheduler, self.memory, self._waiting
        admitted: list[AdmittedJob] = []
        evicted, rounds = memory.evicted, scheduler.refill_rounds
        scheduler.begin_pass()
        while waiting and len(self._places) < self._max_running:
            request = scheduler.propose()
            if request is None:
                break
            grant = memory.admit(request, now_us)
            if grant is not None:
                extend_len = grant.extend_len
                scheduler.admit(request, extend_len=extend_len)
                job = waiting.pop(request.id)
                admitted.append(AdmittedJob(job, extend_len))
                self._run(job, grant)
                work.extend_len += extend_len
                work.attention += extend_len * (2 * request.input_len - extend_len)
            elif self._skips_misfits:
                scheduler.skip(request)
            else:
                break
        if admitted:
            work.counts = self._counts
            work.admitted = admitted
            work.first = [each.job for each in admitted]
            work.chunks = len(admitted)
        work.evicted = memory.evicted - evicted
        work.refills = scheduler.refill_rounds - rounds

    def _run(self, job: EngineJob, grant: Grant) -> None:
        place = self._places[job] = _Place(job, grant, self._passes)
        if not self.memory.shares:
            self._fresh.append(place)
        self._serial += 1
        heappush(self._last, (self._passes + job.row.output_len, self._serial, job))
        self._context += job.request.input_len
        self._count(job.request.client, 1)

    def _leave(self, job: EngineJob) -> None:
        """It runs no more; its prompt stays cached until evicted."""
        place = self._places.pop(job)
        job.emitted = self._passes - place.since
        self.memory.release(place.grant)
        self._context -= job.request.input_len + job.emitted
        self._count(job.request.client, -1)

    def _keep_output(self, job: EngineJob, output: Runs, now_us: int) -> None:
        """What it emitted stays cached behind its prompt."""
        place = self._places[job]
        place.grant = self.memory.emitted(place.grant, job.row.prompt + output, now_us)

    def _count(self, client: ClientId, change: int) -> None:
        if self._shown:
            self._counts = self._counts.copy()
            self._shown = False
        count = self._counts.get(client, 0) + change
        if count:
            self._counts[client] = count
        else:
            del self._counts[client]

    def _repeats(self) -> int:
        """Return the passes until the first running request ends."""
        last = self._last
        while last[0][2] not in self._places:
            heappop(last)
        return last[0][0] - self._passes

"""The ideal engine of the theorems (DESIGN 6.3): every running request emits one token in each pass.

Prompts are prefilled whole, in the pass that admits them; admission reserves all memory that a request
may ever need, so no request is preempted. The cost of a simulated pass does not depend on the number
of running requests: counts are updated when one starts or ends.

While memory is short, most scheduling passes admit nothing. `_futile_passes` computes how many in a row:
they are one run of passes, with the same events as one by one.
"""

from collections.abc import Collection, Sequence
from heapq import heappop, heappush

from fairhit.core.cache.token_runs import Runs
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.core.service import TokenCost
from fairhit.policies.dlpm import DLPM
from fairhit.policies.drr import DRR
from fairhit.policies.fcfs import FCFS
from fairhit.policies.lpm import LPM
from fairhit.policies.vtc import VTC
from fairhit_lab.sim.engines.interface import AdmittedJob, EngineJob, Pass
from fairhit_lab.sim.memory.admission import Grant, Reserve

_FOREVER = 1 << 62  # passes


class _RunningJob:
    """A running job: its memory, and how many passes had ended when it was admitted."""

    __slots__ = ("grant", "job", "since")

    def __init__(self, job: EngineJob, grant: Grant, since: int) -> None:
        self.job = job
        self.grant = grant
        self.since = since


class IdealHost:
    """Implements `SimulatedEngine`; at most `max_running` requests run at a time.

    `skips_unfitting`: a request that does not fit is skipped, instead of ending the scheduling pass.
    """

    def __init__(
        self,
        *,
        scheduler: FairQueue,
        memory: Reserve,
        max_running: int,
        skips_unfitting: bool,
    ) -> None:
        self.scheduler = scheduler
        self.memory = memory
        self._max_running = max_running
        self._skips_unfitting = skips_unfitting
        self._waiting: dict[RequestId, EngineJob] = {}
        self._running: dict[EngineJob, _RunningJob] = {}
        self._last: list[tuple[int, int, EngineJob]] = []  # (last pass, serial of admission, job)
        self._serial = 0
        self._passes = 0  # that have ended
        self._context = 0  # tokens in memory of all that run
        self._fresh: list[
            _RunningJob
        ] = []  # admitted in the pass under way, and cached when it ends
        # Running requests by client; copied before a change if a Pass refers to it.
        self._counts: dict[ClientId, int] = {}
        self._shown = False

    @property
    def free_len(self) -> int:
        """Tokens of memory that the running requests leave. O(1)."""
        return self.memory.available

    def fits_ever(self, request: Request) -> bool:
        """Return whether prompt and max_tokens fit in an empty memory."""
        return self.memory.fits_ever(request)

    def enqueue(self, job: EngineJob) -> None:
        """See `SimulatedEngine.enqueue`."""
        self.scheduler.add(job.request)
        self._waiting[job.request.id] = job

    def begin_pass(self, now_us: int) -> Pass | None:
        """Admit requests while they fit, then compute a token for each running one. O(admitted)."""
        jobs = self._running
        work = Pass.emitting(self._counts)
        work.context = self._context
        futile = _FOREVER  # scheduling passes, this one included, that admit nothing
        if self._waiting and len(jobs) < self._max_running:
            futile = self._schedule(work, now_us)
        running = len(jobs)
        if not running:
            assert not self._waiting, "idle while requests wait"
            return None
        self._shown = True
        work.decodes = running - work.chunks
        work.full = running == self._max_running
        if not work.chunks:
            work.repeats = min(self._repeats(), futile)
        elif self.memory.shares and (work.full or not self._waiting):
            work.then = self._behind(work, running)
        return work

    def _behind(self, work: Pass, running: int) -> Pass | None:
        """Return the like passes behind one that admits, if no request finishes in that one."""
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
        """End passes in which every running job emitted a token. O(finished * log running)."""
        if self._fresh:
            for entry in self._fresh:
                entry.grant = self.memory.prefilled(entry.grant, entry.job.request, now_us)
            self._fresh.clear()
        ended = self._passes = self._passes + passes
        self._context += passes * len(self._running)
        self.scheduler.tick(passes)
        last = self._last
        if not last or last[0][0] > ended:
            return ()
        finished: list[EngineJob] = []
        while last and last[0][0] <= ended:
            ends, _, job = heappop(last)
            if job in self._running:
                assert ends == ended, (ends, ended)
                if job.row.output is not None:
                    self._keep_output(job, job.row.output, now_us)
                self._leave(job)
                self.scheduler.finish(job.request)
                finished.append(job)
        return finished

    def cancel(self, job: EngineJob) -> None:
        """See `SimulatedEngine.cancel`."""
        if job in self._running:
            self._leave(job)
        else:
            del self._waiting[job.request.id]
        self.scheduler.cancel(job.request)

    def check(self) -> None:
        """Assert every invariant. O(tree + running)."""
        self.memory.check()
        jobs = self._running.values()
        assert sum(self._counts.values()) == len(jobs)
        emitted = sum(self._passes - entry.since for entry in jobs)
        assert self._context == emitted + sum(job.request.input_len for job in self._running)
        assert len(self._waiting) == len(self.scheduler)

    def _schedule(self, work: Pass, now_us: int) -> int:
        """Admit requests; return `_futile_passes`, 1 if some were admitted."""
        scheduler, memory, waiting = self.scheduler, self.memory, self._waiting
        admitted: list[AdmittedJob] = []
        refused: dict[ClientId, None] = {}
        truncated = scheduler.truncated_passes
        evicted, rounds = memory.evicted, scheduler.refill_rounds
        scheduler.begin_pass()
        while waiting and len(self._running) < self._max_running:
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
                continue
            refused[request.client] = None
            if not self._skips_unfitting:
                break
            scheduler.skip(request)
        if admitted:
            work.counts = self._counts
            work.admitted = admitted
            work.first = [each.job for each in admitted]
            work.chunks = len(admitted)
        work.evicted = memory.evicted - evicted
        work.refills = scheduler.refill_rounds - rounds
        if admitted or scheduler.truncated_passes > truncated:
            return 1
        return self._futile_passes(refused)

    def _futile_passes(self, refused: Collection[ClientId]) -> int:
        """Return how many passes, the last one included, admit nothing if no request arrives or ends.

        The last pass tried requests of the clients `refused`, and none fitted. An output costs only its
        own client precedence. So while one of these clients has credit, nothing is refilled and no other
        client is tried. DRR also remembers which client was tried last: there all of them must have
        credit. Without skips VTC tries its first client alone. O(clients refused).
        """
        policy = self.scheduler.policy
        if isinstance(policy, FCFS | LPM):
            return _FOREVER
        if isinstance(policy, DLPM):
            return max([self._passes_in_credit(client, policy) for client in refused], default=1)
        if isinstance(policy, DRR):
            return min([self._passes_in_credit(client, policy) for client in refused], default=1)
        if isinstance(policy, VTC) and any(client not in self._counts for client in refused):
            return _FOREVER
        return 1

    def _passes_in_credit(self, client: ClientId, policy: DLPM | DRR) -> int:
        """Return in how many passes, the last one included, the client has q_i > 0."""
        running = self._counts.get(client, 0)
        if not running:
            return _FOREVER
        if not isinstance(policy.cost.current, TokenCost):
            return 1
        spent = running * policy.cost.outputs(1, 0, 1)
        return -(-policy.ledger.value(client) // spent) if spent else _FOREVER

    def _run(self, job: EngineJob, grant: Grant) -> None:
        entry = self._running[job] = _RunningJob(job, grant, self._passes)
        if not self.memory.shares:
            self._fresh.append(entry)
        self._serial += 1
        heappush(self._last, (self._passes + job.row.output_len, self._serial, job))
        self._context += job.request.input_len
        self._count(job.request.client, 1)

    def _leave(self, job: EngineJob) -> None:
        """Release a running job's memory; its prompt stays cached until evicted."""
        entry = self._running.pop(job)
        job.emitted = self._passes - entry.since
        self.memory.release(entry.grant)
        self._context -= job.request.input_len + job.emitted
        self._count(job.request.client, -1)

    def _keep_output(self, job: EngineJob, output: Runs, now_us: int) -> None:
        """Cache what the job emitted behind its prompt."""
        entry = self._running[job]
        entry.grant = self.memory.emitted(entry.grant, job.row.prompt + output, now_us)

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
        while last[0][2] not in self._running:
            heappop(last)
        return last[0][0] - self._passes

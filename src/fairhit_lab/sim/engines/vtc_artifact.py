"""The engine of the VTC paper's artifact: LightLLM's loop of 2023, without a prefix cache.

Prompts are prefilled whole, in passes of their own between those that decode. Such a pass is tried
when nothing runs, or ten decode passes after the last one and then before every pass until one
results. Memory is reserved for the worst case, with every output at its declared length, so no
request is preempted; a request that does not fit ends the scheduling pass.

The loop reads an arrival only after the forward pass under way *and* the scheduling pass behind it:
the message waits in the socket while the thread computes.
"""

from bisect import insort
from collections.abc import Sequence
from contextlib import suppress
from heapq import heappop, heappush

from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import ClientId, Request, RequestId
from fairhit.errors import QueueFull
from fairhit_lab.sim.engines.interface import AdmittedJob, EngineJob, Pass

# The artifact's defaults (its api_server.py): decode passes between scheduling passes, the least prefill
# budget, the share of the pool that is a larger one, requests that run at a time.
WAIT_PASSES = 10
LEAST_BUDGET = 2048 + 1024
BUDGET_SHARE = 6
MAX_RUNNING = 1000
# Every client is a LoRA adapter of rank 8, for which 4 tokens a rank are reserved while it runs.
ADAPTER_TOKENS = 32


class WorstCase:
    """The artifact's test: do all requests fit at once at every future step?

    max over k of (remaining_k * k + used_1 + ... + used_k) < pool, longest remaining first. Counted
    in decode steps from the start, each term stays as it is while requests run: `ends` is the step
    of the last output, `used` the tokens in memory at step 0.
    """

    def __init__(self, pool: int) -> None:
        self.pool = pool
        self._running: list[tuple[int, int, int]] = []  # (-ends, serial, used), by that
        self._places: dict[RequestId, tuple[int, int, int]] = {}
        self._serial = 0
        self._clients: dict[ClientId, int] = {}
        # (input, max_tokens) of the smallest request tested, and the first step at which it may fit.
        self._hopeless: tuple[int, int, int] | None = None

    def fits_ever(self, request: Request) -> bool:
        """Return whether the request could run alone."""
        return request.input_len + request.max_tokens < self.pool - ADAPTER_TOKENS

    def fits(self, request: Request, step: int, found: Sequence[Request]) -> bool:
        """Return whether the request fits at `step`, beside those found in this pass. O(running)."""
        sizes = [(each.input_len, each.max_tokens) for each in [*found, request]]
        clients = {*self._clients, request.client, *(each.client for each in found)}
        return self._need(sizes, step) < self.pool - ADAPTER_TOKENS * len(clients)

    def may_fit_at(self, input_len: int, max_tokens: int, step: int) -> int:
        """Return the step before which no request of that size or larger fits, if the batch stays.

        Each step of waiting takes one token off its need at any later step, and no more. O(1) after
        the first call.
        """
        if self._hopeless is None or self._hopeless[:2] != (input_len, max_tokens):
            need = self._need([(input_len, max_tokens)], step)
            beyond = need - (self.pool - ADAPTER_TOKENS * len(self._clients))
            self._hopeless = (input_len, max_tokens, step + max(0, beyond + 1))
        return max(step, self._hopeless[2])

    def _need(self, sizes: Sequence[tuple[int, int]], step: int) -> int:
        """Return the most tokens in memory if requests of these sizes join at `step`."""
        entries = self._running.copy()
        for place, (input_len, max_tokens) in enumerate(sizes):
            insort(entries, (-(step + max_tokens), self._serial + place, input_len + 1 - step))
        used = need = 0
        for k, (ends, _, tokens) in enumerate(entries, 1):
            used += tokens
            # Of `remaining` = ends - step - 1 and the step's own tokens, the step cancels out.
            need = max(need, (-ends - 1) * k + used)
        return need

    def join(self, request: Request, step: int) -> None:
        """Add a request whose first output is emitted at `step`. O(running)."""
        entry = (-(step + request.max_tokens - 1), self._serial, request.input_len + 1 - step)
        self._serial += 1
        insort(self._running, entry)
        self._places[request.id] = entry
        self._clients[request.client] = self._clients.get(request.client, 0) + 1
        self._hopeless = None

    def leave(self, request: Request) -> None:
        """Remove a request. O(running)."""
        self._running.remove(self._places.pop(request.id))
        self._clients[request.client] -= 1
        if not self._clients[request.client]:
            del self._clients[request.client]
        self._hopeless = None


class ArtifactHost:
    """Implements `SimulatedEngine`. `pool` is M; at most `max_running` requests run at a time."""

    def __init__(self, *, scheduler: FairQueue, pool: int, max_running: int = MAX_RUNNING) -> None:
        self.scheduler = scheduler
        self._memory = WorstCase(pool)
        self._budget = max(pool // BUDGET_SHARE, LEAST_BUDGET)
        self._max_running = max_running
        self._unread: dict[RequestId, EngineJob] = {}  # arrived, and not read by the loop yet
        self._waiting: dict[RequestId, EngineJob] = {}
        self._least = (0, 0)  # no waiting request has fewer input tokens, or fewer max_tokens
        self._running: dict[EngineJob, int] = {}  # and its last step
        self._prefilling: list[EngineJob] = []
        self._last: list[tuple[int, int, EngineJob]] = []  # (last step, order, job)
        self._step = 0  # decode passes that have ended
        self._decoded = 0  # of those, since the last prefill
        self._context = 0  # tokens in memory of all that run
        self._counts: dict[ClientId, int] = {}  # running requests by client

    def fits_ever(self, request: Request) -> bool:
        """Return whether the prompt is within a prefill's budget and the request fits in an empty memory."""
        return request.input_len <= self._budget and self._memory.fits_ever(request)

    def enqueue(self, job: EngineJob) -> None:
        """See `SimulatedEngine.enqueue`."""
        self._unread[job.request.id] = job

    def begin_pass(self, now_us: int) -> Pass | None:
        """Prefill requests that fit, or decode. O(running * tried) for a scheduling pass, else O(1)."""
        if not self._running:
            self._read()
        found = self._schedule() if self._is_due() else []
        self._read()
        if found:
            self._decoded = 0
            return self._prefill(found)
        if not self._running:
            assert not self._waiting, "idle while requests wait"
            return None
        return Pass(
            decodes=len(self._running),
            context=self._context,
            counts=self._counts.copy(),
            repeats=self._repeats(),
        )

    def end_pass(self, passes: int, now_us: int) -> Sequence[EngineJob]:
        """Emit first tokens after a prefill, one more of each running job after another pass. O(ended)."""
        if self._prefilling:
            self._join()
        else:
            self._step += passes
            self._decoded += passes
            self._context += passes * len(self._running)
            self.scheduler.tick(passes)
        finished: list[EngineJob] = []
        while self._last and self._last[0][0] <= self._step:
            _, _, job = heappop(self._last)
            if job in self._running:
                self._leave(job)
                self.scheduler.finish(job.request)
                finished.append(job)
        return finished

    def cancel(self, job: EngineJob) -> None:
        """See `SimulatedEngine.cancel`."""
        if self._unread.pop(job.request.id, None):
            return
        if job in self._running:
            self._leave(job)
        else:
            del self._waiting[job.request.id]
        self.scheduler.cancel(job.request)

    def check(self) -> None:
        """Assert every invariant. O(running)."""
        lengths = [
            job.request.input_len + job.row.output_len - (last - self._step)
            for job, last in self._running.items()
        ]
        assert self._context == sum(lengths), (self._context, lengths)
        assert self._context < self._memory.pool, self._context
        assert sum(self._counts.values()) == len(self._running) <= self._max_running
        assert len(self.scheduler) == len(self._waiting), "waiting jobs and the queue differ"

    def _read(self) -> None:
        """Queue the requests that arrived; one whose client finds the policy's table full is tried later."""
        for job in list(self._unread.values()):
            request = job.request
            with suppress(QueueFull):
                self.scheduler.add(request)
                size = (request.input_len, request.max_tokens)
                least = self._least if self._waiting else size
                self._least = (min(least[0], size[0]), min(least[1], size[1]))
                self._waiting[request.id] = self._unread.pop(request.id)

    def _is_due(self) -> bool:
        """Return whether a scheduling pass is due; not if no request can fit: it costs O(running) charges."""
        if not self._waiting:
            return False
        if not self._running:
            return True
        if self._decoded < WAIT_PASSES:
            return False
        return self._memory.may_fit_at(*self._least, self._step) == self._step

    def _schedule(self) -> list[EngineJob]:
        """Return the next minibatch, maybe empty; a request beyond memory or budget ends it."""
        found: list[EngineJob] = []
        requests: list[Request] = []
        tokens = 0
        self.scheduler.begin_pass()
        while len(self._running) + len(found) < self._max_running:
            request = self.scheduler.propose()
            if request is None or tokens + request.input_len > self._budget:
                break
            if not self._memory.fits(request, self._step, requests):
                break
            self.scheduler.admit(request, extend_len=request.input_len)
            found.append(self._waiting.pop(request.id))
            requests.append(request)
            tokens += request.input_len
        return found

    def _prefill(self, found: list[EngineJob]) -> Pass:
        self._prefilling = found
        lengths = [job.request.input_len for job in found]
        counts: dict[ClientId, int] = {}
        for job in found:
            counts[job.request.client] = counts.get(job.request.client, 0) + 1
        return Pass(
            admitted=[AdmittedJob(job, job.request.input_len) for job in found],
            first=found,
            chunks=len(found),
            extend_len=sum(lengths),
            attention=sum(length * length for length in lengths),
            counts=counts,
        )

    def _join(self) -> None:
        """Emit the first output of each prefilled request, which runs from here on."""
        for job in self._prefilling:
            request = job.request
            self.scheduler.decode(request, 1)
            self._memory.join(request, self._step)
            last = self._running[job] = self._step + job.row.output_len - 1
            heappush(self._last, (last, request.order, job))
            self._context += request.input_len + 1
            self._counts[request.client] = self._counts.get(request.client, 0) + 1
        self._prefilling = []

    def _leave(self, job: EngineJob) -> None:
        """Remove a running job and its memory."""
        request = job.request
        job.emitted = job.row.output_len - (self._running.pop(job) - self._step)
        self._memory.leave(request)
        self._context -= request.input_len + job.emitted
        self._counts[request.client] -= 1
        if not self._counts[request.client]:
            del self._counts[request.client]

    def _repeats(self) -> int:
        """Return the passes until the first job ends, or a scheduling pass could admit a request."""
        while self._last[0][2] not in self._running:
            heappop(self._last)
        passes = self._last[0][0] - self._step
        if self._waiting:
            hopeless = self._memory.may_fit_at(*self._least, self._step) - self._step
            passes = min(passes, max(1, WAIT_PASSES - self._decoded, hopeless))
        return passes

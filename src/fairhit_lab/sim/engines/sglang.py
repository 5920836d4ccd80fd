"""The host profile `sglang`: a radix tree, prefill batches of their own, admission by estimate.

    prefill first   admitted requests are prefilled in a batch of their own, while the others wait;
                    a prompt above the chunk size goes on in the next batch, ahead of all others
    estimate        a request fits if its uncached prompt and what it may emit (at most 4,096) are less
                    than what is free or evictable, less a share of what the running ones may emit
    does not fit    ends the pass; without memory there is no other pass until a request ends
    decode          one token for each; when memory runs out, requests are retracted: by the plug-in's
                    rule (`FairQueue.victim`) or by SGLang's own, the fewest emitted tokens first
    followers       wait while a prefill computes 32 or more tokens that they want (DESIGN 3.2)

Left out: pages above 1, mixed chunks, overlap, priorities, and LPM's fallback. docs/reference/hosts.md.
"""

from collections.abc import Sequence

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.cache.token_runs import Runs
from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import ClientId, Request, RequestId
from fairhit_lab.sim.engines.interface import AdmittedJob, EngineJob, Pass
from fairhit_lab.sim.engines.prefill_budget import CLIP, PrefillBudget, TokenRatio, TokenSequence
from fairhit_lab.sim.memory.token_pool import TokenPool

# Tokens a follower must save by waiting; SGLang's IN_BATCH_PREFIX_CACHING thresholds.
MIN_FOLLOW = 32
# Passes for which a follower is blocked, and requests blocked in a pass, at most: no request may starve
# as a follower, and no pass may cost O(waiting).
MAX_BLOCKED_PASSES = 8
MAX_BLOCKED_PER_PASS = 64


class SglangHost:
    """An SGLang engine: `scheduler` over `pool`, whose tree the policy follows.

    `chunk_len` (2,048 below 35 GiB of GPU memory, else 8,192) and `max_prefill_tokens` are SGLang's
    settings. `fair_retraction`: the plug-in's choice of victims, else SGLang's own.
    """

    def __init__(
        self,
        scheduler: FairQueue,
        pool: TokenPool,
        *,
        max_running: int = 1024,
        chunk_len: int = 8192,
        max_prefill_tokens: int = 16384,
        conservativeness: float = 1.0,
        fair_retraction: bool = True,
    ) -> None:
        assert min(max_running, chunk_len, max_prefill_tokens) >= 1
        self.scheduler, self._pool, self._tree = scheduler, pool, pool.tree
        self._slots = max_running
        self._chunk_len, self._max_inputs = chunk_len, max_prefill_tokens
        self._fair = fair_retraction
        self._ratio = TokenRatio(conservativeness=conservativeness)
        self._known: dict[RequestId, TokenSequence] = {}
        self._running: list[TokenSequence] = []  # past their prompts
        self._batch: list[TokenSequence] = []  # prefilled in the pass under way
        self._chunked: TokenSequence | None = None  # the one whose prompt is not complete yet
        self._blocked: list[TokenSequence] = []
        self._is_full = False  # no scheduling pass until a request ends
        self._admissions = 0
        self._now_us = 0
        self._ready = 0  # decode passes under way that have their memory

    # -- calls of the replica ------------------------------------------------------------------

    @property
    def free_len(self) -> int:
        """Tokens of memory that the running requests leave. O(1)."""
        return self._pool.available

    def fits_ever(self, request: Request) -> bool:
        """Return whether the request could run alone; SGLang keeps a page, here one token, for itself."""
        return request.input_len + request.max_tokens + 1 < self._pool.capacity

    def enqueue(self, job: EngineJob) -> None:
        """Queue the job. Raises QueueFull."""
        self.scheduler.add(job.request)
        self._known[job.request.id] = TokenSequence(job)

    def begin_pass(self, now_us: int) -> Pass | None:
        """Return a prefill batch if a request can be admitted, else a decode pass. O(running + admitted)."""
        self._now_us = now_us
        evicted, rounds = self._pool.evicted, self.scheduler.refill_rounds
        self.scheduler.begin_pass()
        for sequence in self._blocked:
            self.scheduler.unblock(sequence.request)
        self._blocked.clear()
        if not self._running:
            self._is_full = False
            if not self._chunked:
                self._ratio.reset()
        admitted = self._prefill()
        if self._batch:
            work = _prefill_work(self._batch)
            work.admitted = admitted
        elif self._running:
            work = self._decode()
        else:
            assert not len(self.scheduler), "idle while requests wait"
            return None
        work.evicted = self._pool.evicted - evicted
        work.refills = self.scheduler.refill_rounds - rounds
        work.full = self._is_full
        return work

    def end_pass(self, passes: int, now_us: int) -> Sequence[EngineJob]:
        """Insert what was prefilled into the tree, or emit `passes` tokens of each running request."""
        self._now_us = now_us
        if self._batch:
            assert passes == 1
            emitting = self._end_prefill()
        else:
            emitting = self._running
            more, self._ready = passes - self._ready, 0
            self._pool.take(more * len(emitting))
            self._ratio.sink(more)
            self.scheduler.count_passes(more)
            for sequence in emitting:
                sequence.computed += passes
        over: list[TokenSequence] = []
        for sequence in emitting:
            sequence.job.emitted += passes
            self.scheduler.decode(sequence.request, passes)
            if not sequence.job.left:
                over.append(sequence)
        for sequence in over:
            self._leave(sequence)
            self.scheduler.finish(sequence.request)
        return [sequence.job for sequence in sorted(over, key=lambda s: s.number)]

    def cancel(self, job: EngineJob) -> None:
        """Remove a job in whatever state; what was computed stays cached."""
        sequence = self._known[job.request.id]
        self.scheduler.cancel(sequence.request)
        if sequence in self._blocked:
            self._blocked.remove(sequence)
        self._leave(sequence)

    def check(self) -> None:
        """Assert that memory holds the tree and what the running requests have besides. O(tree)."""
        self._tree.check()
        own = 0
        for sequence in self._known.values():
            runs = sequence in self._running or sequence in self._batch
            assert (sequence.path is not None) == (runs or sequence is self._chunked)
            if sequence.path:  # a prompt that is cached as a whole computes its last token again
                own += max(0, sequence.computed - sequence.path.length)
        own += sum(sequence.planned for sequence in self._batch)
        own += self._ready * len(self._running)
        assert own == self._pool.own, (own, self._pool.own)
        assert self._pool.free >= 0
        pinned = any(sequence.path for sequence in self._known.values())
        assert pinned or not self._tree.pinned

    # -- prefill --------------------------------------------------------------------------------

    def _prefill(self) -> list[AdmittedJob]:
        """Fill a batch: the chunk that goes on, then the scheduler's choices while they fit."""
        budget = PrefillBudget(
            inputs=self._max_inputs,
            chunk=self._chunk_len,
            promised=self._ratio.of(sequence.left for sequence in self._running),
        )
        going_on, self._chunked = self._chunked, None
        if going_on:
            self._plan(budget, going_on)
        admitted = self._admit_waiting(budget) if len(self.scheduler) else []
        self._batch = budget.batch
        self._pool.take(budget.now)
        return admitted

    def _plan(self, budget: PrefillBudget, sequence: TokenSequence) -> None:
        """Add as much of a prompt as the chunk holds; the rest is computed in the next batches."""
        missing = sequence.length - sequence.computed
        budget.add(sequence, min(missing, budget.chunk))
        if sequence.planned < missing:
            self._chunked = sequence

    def _admit_waiting(self, budget: PrefillBudget) -> list[AdmittedJob]:
        """Admit until a request does not fit. O(log waiting + prompt) for each that is tried."""
        admitted: list[AdmittedJob] = []
        wave = RadixTree()  # what this batch computes
        for sequence in budget.batch:
            _enter(wave, sequence.job.row.prompt)
        held = 0
        while not self._is_full:
            if len(self._running) + len(budget.batch) >= self._slots:
                self._is_full = True
                break
            if self._pool.available <= max(budget.promised, budget.now):
                self._is_full = True
                break
            if min(budget.inputs, budget.chunk) <= 0:
                break
            if (request := self.scheduler.propose()) is None:
                break
            sequence = self._known[request.id]
            if self._follows(sequence, wave):
                self._hold(sequence)
                held += 1
                if held == MAX_BLOCKED_PER_PASS:
                    break
                continue
            extend_len = self._try(budget, sequence)
            if not extend_len:
                break
            admitted.append(AdmittedJob(sequence.job, extend_len, sequence.is_again))
            _enter(wave, sequence.job.row.prompt)
        return admitted

    def _follows(self, sequence: TokenSequence, wave: RadixTree) -> bool:
        """Return whether the batch computes enough of the request's prefix, within the bound on blocking."""
        if sequence.is_again or sequence.held >= MAX_BLOCKED_PASSES or not wave.size:
            return False
        prompt = sequence.job.row.prompt
        return wave.match_len(prompt) - self._tree.match_len(prompt) >= MIN_FOLLOW

    def _hold(self, sequence: TokenSequence) -> None:
        sequence.held += 1
        self.scheduler.block(sequence.request)
        self._blocked.append(sequence)

    def _try(self, budget: PrefillBudget, sequence: TokenSequence) -> int:
        """Admit the request if it fits; return the tokens to compute, 0 if it does not fit."""
        tree, length = self._tree, sequence.length
        match = tree.match(sequence.tokens[:length])
        cached_len = min(match[1], length - 1)  # the last token is computed for what comes next
        extend_len = length - cached_len
        # Its own prefix does not count as evictable any more.
        room = self._pool.available - budget.promised - (match[1] - tree.pinned_len(match))
        if extend_len + min(sequence.left, CLIP) + 1 >= room:
            self._is_full = True
            return 0
        if extend_len >= budget.inputs and budget.batch:
            return 0
        sequence.path = tree.pin(match, self._now_us)
        sequence.computed = cached_len
        sequence.number = self._admissions = self._admissions + 1
        self.scheduler.admit(sequence.request, extend_len=extend_len)
        self._plan(budget, sequence)
        return extend_len

    def _end_prefill(self) -> list[TokenSequence]:
        """Insert the computed batch into the tree; return the requests whose prompts are complete."""
        through = []
        for sequence in self._batch:
            assert sequence.path is not None
            end = sequence.computed = sequence.computed + sequence.planned
            self._pool.give(sequence.planned)
            sequence.planned = 0
            if end > sequence.path.length:
                sequence.path = self._tree.insert(sequence.path, sequence.tokens, self._now_us, end)
            if end == sequence.length:
                through.append(sequence)
        self._batch = []
        self._running += through
        return through

    # -- decode ---------------------------------------------------------------------------------

    def _decode(self) -> Pass:
        """Plan a token for each running request, after the retractions that memory needs. O(running)."""
        retracted: list[EngineJob] = []
        while len(self._running) > self._pool.available:
            assert len(self._running) > 1, "a request alone always fits"
            retracted.append(self._retract())
        if retracted:
            self._is_full = False
            self._ratio.retracted(
                emitted=sum(sequence.job.emitted for sequence in self._running),
                requests=len(self._running),
                max_tokens=sum(sequence.request.max_tokens for sequence in self._running),
            )
        else:
            self._ratio.sink(1)
        self._pool.take(len(self._running))
        self._ready = 1
        counts: dict[ClientId, int] = {}
        for sequence in self._running:
            counts[sequence.request.client] = counts.get(sequence.request.client, 0) + 1
        return Pass(
            preempted=retracted,
            decodes=len(self._running),
            context=sum(sequence.length for sequence in self._running),
            counts=counts,
            repeats=self._repeats(),
        )

    def _repeats(self) -> int:
        """Return how many such passes may follow each other: no scheduling pass, no end, no eviction."""
        if len(self.scheduler) and not self._is_full:
            return 1
        until_finish = min(sequence.job.left for sequence in self._running)
        return min(until_finish, 1 + self._pool.free // len(self._running))

    def _retract(self) -> EngineJob:
        """Retract a request: its outputs are dropped, its prompt stays cached until evicted."""
        sequence = self._victim()
        self._running.remove(sequence)
        assert sequence.path is not None
        self._pool.give(sequence.computed - sequence.path.length)
        self._tree.release(sequence.path)
        sequence.path, sequence.computed, sequence.is_again = None, 0, True
        self.scheduler.preempt(sequence.request)
        return sequence.job

    def _victim(self) -> TokenSequence:
        if not self._fair:
            return min(self._running, key=lambda s: (s.job.emitted, -s.request.input_len, s.number))
        chosen = self.scheduler.victim([sequence.request for sequence in self._running])
        return self._known[chosen.id] if chosen else self._running[-1]

    def _leave(self, sequence: TokenSequence) -> None:
        """End a request. What it computed stays cached, if anything of it is in memory."""
        del self._known[sequence.request.id]
        if sequence.path is None:
            return
        own = sequence.computed - sequence.path.length
        if own > 0:
            self._pool.give(own)
            sequence.path = self._tree.insert(
                sequence.path, sequence.tokens, self._now_us, sequence.computed
            )
        self._tree.release(sequence.path)
        if sequence is self._chunked:
            self._chunked = None
        if sequence in self._running:
            self._running.remove(sequence)
        self._is_full = False


def _enter(wave: RadixTree, prompt: Runs) -> None:
    wave.insert(wave.acquire(prompt, 0), prompt, 0)


def _prefill_work(batch: Sequence[TokenSequence]) -> Pass:
    """Return the pass with the work and the outputs of the batch. O(batch)."""
    counts: dict[ClientId, int] = {}
    work = Pass(counts=counts, chunks=len(batch))
    for sequence in batch:
        q, c = sequence.planned, sequence.computed
        work.extend_len += q
        work.attention += q * (2 * c + q)
        if c + q == sequence.length:
            counts[sequence.request.client] = counts.get(sequence.request.client, 0) + 1
    work.first = [s.job for s in batch if s.computed + s.planned == s.length and not s.job.emitted]
    return work

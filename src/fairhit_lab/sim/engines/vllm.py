"""The host profile `vllm`: what vLLM 0.32 with our plug-in does with a queue, a budget and a block pool.

    running first   each takes its next tokens from the step's token budget, in order of admission
    blocks run out  the last running request is preempted until the others fit; the plug-in orders
                    them so that the last is the newest of the client with the least credit
    waiting next    unless a request was preempted: the policy's choice, if its whole prompt fits; its
                    first chunk is the rest of the budget. The first that does not fit ends the pass
    preempted       requests are proposed first, recomputed from what is still cached, charged nothing

Left out: several KV groups, LoRA, grammars, speculative decoding, remote KV, running ahead of the
outputs, and `long_prefill_token_threshold` (0 by default). docs/reference/hosts.md.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import ClientId, Request, RequestId
from fairhit_lab.sim.engines.interface import AdmittedJob, EngineJob, Pass
from fairhit_lab.sim.memory.block_hashes import BlockHashes, known_len, tokens_of
from fairhit_lab.sim.memory.block_pool import BlockPool
from fairhit_lab.sim.memory.block_tree import BlockTree

# As in the plug-in: more are hardly ever preempted in a step, and each choice is O(running).
MAX_VICTIMS = 4


class _Sequence:
    """A job at this host, and its blocks in memory. Lengths are in tokens."""

    __slots__ = (
        "blocks", "client", "computed", "hashes", "input_len", "is_again", "job", "length", "most",
        "named", "number", "planned", "request",
    )  # fmt: skip

    def __init__(self, job: EngineJob, request: Request, hashes: BlockHashes) -> None:
        self.job, self.request, self.hashes = job, request, hashes
        self.client, self.input_len = request.client, request.input_len
        self.length = request.input_len  # its prompt and what it has emitted
        self.most = request.input_len + job.row.output_len
        self.number = -1  # in the order of admission
        self.is_again = False  # whether it was preempted before
        self.empty()

    def empty(self) -> None:
        """Reset to a job without blocks in memory."""
        self.blocks: list[int] = []
        self.computed = 0
        self.named = 0  # blocks of it that have their hash
        self.planned = 0  # tokens computed in this pass


class VllmHost:
    """A vLLM engine: `scheduler` over `pool`, whose cache the policy follows.

    `max_num_seqs`, `max_num_batched_tokens` and `watermark` (a share of the blocks kept free at
    admissions while something runs) are vLLM's own settings. `picks_victims` is off for policies
    without credit, under which the newest request is preempted. `mirror` follows the pool for a router.
    """

    def __init__(
        self,
        scheduler: FairQueue,
        pool: BlockPool,
        *,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 8192,
        watermark: float = 0.0,
        picks_victims: bool = True,
        mirror: BlockTree | None = None,
    ) -> None:
        assert max_num_seqs >= 1 and max_num_batched_tokens >= 1 and 0 <= watermark < 1
        self.scheduler, self._pool = scheduler, pool
        self._slots, self._budget = max_num_seqs, max_num_batched_tokens
        # vLLM counts the one block, too, that it keeps for itself.
        self._watermark = int(watermark * (pool.blocks + 1))
        self._picks_victims = picks_victims
        self._mirror = mirror
        self._known: dict[RequestId, _Sequence] = {}
        self._running: list[_Sequence] = []
        self._admissions = 0
        self._ready = 0  # passes under way whose blocks are there: 1 until the first of them ends

    # -- calls of the replica ------------------------------------------------------------------

    @property
    def free_len(self) -> int:
        """Tokens of memory that the running requests leave. O(1)."""
        return self._pool.free * self._pool.block_size

    def fits_ever(self, request: Request) -> bool:
        """Return whether the request could run alone here; if not, it is rejected on arrival."""
        return request.input_len + request.max_tokens <= self._pool.blocks * self._pool.block_size

    def enqueue(self, job: EngineJob) -> None:
        """Queue the job, known to the policy by the hashes of its blocks. Raises QueueFull."""
        size = self._pool.block_size
        hashes = BlockHashes(tokens_of(job.row), block_size=size)
        # The last prompt token is always computed, so the block it is in is never a hit.
        prompt = hashes.first((job.request.input_len - 1) // size)
        request = replace(job.request, prompt=prompt)
        self.scheduler.add(request)
        self._known[request.id] = _Sequence(job, request, hashes)

    def begin_pass(self, now_us: int) -> Pass | None:
        """Plan a step. O(running + what is admitted)."""
        evicted, refills = self._pool.evicted, self.scheduler.refill_rounds
        self.scheduler.begin_pass()
        if self._picks_victims:
            self._order_victims()
        preempted, budget = self._plan_running()
        admitted = [] if preempted else list(self._admit(budget))
        planned = [sequence for sequence in self._running if sequence.planned]
        if not planned:
            assert not self._running, "requests run, and nothing is computed"
            return None
        work = _work(planned)
        work.admitted = admitted
        work.preempted = [sequence.job for sequence in preempted]
        work.evicted = (self._pool.evicted - evicted) * self._pool.block_size
        work.refills = self.scheduler.refill_rounds - refills
        work.full = len(self._running) >= self._slots
        work.repeats = self._repeats(work)
        self._ready = 1
        return work

    def end_pass(self, passes: int, now_us: int) -> Sequence[EngineJob]:
        """Emit `passes` tokens of each request past its prompt; remove those that emitted their last."""
        if passes > self._ready:
            self._go_on(passes)
        self._ready = 0
        emitting: list[_Sequence] = []
        over: list[_Sequence] = []
        for sequence in self._running:
            sequence.computed += sequence.planned
            if sequence.computed == sequence.length:
                sequence.computed += passes - 1
                sequence.length += passes
                emitting.append(sequence)
                if sequence.length == sequence.most:
                    over.append(sequence)
        self._charge(emitting, passes)
        for sequence in over:  # in the order of the batch, as their blocks become free in it
            self._drop(sequence)
            self.scheduler.finish(sequence.request)
        if over:
            self._running = [s for s in self._running if s.request.id in self._known]
        return [sequence.job for sequence in sorted(over, key=lambda s: s.number)]

    def _charge(self, emitting: Sequence[_Sequence], passes: int) -> None:
        """Charge a token of each request in each of `passes` passes. O(1) if they are the whole batch."""
        if len(emitting) == len(self._running):
            self.scheduler.tick(passes)
            return
        for sequence in emitting:
            self.scheduler.decode(sequence.request, passes)

    def cancel(self, job: EngineJob) -> None:
        """Remove a job in whatever state."""
        sequence = self._known[job.request.id]
        self.scheduler.cancel(sequence.request)
        if sequence in self._running:
            self._running.remove(sequence)
        self._drop(sequence)

    def check(self) -> None:
        """Assert that the pool holds what the running requests refer to, and nothing else. O(blocks)."""
        size = self._pool.block_size
        for sequence in self._known.values():
            assert bool(sequence.blocks) == (sequence in self._running)
            assert -(-sequence.computed // size) <= len(sequence.blocks)
            under_way = sequence.computed + sequence.planned
            assert sequence.computed // size <= sequence.named <= under_way // size
        self._pool.check([sequence.blocks for sequence in self._known.values()])

    # -- running requests -------------------------------------------------------------------------

    def _order_victims(self) -> None:
        """Order the batch so that victims are last, if this step may run out of blocks. O(running)."""
        missing = self._wanted_blocks() - self._pool.free
        if missing <= 0 or len(self._running) < 2:
            return
        left = {sequence.request: sequence for sequence in self._running}
        chosen: list[_Sequence] = []
        while missing > 0 and len(chosen) < MAX_VICTIMS and len(left) > 1:
            if (victim := self.scheduler.victim(list(left))) is None:
                break
            chosen.append(left.pop(victim))
            missing -= chosen[-1].computed // self._pool.block_size
        self._running = [*left.values(), *reversed(chosen)]  # the first choice is the last in line

    def _wanted_blocks(self) -> int:
        """Return how many blocks the running requests take in this step, at most. O(running)."""
        size = self._pool.block_size
        rough = -(-self._budget // size) + len(self._running)
        if rough <= self._pool.free:
            return rough
        full = sum(sequence.computed % size == 0 for sequence in self._running)
        ahead = [sequence.length - sequence.computed for sequence in self._running]
        prompts = [length for length in ahead if length > 1]
        return -(-min(sum(prompts), self._budget) // size) + len(prompts) + full

    def _plan_running(self) -> tuple[list[_Sequence], int]:
        """Allocate blocks for the next tokens of the batch; return the preempted, and the budget left."""
        preempted: list[_Sequence] = []
        budget, at, size = self._budget, 0, self._pool.block_size
        while at < len(self._running) and budget:
            sequence = self._running[at]
            planned = min(sequence.length - sequence.computed, budget)
            end = sequence.computed + planned
            if planned == 1 and end % size > 1:  # within its last block, which does not become full
                sequence.planned = 1
                budget -= 1
                at += 1
                continue
            need = self._blocks_for(end) - len(sequence.blocks)
            while need > self._pool.free and at < len(self._running):
                preempted.append(self._preempt_last())
            if at == len(self._running):  # it was preempted itself
                break
            self._compute(sequence, planned)
            budget -= planned
            at += 1
        for sequence in self._running[at:]:
            sequence.planned = 0
        return preempted, budget

    def _preempt_last(self) -> _Sequence:
        victim = self._running.pop()
        self._pool.leave(victim.blocks)
        victim.empty()
        victim.is_again = True
        self.scheduler.preempt(victim.request)
        return victim

    def _compute(self, sequence: _Sequence, planned: int) -> None:
        """Allocate blocks for `planned` more tokens; full blocks are cached at once."""
        pool, sequence.planned = self._pool, planned
        end = sequence.computed + planned
        need = self._blocks_for(end) - len(sequence.blocks)
        if need:
            sequence.blocks += pool.take(need)
        full = end // pool.block_size
        if full > sequence.named:
            hashes = sequence.hashes.reaching(full)
            for at in range(sequence.named, full):
                pool.name(sequence.blocks[at], hashes[at])
            if self._mirror:
                known = known_len(sequence.job.row)
                self._mirror.named(sequence.hashes.tokens, known, hashes[:full], sequence.named)
            sequence.named = full

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self._pool.block_size)

    # -- waiting requests ------------------------------------------------------------------------

    def _admit(self, budget: int) -> Iterator[AdmittedJob]:
        """Run a scheduling pass. O(log waiting + prompt) for each request admitted, and one refused."""
        while budget and len(self._running) < self._slots:
            if (request := self.scheduler.propose()) is None:
                return
            sequence = self._known[request.id]
            size, length = self._pool.block_size, sequence.length
            hits = self._pool.find(sequence.hashes.first((length - 1) // size))
            need = self._blocks_for(length) - len(hits) + self._pool.unused(hits)
            if need + (self._watermark if self._running else 0) > self._pool.free:
                return  # vLLM stops at the first request that does not fit, preempted or not
            extend_len = length - len(hits) * size
            # Before its blocks are named, so that they move the anchors of other requests only.
            self.scheduler.admit(request, extend_len=extend_len)
            self._pool.share(hits)
            sequence.blocks, sequence.named = hits, len(hits)
            sequence.computed = length - extend_len
            sequence.number = self._admissions = self._admissions + 1
            self._running.append(sequence)
            self._compute(sequence, min(extend_len, budget))
            budget -= sequence.planned
            yield AdmittedJob(job=sequence.job, extend_len=extend_len, again=sequence.is_again)

    # -- passes in closed form ------------------------------------------------------------------

    def _repeats(self, work: Pass) -> int:
        """Return how many such passes may follow each other: no scheduling pass, no end, no eviction."""
        schedules = len(self.scheduler) and len(self._running) < self._slots
        if schedules or work.admitted or work.preempted or work.decodes < len(self._running):
            return 1
        size, running = self._pool.block_size, self._running
        most = min(sequence.most - sequence.length for sequence in running)
        spare = self._pool.spare(len(running) * (most // size + 1))
        # How far each is into its last block; in pass 1 + j it needs a block if that makes it full.
        filled = [sequence.computed - len(sequence.blocks) * size for sequence in running]
        low, high = 1, most
        while low < high:
            middle = (low + high + 1) // 2
            if sum(-(-(past + middle) // size) for past in filled) <= spare:
                low = middle
            else:
                high = middle - 1
        return low

    def _go_on(self, passes: int) -> None:
        """Allocate blocks for `passes` more passes, in the order in which single steps take and fill them."""
        size = self._pool.block_size
        events: list[tuple[int, int, _Sequence]] = []
        for place, sequence in enumerate(self._running):
            # Pass j, from 0, computes token `computed + j`: it takes a block if that is a block's
            # first, and fills one if it is a block's last.
            takes = range(-sequence.computed % size, passes, size)
            fills = range(-(sequence.computed + 1) % size, passes, size)
            events += [(at, place, sequence) for at in {*takes, *fills} if at >= self._ready]
        for at, _, sequence in sorted(events, key=lambda event: event[:2]):
            self._compute(sequence, at + 1)
            sequence.planned = 1
        self.scheduler.count_passes(passes - self._ready)

    # -- inside ---------------------------------------------------------------------------------

    def _drop(self, sequence: _Sequence) -> None:
        del self._known[sequence.request.id]
        sequence.job.emitted = sequence.length - sequence.input_len
        self._pool.leave(sequence.blocks)


def _work(planned: Sequence[_Sequence]) -> Pass:
    """Return the pass with the work and the outputs of all requests. O(planned)."""
    counts: dict[ClientId, int] = {}
    first: list[EngineJob] = []
    chunks = extend_len = attention = decodes = context = 0
    for sequence in planned:
        q, c, length = sequence.planned, sequence.computed, sequence.length
        if q == 1 and c + 1 == length > sequence.input_len:
            decodes += 1
            context += length
        else:
            chunks += 1
            extend_len += q
            attention += q * (2 * c + q)
        if c + q == length:
            client = sequence.client
            counts[client] = counts.get(client, 0) + 1
            if length == sequence.input_len:
                first.append(sequence.job)
    return Pass(
        chunks=chunks,
        extend_len=extend_len,
        attention=attention,
        decodes=decodes,
        context=context,
        counts=counts,
        first=first,
    )

"""Budgets of SGLang's prefill batches, and its estimate of how much a request will still emit.

SGLang 0.5.23, `PrefillAdder` and `new_token_ratio`. The ratio starts high, sinks while decoding goes
well, and is set anew when memory ran out after all. It is held in whole parts, so that many steps at
once are exact.
"""

from collections.abc import Iterable

from fairhit.core.cache.radix_tree import Path
from fairhit_lab.sim.engines.interface import EngineJob
from fairhit_lab.sim.memory.block_hashes import tokens_of

# Parts of 1; the steps from 0.7 to its floor are whole in it.
SCALE = 3_000_000
# SGLang's constants: the start, its floor as a share of it, and the decode steps in between.
START = 7 * SCALE // 10
FLOOR_PERCENT = 14
DECAY_STEPS = 600
# After a retraction, that many further tokens are foreseen for each request that stays.
RETRACT_STEPS = 20
# No request is believed to need more than this; SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION.
CLIP = 4096


class TokenRatio:
    """The ratio in parts of SCALE; `conservativeness` scales its start, up to 1."""

    def __init__(self, *, conservativeness: float = 1.0) -> None:
        assert conservativeness >= 0, conservativeness
        self._start = min(SCALE, int(START * conservativeness))
        self._floor = self._start * FLOOR_PERCENT // 100
        self._decay = (self._start - self._floor) // DECAY_STEPS
        self.parts = self._start

    def reset(self) -> None:
        """Reset the ratio, as SGLang does when the engine is idle."""
        self.parts = self._start

    def sink(self, passes: int) -> None:
        """Lower the ratio after so many decode passes for which memory sufficed."""
        self.parts = max(self._floor, self.parts - passes * self._decay)

    def retracted(self, *, emitted: int, requests: int, max_tokens: int) -> None:
        """Set the ratio after a retraction, by what the remaining requests emitted and may emit together."""
        foreseen = (emitted + RETRACT_STEPS * requests) * SCALE // (max_tokens + 1)
        self.parts = min(SCALE, foreseen)

    def of(self, lefts: Iterable[int]) -> int:
        """Return the tokens to keep for requests that may emit so many more each. O(requests)."""
        return sum(min(left, CLIP) for left in lefts) * self.parts // SCALE


class TokenSequence:
    """A job at this host, and its part of the memory. Lengths are in tokens."""

    __slots__ = (
        "computed", "held", "is_again", "job", "number", "path", "planned", "request", "tokens",
    )  # fmt: skip

    def __init__(self, job: EngineJob) -> None:
        self.job, self.request = job, job.request
        self.tokens = tokens_of(job.row)
        self.path: Path | None = None  # pinned, from its admission on
        self.computed = 0  # in memory: what its path holds, then tokens of its own
        self.planned = 0  # tokens computed in this pass
        self.number = -1  # in the order of admission
        self.held = 0  # passes it waited as a follower
        self.is_again = False  # whether it was retracted before

    @property
    def length(self) -> int:
        """Return the tokens of the prompt and of the outputs so far."""
        return self.request.input_len + self.job.emitted

    @property
    def left(self) -> int:
        """Return the tokens that the request may still emit, for all the engine knows."""
        return self.request.max_tokens - self.job.emitted


class PrefillBudget:
    """The rest of a prefill batch's budgets (SGLang's PrefillAdder), in tokens."""

    __slots__ = ("batch", "chunk", "inputs", "now", "promised")

    def __init__(self, *, inputs: int, chunk: int, promised: int) -> None:
        self.inputs, self.chunk = inputs, chunk
        self.promised = promised  # to those that run, and to the batch
        self.now = 0  # that the batch computes
        self.batch: list[TokenSequence] = []

    def add(self, sequence: TokenSequence, planned: int) -> None:
        """Plan `planned` tokens of a request in this batch; after the last part of a prompt it emits."""
        sequence.planned = planned
        is_last = sequence.computed + planned == sequence.length
        self.inputs -= planned
        self.chunk -= planned
        self.now += planned
        self.promised += planned + (min(sequence.left, CLIP) if is_last else 0)
        self.batch.append(sequence)

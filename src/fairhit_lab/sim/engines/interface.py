"""The seam between a replica, which owns time, and a host, which is one engine's batching loop.

A host decides what the next forward pass computes: it asks the scheduler, reserves memory, cuts
prompts into chunks, preempts. It knows no clock, no step time and no observer: the replica asks how
long the pass lasts, and tells what happened. `ideal`, `artifact`, `vllm` and `sglang` are hosts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from fairhit.core.request import ClientId, Request
from fairhit_lab.traces.trace import TraceRow


class EngineJob:
    """One request at one replica, from its dispatch to its end."""

    __slots__ = (
        "admitted", "emitted", "extend_len", "first_us", "request", "row", "ticket", "worker",
    )  # fmt: skip

    def __init__(self, row: TraceRow, request: Request, worker: int = 0) -> None:
        self.row = row
        self.request = request
        self.worker = worker  # the replica's number
        self.emitted = (
            0  # output tokens, written by its host; true when the job ends, at the latest
        )
        self.extend_len = 0  # what its prompt cost when it was admitted first
        # Here or at a worker that failed: whether it ran, and when its caller had its first token.
        self.admitted = False
        self.first_us: int | None = None
        self.ticket: Any = None  # of who sent it here, for whoever did

    @property
    def left(self) -> int:
        """Output tokens still to come."""
        return self.row.output_len - self.emitted


class AdmittedJob(NamedTuple):
    """A job that runs from this pass on; `again` if it was preempted before."""

    job: EngineJob
    extend_len: int
    again: bool = False


@dataclass(kw_only=True)
class Pass:
    """One forward pass: what led to it, what it computes, what it emits."""

    admitted: Sequence[AdmittedJob] = ()
    preempted: Sequence[EngineJob] = ()
    evicted: int = 0  # cached tokens that gave way
    refills: int = 0  # k, summed over the pass
    # What is computed. A chunk is q prompt tokens of one sequence on c that are in memory already.
    chunks: int = 0
    extend_len: int = 0  # the sum of q
    attention: int = 0  # the sum of q * (2c + q): twice the pairs of tokens that meet
    decodes: int = 0  # sequences that decode one token, those of the chunks not included
    context: int = 0  # tokens in memory of those sequences, all together
    # Tokens each client is sent at the end of the pass.
    counts: Mapping[ClientId, int] = field(default_factory=dict)
    first: Sequence[EngineJob] = ()  # whose first token that is; `repeats` is 1 where there are any
    # How many passes like this one may follow each other, this one included, before anything
    # finishes or a look could change anything, as long as nobody arrives or leaves. From one to the
    # next only `context` grows, by `decodes`. A pass with chunks is alone.
    repeats: int = 1
    # The run of passes that follows this one if nobody arrives or leaves before it is over; its host
    # then is not asked. With chunks only, and where its end changes nothing that others see.
    then: "Pass | None" = None
    # Whoever arrives during the pass changes nothing in the next look: there is no free slot.
    full: bool = False

    @classmethod
    def emitting(cls, counts: Mapping[ClientId, int]) -> "Pass":
        """One that emits `counts` and is else as by default, made in a quarter of the time."""
        work = cls.__new__(cls)  # the other defaults stand in the class
        work.counts = counts
        return work


class SimulatedEngine(Protocol):
    """One engine's loop over its scheduler and its memory."""

    def fits_ever(self, request: Request) -> bool:
        """Whether it could run alone here; if not, it is rejected on arrival."""
        ...

    def enqueue(self, job: EngineJob) -> None:
        """It waits. Raises QueueFull if the policy's table of clients is full."""
        ...

    def begin_pass(self, now_us: int) -> Pass | None:
        """Look at the queue and say what to compute next; None if there is nothing to run."""
        ...

    def end_pass(self, passes: int, now_us: int) -> Sequence[EngineJob]:
        """`passes` <= repeats such passes are over; the jobs that finished, in order of admission.

        A run of alike passes may be ended in pieces, of which only the last has jobs that finish.
        Those of `then` may be counted with the pass before them, if both are over.
        """
        ...

    def cancel(self, job: EngineJob) -> None:
        """It is gone, from whatever state; if it runs, this is called between passes only."""
        ...


class StepTime(Protocol):
    """How long a forward pass lasts, in whole picoseconds so that sums of passes are exact."""

    @property
    def alike(self) -> bool:
        """Whether passes that are alike last alike; if not (jitter), each is asked for by itself."""
        ...

    def pass_ps(self, work: Pass) -> int:
        """The duration of the pass."""
        ...

    def growth_ps(self, work: Pass) -> int:
        """How much longer each further pass like it is, its context having grown by `decodes`."""
        ...

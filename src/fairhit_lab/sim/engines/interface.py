"""The interface between a replica, which owns time, and a host, the batching loop of one engine.

A host decides what the next forward pass computes: it calls the fair queue, reserves memory, splits
prompts into chunks, preempts. A host has no clock, no step time and no observer: the replica computes
how long the pass lasts, and emits the events. The hosts: `ideal`, `vtc_artifact`, `vllm`, `sglang`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from fairhit.core.fair_queue import FairQueue
from fairhit.core.request import ClientId, Request
from fairhit_lab.traces.trace import TraceRow


class EngineJob:
    """A request at a replica, from its dispatch to its end."""

    __slots__ = (
        "admitted", "emitted", "extend_len", "first_us", "request", "row", "ticket", "worker",
    )  # fmt: skip

    def __init__(self, row: TraceRow, request: Request, worker: int = 0) -> None:
        self.row = row
        self.request = request
        self.worker = worker  # the replica's number
        self.emitted = 0  # output tokens, written by its host; true at its end, at the latest
        self.extend_len = 0  # prompt tokens computed at its first admission
        # Here or at a worker that failed: whether it ran, and when its first token was emitted.
        self.admitted = False
        self.first_us: int | None = None
        self.ticket: Any = None  # of its sender, which alone reads it

    @property
    def left(self) -> int:
        """Return how many output tokens are still to be emitted."""
        return self.row.output_len - self.emitted


class AdmittedJob(NamedTuple):
    """A job that is admitted in this pass; `again` if it was preempted before."""

    job: EngineJob
    extend_len: int
    again: bool = False


@dataclass(kw_only=True)
class Pass:
    """A forward pass: the decisions before it, the work in it, the tokens emitted at its end."""

    admitted: Sequence[AdmittedJob] = ()
    preempted: Sequence[EngineJob] = ()
    evicted: int = 0  # cached tokens
    refills: int = 0  # k, summed over the pass
    # What is computed. A chunk is q prompt tokens of one sequence on c that are in memory already.
    chunks: int = 0
    extend_len: int = 0  # the sum of q
    attention: int = 0  # the sum of q * (2c + q): twice the pairs of tokens that meet
    decodes: int = 0  # sequences that decode one token, those of the chunks not included
    context: int = 0  # tokens in memory of those sequences, all together
    # Tokens emitted for each client at the end of the pass.
    counts: Mapping[ClientId, int] = field(default_factory=dict)
    first: Sequence[
        EngineJob
    ] = ()  # that emit their first token; `repeats` is 1 where there are any
    # How many passes like this one may follow each other, this one included, before anything
    # finishes or a scheduling pass is due, as long as no request arrives or is cancelled. From one to
    # the next only `context` grows, by `decodes`. A pass with chunks is not repeated.
    repeats: int = 1
    # The run of passes that follows this one, without a call to the host, if no request arrives or is
    # cancelled before its end. With chunks only, and where its end changes nothing that others see.
    then: "Pass | None" = None
    # No slot is free: an arrival during the pass changes nothing in the next scheduling pass.
    full: bool = False

    @classmethod
    def emitting(cls, counts: Mapping[ClientId, int]) -> "Pass":
        """Return a pass that emits `counts`, the rest as by default, made in a quarter of the time."""
        work = cls.__new__(cls)  # the other defaults stand in the class
        work.counts = counts
        return work


class SimulatedEngine(Protocol):
    """The loop of an engine over its fair queue and its memory."""

    scheduler: FairQueue

    def fits_ever(self, request: Request) -> bool:
        """Return whether the request could run alone here; if not, it is rejected on arrival."""
        ...

    def enqueue(self, job: EngineJob) -> None:
        """Queue the job. Raises QueueFull if the policy's table of clients is full."""
        ...

    def begin_pass(self, now_us: int) -> Pass | None:
        """Admit requests and return the next forward pass; None if there is nothing to run."""
        ...

    def end_pass(self, passes: int, now_us: int) -> Sequence[EngineJob]:
        """End `passes` <= repeats such passes; return the jobs that finished, in order of admission.

        A run of like passes may be ended in pieces, of which only the last has jobs that finish. The
        passes of `then` may be counted with the pass before them, if both are over.
        """
        ...

    def cancel(self, job: EngineJob) -> None:
        """Remove the job in whatever state; if it runs, between two passes only."""
        ...


@runtime_checkable
class ReportsMemory(Protocol):
    """An engine that reports its memory, as vLLM and SGLang do."""

    @property
    def free_len(self) -> int:
        """Tokens of memory that the running requests leave."""
        ...


class StepTime(Protocol):
    """Durations of forward passes, in whole picoseconds so that sums of passes are exact."""

    @property
    def alike(self) -> bool:
        """Return whether like passes last equally long; if not (jitter), each is computed by itself."""
        ...

    def pass_ps(self, work: Pass) -> int:
        """Return the duration of the pass."""
        ...

    def growth_ps(self, work: Pass) -> int:
        """Return how much longer each further like pass lasts, its context having grown by `decodes`."""
        ...

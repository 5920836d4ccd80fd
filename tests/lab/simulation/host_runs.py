"""Drives a host as a replica does, with a clock of steps, and writes down what every step did."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import Phase
from hypothesis import strategies as st

from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import Request
from fairhit_lab.sim.engines.interface import EngineJob, Pass
from fairhit_lab.traces.trace import TraceRow

# Without shrinking, which takes minutes on whole runs.
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A row and its step; `timeout`: the steps after which its caller goes away."""

    step: int
    row: TraceRow
    timeout: int | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one step did: of a run of alike passes, each by itself."""

    preempted: list[str]
    admitted: list[tuple[str, int, bool]]
    evicted: int
    refills: int
    work: tuple[int, int, int, int, int]  # chunks, extend_len, attention, decodes, context
    counts: dict[str, int]
    first: list[str]
    finished: list[str]


@dataclass
class HostRun:
    """One host from the first arrival to the last finish."""

    host: Any
    steps: dict[int, Step] = field(default_factory=dict)
    passes: list[Pass] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)

    def run(self, arrivals: list[Arrival], *, skips: bool = False, seed: int = 0) -> "HostRun":
        """`skips`: alike passes are ended together, in pieces of random size."""
        rng = Random(seed)
        news: dict[int, list[tuple[str, EngineJob]]] = {}
        for order, arrival in enumerate(arrivals):
            job = EngineJob(arrival.row, request_of(arrival.row, order))
            news.setdefault(arrival.step, []).append(("enqueue", job))
            if arrival.timeout is not None:
                news.setdefault(arrival.step + arrival.timeout, []).append(("cancel", job))
        step, gone = 0, set()
        while True:
            for what, job in news.pop(step, []):
                if job.request.id not in gone:
                    getattr(self.host, what)(job)
                    gone |= {job.request.id} if what == "cancel" else set()
            self.host.check()
            work = self.host.begin_pass(step)
            self.host.check()
            if work is None and not news:
                return self
            if work is None:
                step = min(news)
                continue
            left = work.repeats if skips else 1
            if news:
                left = min(left, min(news) - step)
            self.passes.append(work)
            for at in range(left):
                self._write(step + at, work, at)
            while left:
                piece = rng.randint(1, left)
                over = [job.request.id for job in self.host.end_pass(piece, step + piece - 1)]
                self.host.check()
                step, left = step + piece, left - piece
            self.steps[step - 1].finished.extend(over)
            self.finished += over
            gone |= set(over)
            assert step < 50_000, "this does not end"

    def _write(self, step: int, work: Pass, at: int) -> None:
        """Pass number `at` of a run of alike ones."""
        context = work.context + at * work.decodes
        self.steps[step] = Step(
            preempted=[] if at else [job.request.id for job in work.preempted],
            admitted=[]
            if at
            else [(a.job.request.id, a.extend_len, a.again) for a in work.admitted],
            evicted=0 if at else work.evicted,
            refills=0 if at else work.refills,
            work=(work.chunks, work.extend_len, work.attention, work.decodes, context),
            counts=dict(work.counts),
            first=[] if at else [job.request.id for job in work.first],
            finished=[],
        )


def request_of(row: TraceRow, order: int) -> Request:
    """As the intake of the simulator makes it."""
    return Request(
        id=row.id, client=row.client, prompt=row.prompt, input_len=len(row.prompt),
        max_tokens=row.max_tokens, order=order, arrival_us=row.arrival_us,
    )  # fmt: skip


def row(
    name: str,
    *runs: tuple[object, int],
    client: str = "a",
    output_len: int = 4,
    max_tokens: int | None = None,
    output: Runs | None = None,
) -> TraceRow:
    """A row whose prompt is made of the beginnings of segments."""
    return TraceRow(
        id=name, client=client, arrival_us=0, output_len=output_len, output=output,
        prompt=Runs([(segment, 0, length) for segment, length in runs]),
        max_tokens=max_tokens or output_len,
    )  # fmt: skip


@st.composite
def traffic(draw: st.DrawFn, *, most: int, leavers: bool = True) -> list[Arrival]:
    """Up to `most` tokens a request: shared prefixes, conversations, early ends, callers that leave."""
    arrivals: list[Arrival] = []
    step = 0
    for i in range(draw(st.integers(1, 24))):
        step += draw(st.sampled_from([0, 0, 0, 1, 7, 40]))
        output_len = draw(st.integers(1, most // 4))
        allowed = output_len + draw(st.sampled_from([0, 0, 5, 30]))
        prefix = (f"p{draw(st.integers(0, 3))}", draw(st.sampled_from([1, 16, 33, 50])))
        prompt = Runs([(prefix[0], 0, prefix[1]), (f"own{i}", 0, draw(st.integers(1, 40)))])
        if arrivals and draw(st.booleans()):
            before = draw(st.sampled_from(arrivals)).row
            if before.output is not None:
                prompt = before.prompt + before.output + Runs([(f"turn{i}", 0, 5)])
        prompt = prompt[: most - allowed]
        output = Runs([(f"out{i}", 0, output_len)]) if draw(st.booleans()) else None
        arrivals.append(
            Arrival(
                step=step,
                row=TraceRow(
                    id=f"r{i}",
                    client=draw(st.sampled_from("abc")),
                    arrival_us=0,
                    prompt=prompt,
                    output_len=output_len,
                    max_tokens=allowed,
                    output=output,
                ),
                timeout=draw(st.sampled_from([None, None, 0, 1, 3, 20])) if leavers else None,
            )
        )
    return arrivals

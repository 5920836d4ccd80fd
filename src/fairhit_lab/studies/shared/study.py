"""What a study is: cases to run, numbers to read from each, panels that show them, claims to judge.

A study is data, one file each in `studies/`; the runner, the figures and the report know nothing of
any paper. Everything a case depends on stands in it, so equal cases are run once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol

from fairhit.core.request import ClientId, RequestId
from fairhit.core.service import Weights
from fairhit_lab.metrics.request_rows import RequestRows
from fairhit_lab.metrics.series import Series, SeriesPoint
from fairhit_lab.metrics.summary.summary import Summary
from fairhit_lab.metrics.summary.waits import Waits
from fairhit_lab.metrics.vtc_table import Row
from fairhit_lab.sim.bounds import report_of, summary_of
from fairhit_lab.sim.cluster import Cluster
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Label, Results
from fairhit_lab.traces.importers import FORMATS
from fairhit_lab.traces.trace import TraceRow
from fairhit_lab.workloads import GENERATORS

US_PER_S = 10**6


@dataclass(frozen=True, kw_only=True, slots=True)
class Generated:
    """A workload of `fairhit trace generate`, with its settings."""

    workload: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, seed: int, data: Path | None) -> Iterator[TraceRow]:
        """By arrival; the seed decides all that is drawn."""
        return GENERATORS[self.workload].rows(Random(seed), **self.settings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A public trace: files of the data folder, as `fairhit trace import` reads them."""

    format: str
    files: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, seed: int, data: Path | None) -> Iterator[TraceRow]:
        """By arrival; the seed decides what the importer draws."""
        assert data is not None, "the runner asks for the data folder first"
        paths = [str(data / name) for name in self.files]
        return FORMATS[self.format].rows(paths, Random(seed), **self.settings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a case left behind: the summary (docs/reference/summary.md), and what else it keeps.

    A simulated one's summary has `waits`, too: as the clients' `ttft`, but who has no first token
    when the run is stopped counts with the time so far. Who starves is in no `ttft`. So has it
    `program_waits`: the times of programs, of unfinished ones so far.
    """

    summary: dict[str, Any]
    series: Sequence[SeriesPoint] = ()
    requests: Sequence[Row] = ()


class Case(Protocol):
    """One run but for its seed. `labels` are its columns in the rows; `needs` are data files."""

    @property
    def labels(self) -> Mapping[str, Label]:
        """What tells it from the study's other cases, in the order of the columns."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Files of the data folder, relative to it."""
        ...

    def described(self) -> dict[str, Any]:
        """All that its outcome depends on but the seed and the code, ready for JSON."""
        ...

    def outcome(self, seed: int, data: Path | None) -> Outcome:
        """Run it."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulated:
    """A trace through the simulator. `settings` are SimConfig's; from `until_s` on nobody arrives.

    At `stop_s` the run ends, whoever still waits. `series` and `requests`: keep the clients' curves,
    and a row a request. The seed goes to the workload and to the simulator.
    """

    labels: Mapping[str, Label]
    source: Generated | Imported
    settings: Mapping[str, Any] = field(default_factory=dict)
    until_s: float | None = None
    stop_s: float | None = None
    series: bool = False
    requests: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """Those of an imported trace."""
        return self.source.files if isinstance(self.source, Imported) else ()

    def described(self) -> dict[str, Any]:
        """Without the labels: the same run under two names is one run."""
        return {
            name: value
            for name, value in asdict(self).items()
            if name != "labels" and value is not None
        }

    def outcome(self, seed: int, data: Path | None) -> Outcome:
        """Deterministic: the same seed gives the same numbers."""
        config = SimConfig(**{"seed": seed, **self.settings})
        # The curves are counted by whole seconds, a point at every half window.
        weights = Weights(config.weights)
        summary, series, requests = summary_of(config, weights), Series(), RequestRows()
        waits = Waits()
        kept: list[Summary | Waits | Series | RequestRows] = [summary, waits]
        kept += [series] * self.series + [requests] * self.requests

        def start(
            request: RequestId, client: ClientId, t_us: int, program: str | None = None
        ) -> None:
            for each in kept:
                each.start(request, client, t_us, program)

        rows = self.source.rows(seed, data)
        if self.until_s is not None:
            end_us = round(self.until_s * US_PER_S)
            rows = takewhile(lambda row: row.arrival_us < end_us, rows)
        cluster = Cluster(config, rows, kept, weights=weights, on_start=start)
        if self.stop_s is not None:
            _stop(cluster, round(self.stop_s * US_PER_S))
        cluster.run()
        for row in cluster.intake.alive():
            summary.left(row.id, row.client, cluster.now_us)
        report = report_of(cluster, summary)
        return Outcome(
            summary=report
            | {
                "clients": dict(report["clients"]),
                "waits": waits.until(cluster.now_us),
                "program_waits": waits.programs_until(cluster.now_us),
            },
            series=list(series.rows()) if self.series else (),
            requests=requests.rows,
        )


def _stop(cluster: Cluster, at_us: int) -> None:
    """After everything else of that instant."""

    def stop(_: object) -> None:
        cluster.kernel.stopped = True

    cluster.kernel.at(at_us, 1 << 60, stop, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A function of ours that is timed on this machine: `function` is "module:name".

    It takes the seed and the arguments, and returns what stands in for a summary.
    """

    labels: Mapping[str, Label]
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def described(self) -> dict[str, Any]:
        """The function and its arguments."""
        return {"function": self.function, "arguments": dict(self.arguments)}

    def outcome(self, seed: int, data: Path | None) -> Outcome:
        """Call it."""
        module, _, name = self.function.partition(":")
        return Outcome(summary=getattr(import_module(module), name)(seed, **self.arguments))


Measure = Callable[[Outcome], float | None]
Holds = Literal["holds", "holds only if", "does not hold", "not comparable"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A claim, the paper's value, ours, and whether it holds.

    `why` is empty only where it holds; "holds only if" names the condition there.
    """

    claim: str
    paper: str
    ours: str
    holds: Holds
    why: str = ""

    def __post_init__(self) -> None:
        assert self.why or self.holds == "holds", self.claim


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """One figure or table. `cases(quick)` are its runs, `judge` reads the rows of all of them.

    `takes` is about a machine of two cores: "quick 5 s; full 4 min". `choices` says what the paper
    leaves unstated and what stands here in its place, with the reason.
    """

    title: str
    source: str
    shows: str
    takes: str
    cases: Callable[[bool], Sequence[Case]]
    measures: Mapping[str, Measure]
    panels: Sequence[Panel]
    judge: Callable[[Results], Sequence[Verdict]]
    choices: str = ""

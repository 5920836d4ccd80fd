"""Studies: cases to run, numbers to read from each, panels that show them, claims to judge.

A study is data; the runner, the figures and the report know nothing of any paper. A case contains
everything it depends on, so equal cases run once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol

from fairhit.core.request import ClientId, RequestId
from fairhit.core.service import Weights
from fairhit_lab.events import Observer
from fairhit_lab.metrics.request_rows import RequestRows
from fairhit_lab.metrics.series import Series, SeriesPoint
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
        """The requests by arrival; the seed decides all that is drawn."""
        return GENERATORS[self.workload].rows(Random(seed), **self.settings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A public trace: files of the data folder, as `fairhit trace import` reads them."""

    format: str
    files: tuple[str, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def rows(self, seed: int, data: Path | None) -> Iterator[TraceRow]:
        """The requests by arrival; the seed decides what the importer draws."""
        assert data is not None, "the runner asks for the data folder first"
        paths = [str(data / name) for name in self.files]
        return FORMATS[self.format].rows(paths, Random(seed), **self.settings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of a case: a summary (docs/reference/summary.md), and the curves and request rows it keeps.

    A simulated case adds two entries to the summary: `waits`, which is the clients' `ttft` except
    that a request without a first token at the stop counts with the time so far, and
    `program_waits`, the same for programs. A starving client is in no `ttft`.
    """

    summary: dict[str, Any]
    series: Sequence[SeriesPoint] = ()
    requests: Sequence[Row] = ()


class Case(Protocol):
    """A run except for its seed. `labels` are its columns in the rows; `needs` are data files."""

    @property
    def labels(self) -> Mapping[str, Label]:
        """The labels that distinguish the case within its study, in the order of the columns."""
        ...

    @property
    def needs(self) -> tuple[str, ...]:
        """Files of the data folder, relative to it."""
        ...

    def described(self) -> dict[str, Any]:
        """The description, ready for JSON: everything the outcome depends on but the seed and the code."""
        ...

    def outcome(self, seed: int, data: Path | None) -> Outcome:
        """Run the case."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulated:
    """A trace through the simulator. `settings` are SimConfig's; no request arrives from `until_s` on.

    At `stop_s` the run ends, with whatever still waits. `series` and `requests` keep the clients'
    curves and a row per request. The seed goes to the workload and to the simulator.
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
        """The files of an imported trace."""
        return self.source.files if isinstance(self.source, Imported) else ()

    def described(self) -> dict[str, Any]:
        """The fields except the labels: the same run under two names is one run."""
        return {
            name: value
            for name, value in asdict(self).items()
            if name != "labels" and value is not None
        }

    def outcome(self, seed: int, data: Path | None) -> Outcome:
        """Simulate. Deterministic: the same seed gives the same numbers."""
        return self.simulated(seed, data)

    def simulated(self, seed: int, data: Path | None, *observers: Observer) -> Outcome:
        """Simulate, with more observers of the events."""
        config = SimConfig(**{"seed": seed, **self.settings})
        # Curves have a point at every half window of whole seconds.
        weights = Weights(config.weights)
        summary, series, requests = summary_of(config, weights), Series(), RequestRows()
        waits = Waits()
        others: list[Waits | Series | RequestRows] = [waits]
        others += [series] * self.series + [requests] * self.requests

        def start(
            request: RequestId,
            client: ClientId,
            t_us: int,
            program: str | None = None,
            demand: int = 0,
        ) -> None:
            summary.start(request, client, t_us, program, demand)
            for each in others:
                each.start(request, client, t_us, program)

        rows = self.source.rows(seed, data)
        if self.until_s is not None:
            end_us = round(self.until_s * US_PER_S)
            rows = takewhile(lambda row: row.arrival_us < end_us, rows)
        cluster = Cluster(
            config, rows, [summary, *others, *observers], weights=weights, on_start=start
        )
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
    """Stop the simulation at `at_us`, after all other events of that instant."""

    def stop(_: object) -> None:
        cluster.kernel.stopped = True

    cluster.kernel.at(at_us, 1 << 60, stop, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A function that is timed on this machine: `function` is "module:name".

    The function takes the seed and the arguments, and returns the summary of the outcome.
    """

    labels: Mapping[str, Label]
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def described(self) -> dict[str, Any]:
        """The function and its arguments."""
        return {"function": self.function, "arguments": dict(self.arguments)}

    def outcome(self, seed: int, data: Path | None) -> Outcome:
        """Call the function."""
        module, _, name = self.function.partition(":")
        return Outcome(summary=getattr(import_module(module), name)(seed, **self.arguments))


Measure = Callable[[Outcome], float | None]
# In the median only: as stated, but not for every seed. Under conditions only: in some of the settings or
# workloads that were run. Not comparable: the run could show nothing else, or not what the claim asks for.
Holds = Literal[
    "holds",
    "holds in the median only",
    "holds under conditions only",
    "does not hold",
    "not comparable",
]
# Whether a claim is the paper's or our own, about the same runs or beyond the papers.
Whose = Literal["paper", "ours"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A claim, the paper's value, ours, and whether the claim holds.

    `why` is empty only where the claim holds; of "holds under conditions only" it names the condition.
    `least` and `greatest` are the values that the run could have shown, by its settings; None if unknown.
    """

    claim: str
    paper: str
    ours: str
    holds: Holds
    why: str = ""
    whose: Whose = "paper"
    least: float | None = None
    greatest: float | None = None

    def __post_init__(self) -> None:
        assert self.why or self.holds == "holds", self.claim


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """A figure or table. `cases(quick)` are its runs, `judge` reads the rows of all of them.

    `takes` is the time on a machine of two cores: "quick 5 s; full 4 min". `choices` says what the
    paper leaves unstated, what stands here in its place, and why. `whose`: "ours" where every claim is
    our own; a study of the papers marks its own claims one by one.
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
    whose: Whose = "paper"

    def verdicts(self, results: Results) -> Sequence[Verdict]:
        """Judge the results, and mark the claims as the paper's or as ours."""
        if self.whose == "paper":
            return self.judge(results)
        return [replace(verdict, whose=self.whose) for verdict in self.judge(results)]

"""Cases of the VTC paper's studies: the artifact's engine simulated, its measured runs, printed lines.

Numbers are computed as the artifact does (metrics/vtc_table.py), from the rows of the requests.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from fairhit.errors import ConfigError
from fairhit_lab.metrics.series import SeriesPoint
from fairhit_lab.metrics.vtc_table import (
    Row,
    VtcTable,
    accumulated_difference,
    figure_ticks,
    linear,
    profiled,
    request_rates,
    response_times,
    service_rates,
    table,
)
from fairhit_lab.sim.config import SimConfig
from fairhit_lab.studies.shared.results import Label
from fairhit_lab.studies.shared.study import Generated, Imported, Outcome
from fairhit_lab.studies.vtc_artifact.replay import (
    ENGINE,
    FROM_ENGINE_US,
    JITTER,
    PROMPT_EXTRA,
    TO_ENGINE_US,
    replayed,
)
from fairhit_lab.studies.vtc_artifact.runs import REQUESTS, MeasuredRun, read_runs

# The worth of a request in the table's Max Diff, Avg Diff and Diff Var.
WORTHS = {"linear": linear, "profiled": profiled}
ALL = "all"  # the client of points that are of all clients


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """A workload through the artifact's engine. `settings` are SimConfig's, beside those of ENGINE.

    `shown` are the clients whose curves are kept (None: all).
    """

    labels: Mapping[str, Label]
    source: Generated | Imported
    settings: Mapping[str, Any] = field(default_factory=dict)
    worth: str = "linear"
    pieces: int = 30  # points of a curve
    shown: tuple[str, ...] | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The files of an imported trace."""
        return self.source.files if isinstance(self.source, Imported) else ()

    def described(self) -> dict[str, Any]:
        """The fields except the labels, and the constants of engine and callers."""
        return {
            **{name: value for name, value in asdict(self).items() if name != "labels"},
            "engine": {**ENGINE, "jitter": JITTER},
            "caller": {
                "prompt_extra": PROMPT_EXTRA,
                "to_engine_us": TO_ENGINE_US,
                "from_engine_us": FROM_ENGINE_US,
            },
        }

    def outcome(self, seed: int, data: Path | None) -> Outcome:
        """Simulate. Deterministic; passes jitter by JITTER except for seed 0."""
        config = SimConfig(
            **{"seed": seed, "jitter": JITTER if seed else 0.0, **ENGINE, **self.settings}
        )
        rows = replayed(self.source.rows(seed, data), config)
        return _outcome(rows, self.worth, self.pieces, self.shown)


@dataclass(frozen=True, kw_only=True, slots=True)
class AsMeasured:
    """A run that the artifact's authors measured and ship, such as "overload/VTC"; the seed has no effect."""

    labels: Mapping[str, Label]
    run: str
    worth: str = "linear"
    pieces: int = 30
    shown: tuple[str, ...] | None = None

    @property
    def needs(self) -> tuple[str, ...]:
        """The file of all measured runs."""
        return (REQUESTS,)

    def described(self) -> dict[str, Any]:
        """The fields except the labels."""
        return {name: value for name, value in asdict(self).items() if name != "labels"}

    def outcome(self, seed: int, data: Path | None) -> Outcome:
        """Read the run. Raises ConfigError if the file does not contain it."""
        assert data is not None, "the runner asks for the data folder first"
        return _measured(data, self.run, self.worth, self.pieces, self.shown)


@dataclass(frozen=True, kw_only=True, slots=True)
class AsPrinted:
    """A line of the paper's tables; only the table's measures can be read from it."""

    labels: Mapping[str, Label]
    table: VtcTable
    needs: tuple[str, ...] = ()

    def described(self) -> dict[str, Any]:
        """The printed line."""
        return {"printed": self.table._asdict()}

    def outcome(self, seed: int, data: Path | None) -> Outcome:
        """The printed line as an outcome."""
        return Outcome(summary={"table": self.table._asdict()})


@cache
def _runs(data: Path) -> dict[str, MeasuredRun]:
    return {run.name: run for run in read_runs(data)}


@cache
def _measured(
    data: Path, run: str, worth: str, pieces: int, shown: tuple[str, ...] | None
) -> Outcome:
    measured = _runs(data).get(run)
    if measured is None:
        raise ConfigError(f"{data / REQUESTS}: has no run {run}")
    return _outcome(measured.rows(), worth, pieces, shown)


def _outcome(
    rows: Sequence[Row], worth: str, pieces: int, shown: tuple[str, ...] | None
) -> Outcome:
    return Outcome(
        summary={"table": table(rows, h=WORTHS[worth])._asdict()},
        series=[
            point
            for point in curves(rows, pieces)
            if shown is None or point.client in shown or point.client == ALL
        ],
        requests=rows,
    )


def curves(rows: Sequence[Row], pieces: int) -> Iterator[SeriesPoint]:
    """The points of the figures' curves, in tokens/s, seconds and tokens.

    service_rate: received; request_rate: requested; response_time: of first tokens in the window;
    of all clients together difference, of accumulated service, and total_request_rate.
    """
    for at_s in figure_ticks(rows, pieces):
        asked = request_rates(rows, at_s)
        for metric, values in (
            ("service_rate", service_rates(rows, at_s)),
            ("request_rate", asked),
            ("response_time", response_times(rows, at_s)),
        ):
            for client, value in values.items():
                yield SeriesPoint(at_s, client, metric, value)
        yield SeriesPoint(at_s, ALL, "difference", accumulated_difference(rows, at_s))
        yield SeriesPoint(at_s, ALL, "total_request_rate", sum(asked.values()))

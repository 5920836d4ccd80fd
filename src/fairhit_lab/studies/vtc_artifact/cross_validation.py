"""How far the simulator is off on runs that its constants have not seen: measured runs, left out in turn.

The engine's constants that measured runs decide (`FITTED`) are fitted to all runs of a GPU but one, by least
squares on the logarithms of tokens/s and of the mean time to the first token, and the run left out is
simulated with them. One Gauss-Newton step from the published constants, with derivatives from the simulator:
an unweighted linear fit has the same solution wherever it begins, so the published constants, which have
seen every run, enter by the curvature alone.

Under overload small differences in time decide which requests run together, so one simulated run is one
draw of many. `middle` is the median of several, whose passes are jittered as the measured ones are. A
derivative is taken over `FITTED`'s distance to both sides: over a quarter of it, to one side, the draws made
some twice as large.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, log
from statistics import median
from typing import Any, Protocol

import numpy as np
from rich.console import Console
from rich.table import Table as Shown

from fairhit_lab.sim.hardware.models import GPUS, Gpu
from fairhit_lab.sim.hardware.tables import Constants
from fairhit_lab.studies.vtc_artifact.comparison import (
    Agreement,
    RunNumbers,
    agreement_of,
    sentence,
    summary,
)
from fairhit_lab.studies.vtc_artifact.runs import MeasuredRun

# The constants that end-to-end runs decide, by GPU, with their bounds and the distance, to both sides, of the
# derivative. The others come from measured passes (docs/reference/step-time.md).
FITTED: Mapping[str, Mapping[str, tuple[float, float, float]]] = {
    "a10g-2024": {"host_us": (0, 400, 40), "admit_ms": (0, 60, 8), "e_kv": (0.3, 1, 0.08)},
    "a100-2024": {"t0_ms": (0, 20, 2), "e_kv": (0.3, 1, 0.08)},
}
# An error of the time to the first token under overload is that of the throughput many times over.
WEIGHTS = (1.0, 0.25)
Values = tuple[float, float]  # logarithms of tokens/s and of the mean time to the first token


class Simulate(Protocol):
    """Simulates a run with these constants."""

    def __call__(self, run: MeasuredRun, constants: Constants) -> Values:
        """The logarithms of the simulated run."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOut:
    """A run, and its relative errors: with the published constants, those fitted to all, to all others."""

    run: str
    published: Values
    fitted_to_all: Values
    left_out: Values
    constants: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitivity:
    """A run's logarithms as measured and as simulated, and the derivative of the latter by each constant."""

    run: MeasuredRun
    measured: Values
    simulated: Values
    slopes: Sequence[Values]


def logarithms(numbers: RunNumbers) -> Values:
    """Compared measures of a run."""
    return log(numbers.tokens_per_s), log(numbers.ttft_s)


def middle(draws: Sequence[RunNumbers]) -> Values:
    """The median of each logarithm over simulated runs that differ in their seed only."""
    throughput, ttft = zip(*(logarithms(each) for each in draws), strict=True)
    return median(throughput), median(ttft)


def with_constants(gpu: str, values: Mapping[str, float]) -> Constants:
    """The built-in tables with some constants of a GPU replaced."""
    given: dict[str, Any] = dict(values)
    changed: Gpu = replace(GPUS[gpu], **given)
    return Constants(gpus={**GPUS, gpu: changed})


def sensitivity(
    run: MeasuredRun, gpu: str, measured: RunNumbers, simulate: Simulate
) -> Sensitivity:
    """Simulate the run with the published constants, and with each moved to both sides, within its bounds."""
    published = _published(gpu)
    slopes = []
    for name, (low, high, distance) in FITTED[gpu].items():
        ends = max(low, published[name] - distance), min(high, published[name] + distance)
        below, above = (
            simulate(run, with_constants(gpu, {**published, name: value})) for value in ends
        )
        width = ends[1] - ends[0]
        slopes.append(((above[0] - below[0]) / width, (above[1] - below[1]) / width))
    return Sensitivity(
        run=run,
        measured=logarithms(measured),
        simulated=simulate(run, with_constants(gpu, published)),
        slopes=slopes,
    )


def fitted(gpu: str, seen: Sequence[Sensitivity]) -> dict[str, float]:
    """The constants that fit these runs best, within their bounds."""
    scales = np.array([distance for _, _, distance in FITTED[gpu].values()])
    rows, targets = [], []
    for each in seen:
        for place, weight in enumerate(WEIGHTS):
            slopes = np.array([slope[place] for slope in each.slopes])
            rows.append(weight * slopes * scales)
            targets.append(weight * (each.measured[place] - each.simulated[place]))
    moves, *_ = np.linalg.lstsq(np.array(rows), np.array(targets), rcond=None)
    published = _published(gpu)
    return {
        name: float(min(high, max(low, published[name] + move * scale)))
        for (name, (low, high, scale)), move in zip(FITTED[gpu].items(), moves, strict=True)
    }


def left_out(
    gpu: str,
    runs: Sequence[Sensitivity],
    simulate: Simulate,
    fold_of: Callable[[MeasuredRun], str],
    on_done: Callable[[str], None],
) -> list[LeftOut]:
    """Leave out each fold of runs in turn; a fold without others that suffice is left out of the result."""
    everything = fitted(gpu, runs)
    found = []
    for each in runs:
        others = [other for other in runs if fold_of(other.run) != fold_of(each.run)]
        if len(WEIGHTS) * len(others) <= len(FITTED[gpu]):
            continue
        own = fitted(gpu, others)
        errors = [
            _error(each, simulate(each.run, with_constants(gpu, constants)))
            for constants in (everything, own)
        ]
        found.append(
            LeftOut(
                run=each.run.name,
                published=_error(each, each.simulated),
                fitted_to_all=errors[0],
                left_out=errors[1],
                constants=own,
            )
        )
        on_done(each.run.name)
    return found


def _published(gpu: str) -> dict[str, float]:
    row = asdict(GPUS[gpu])
    return {name: float(row[name]) for name in FITTED[gpu]}


def _error(of: Sensitivity, simulated: Values) -> Values:
    """Simulated over measured, minus 1."""
    return exp(simulated[0] - of.measured[0]) - 1, exp(simulated[1] - of.measured[1]) - 1


KINDS = ("published", "fitted_to_all", "left_out")


def agreements(found: Sequence[LeftOut]) -> dict[str, Agreement]:
    """The errors over all runs, by the constants used."""
    return {kind: agreement_of([getattr(each, kind) for each in found]) for kind in KINDS}


def record_of(found: Sequence[LeftOut]) -> dict[str, Any]:
    """All errors in percent, ready for JSON."""
    return {
        "errors_percent": {kind: summary(each) for kind, each in agreements(found).items()},
        "rows": [
            {
                "run": each.run,
                **{
                    kind: [round(100 * value, 2) for value in getattr(each, kind)] for kind in KINDS
                },
                "constants": {name: round(value, 4) for name, value in each.constants.items()},
            }
            for each in found
        ],
    }


WORDS = {
    "published": "constants as published",
    "fitted_to_all": "fitted to all",
    "left_out": "left out",
}


def show(folds: str, found: Sequence[LeftOut], console: Console) -> None:
    """Print the errors of each run, and over all of them."""
    table = Shown(title=f"Left out {folds}", title_style="bold", box=None, padding=(0, 1, 0, 0))
    for place, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if place else "left", no_wrap=True)
    for each in found:
        table.add_row(*cells(record_of([each])["rows"][0]))
    console.print(table)
    for kind, errors in agreements(found).items():
        text = sentence(summary(errors), len(found))
        console.print(f"{WORDS[kind]}: {text}", highlight=False, soft_wrap=True)


HEADINGS = ["run", "tokens/s", "fitted to all", "left out", "TTFT", "fitted to all", "left out"]


def cells(row: Mapping[str, Any]) -> list[str]:
    """A run's cells of the table: errors of throughput, then of the time to the first token."""
    errors = [f"{row[kind][place]:+.1f} %" for place in (0, 1) for kind in KINDS]
    return [str(row["run"]), *errors]

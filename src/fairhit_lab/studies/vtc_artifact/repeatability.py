"""How well measured runs predict each other: what is left for a model that has no constant per run.

Runs of one workload differ in their scheduler, some in the minutes of arrivals or a rate, and the simulator
knows all of that. What it misses differently in each of them is how fast the machine was in that run. So
each run is predicted from the *measured* numbers of the workload's other runs, carried over by the
simulator's ratio of the two: a model that knows the speed of the workload, and not of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log1p
from statistics import fmean
from typing import Any

from rich.console import Console

from fairhit_lab.studies.vtc_artifact.comparison import Agreement, agreement_of, sentence, summary
from fairhit_lab.studies.vtc_artifact.cross_validation import LeftOut, Values


@dataclass(frozen=True, kw_only=True, slots=True)
class Repeated:
    """The runs whose workload has another run, and their errors by what predicts them.

    `others`: the workload's other measured runs. `mean`: all of them, the run included, which no
    prediction can know. `simulator`: the simulator, with constants fitted without the run.
    """

    runs: Sequence[str]
    others: Agreement
    mean: Agreement
    simulator: Agreement


def of(found: Sequence[LeftOut]) -> Repeated | None:
    """Compare the runs of each workload with each other; None if no workload has two."""
    runs: list[str] = []
    others: list[Values] = []
    means: list[Values] = []
    simulator: list[Values] = []
    for each in found:
        own = _missed(each)
        rest = [_missed(other) for other in found if other is not each and _like(each, other)]
        if not rest:
            continue
        runs.append(each.run)
        others.append(_error(own, rest))
        means.append(_error(own, [own, *rest]))
        simulator.append(each.left_out)
    if not runs:
        return None
    return Repeated(
        runs=runs,
        others=agreement_of(others),
        mean=agreement_of(means),
        simulator=agreement_of(simulator),
    )


def _like(one: LeftOut, other: LeftOut) -> bool:
    """Return whether both runs are of one workload."""
    return one.run.partition("/")[0] == other.run.partition("/")[0]


def _missed(run: LeftOut) -> Values:
    """Simulated over measured with one set of constants for all runs, as logarithms."""
    throughput, ttft = run.fitted_to_all
    return log1p(throughput), log1p(ttft)


def _error(own: Values, known: Sequence[Values]) -> Values:
    """Predicted over measured, minus 1, if the simulator is corrected by what it missed in `known`."""
    throughput, ttft = (
        exp(own[place] - fmean(each[place] for each in known)) - 1 for place in (0, 1)
    )
    return throughput, ttft


WORDS = {
    "others": "predicted from the workload's other measured runs",
    "mean": "from the mean of all its measured runs, this one included",
    "simulator": "by the simulator, fitted without the run",
}


def record_of(repeated: Repeated) -> dict[str, Any]:
    """The errors in percent, ready for JSON."""
    errors = {kind: summary(getattr(repeated, kind)) for kind in WORDS}
    return {"runs": len(repeated.runs), "errors_percent": errors}


def show(repeated: Repeated, console: Console) -> None:
    """Print the errors by what predicts the runs."""
    console.print("Runs whose workload was measured more than once", style="bold")
    for kind, words in WORDS.items():
        text = sentence(summary(getattr(repeated, kind)), len(repeated.runs))
        console.print(f"{words}: {text}", highlight=False, soft_wrap=True)

"""Runs of the VTC artifact measured and simulated: their numbers and errors, as text, JSON and Markdown."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from rich.console import Console
from rich.table import Table as Shown

from fairhit.errors import ConfigError, in_words
from fairhit_lab.metrics.vtc_table import Row, VtcTable, served, table


@dataclass(frozen=True, kw_only=True, slots=True)
class RunNumbers:
    """The numbers of a run: tokens/s, mean seconds to the first token, and the paper's table."""

    tokens_per_s: float
    ttft_s: float
    table: VtcTable


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A run measured, simulated, and simulated again under jitter, once per seed."""

    name: str
    requests: int
    measured: RunNumbers
    simulated: RunNumbers
    jittered: list[RunNumbers]

    @property
    def throughput_error(self) -> float:
        """Simulated over measured throughput, minus 1."""
        return self.simulated.tokens_per_s / self.measured.tokens_per_s - 1

    @property
    def ttft_error(self) -> float:
        """Simulated over measured time to the first token, minus 1."""
        return self.simulated.ttft_s / self.measured.ttft_s - 1


def numbers_of(rows: Sequence[Row], run: str) -> RunNumbers:
    """The numbers of a measured or a simulated run, which `run` names.

    Raises ConfigError if no request was served.
    """
    kept = served(rows)
    if not kept:
        raise ConfigError(f"{run}: no request was served, so that there is nothing to compare")
    numbers = table(rows)
    return RunNumbers(
        tokens_per_s=numbers.throughput,
        ttft_s=fmean(row.first_token_s - row.arrival_s for row in kept),
        table=numbers,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """Absolute errors over all runs."""

    throughput_mean: float
    throughput_worst: float
    ttft_median: float
    ttft_worst: float


def agreement(comparisons: Sequence[Comparison]) -> Agreement:
    """The errors over all runs: mean and worst throughput, median and worst time to the first token."""
    return agreement_of([(each.throughput_error, each.ttft_error) for each in comparisons])


def agreement_of(errors: Sequence[tuple[float, float]]) -> Agreement:
    """The same of relative errors of throughput and of the time to the first token, by run."""
    throughput, ttft = ([abs(pair[place]) for pair in errors] for place in (0, 1))
    return Agreement(
        throughput_mean=fmean(throughput),
        throughput_worst=max(throughput),
        ttft_median=median(ttft),
        ttft_worst=max(ttft),
    )


# A line of the report as JSON.
Line = Mapping[str, object]


def line(comparison: Comparison) -> dict[str, object]:
    """A run as JSON: rates in tokens/s, times in seconds, errors in percent of the measured value."""
    return {
        "run": comparison.name,
        "requests": comparison.requests,
        "measured": _rounded(comparison.measured),
        "simulated": _rounded(comparison.simulated),
        "error_percent": {
            "tokens_per_s": round(100 * comparison.throughput_error, 2),
            "ttft_s": round(100 * comparison.ttft_error, 2),
        },
        "jittered": {
            "seeds": len(comparison.jittered),
            **{
                name: [min(found), max(found)]
                for name in ("tokens_per_s", "ttft_s", "max_diff", "avg_diff")
                if (found := [_rounded(each)[name] for each in comparison.jittered])
            },
        },
    }


def _rounded(numbers: RunNumbers) -> dict[str, float]:
    return {
        "tokens_per_s": round(numbers.tokens_per_s, 1),
        "ttft_s": round(numbers.ttft_s, 2),
        "max_diff": round(numbers.table.max_diff, 1),
        "avg_diff": round(numbers.table.avg_diff, 1),
    }


def summary(agreement: Agreement) -> dict[str, float]:
    """Absolute errors over all runs, in percent."""
    return {
        "tokens_per_s_mean": round(100 * agreement.throughput_mean, 2),
        "tokens_per_s_worst": round(100 * agreement.throughput_worst, 2),
        "ttft_median": round(100 * agreement.ttft_median, 2),
        "ttft_worst": round(100 * agreement.ttft_worst, 2),
    }


SPEED = ["run", "tokens/s", "simul.", "error", "TTFT s", "simul.", "error"]
FAIRNESS = ["run", "Max", "simul.", "seeds", "Avg", "simul.", "seeds"]


def _part(row: Line, name: str) -> dict[str, Any]:
    part = row[name]
    assert isinstance(part, dict), row
    return part


def speed_cells(row: Line) -> list[str]:
    """A run's cells of the table SPEED."""
    texts = [str(row["run"])]
    for name, digits in (("tokens_per_s", 0), ("ttft_s", 2)):
        for part in ("measured", "simulated"):
            texts.append(f"{_part(row, part)[name]:,.{digits}f}")
        texts.append(f"{_part(row, 'error_percent')[name]:+.1f} %")
    return texts


def fairness_cells(row: Line) -> list[str]:
    """A run's cells of the table FAIRNESS: the paper's Max Diff and Avg Diff, in tokens/s."""
    texts = [str(row["run"])]
    for name in ("max_diff", "avg_diff"):
        for part in ("measured", "simulated"):
            texts.append(f"{_part(row, part)[name]:,.0f}")
        span = _part(row, "jittered").get(name)
        texts.append(f"{span[0]:,.0f}-{span[1]:,.0f}" if span else "")
    return texts


TABLES: list[tuple[str, list[str], Callable[[Line], list[str]]]] = [
    ("Speed: measured by the VTC artifact, and simulated", SPEED, speed_cells),
    ("Max Diff and Avg Diff, tokens/s: measured, and simulated", FAIRNESS, fairness_cells),
]


def sentence(errors: Mapping[str, float], runs: int) -> str:
    """The errors as a sentence."""
    return (
        f"{runs} runs: throughput off by {errors['tokens_per_s_mean']:.1f} % in the mean, "
        f"{errors['tokens_per_s_worst']:.1f} % at worst; mean time to the first token by "
        f"{errors['ttft_median']:.1f} % in the median, {errors['ttft_worst']:.1f} % at worst."
    )


def show(comparisons: Sequence[Comparison], agreement: Agreement, console: Console) -> None:
    """Print both tables and the sentence."""
    rows = [line(comparison) for comparison in comparisons]
    for title, headings, cells in TABLES:
        shown = Shown(title=title, title_style="bold", box=None, padding=(0, 1, 0, 0))
        for place, heading in enumerate(headings):
            shown.add_column(heading, justify="right" if place else "left", no_wrap=True)
        for row in rows:
            shown.add_row(*cells(row))
        console.print(shown)
    console.print(sentence(summary(agreement), len(comparisons)), highlight=False)


def markdown(rows: Sequence[Line]) -> list[str]:
    """Both tables as Markdown, for the docs."""
    return [
        "\n".join(
            [
                "| " + " | ".join(headings) + " |",
                "|---|" + "---:|" * (len(headings) - 1),
                *("| " + " | ".join(cells(row)) + " |" for row in rows),
            ]
        )
        for _, headings, cells in TABLES
    ]


def record(comparisons: Sequence[Comparison], agreement: Agreement) -> dict[str, object]:
    """All numbers, ready for JSON."""
    return {
        "errors_percent": summary(agreement),
        "rows": [line(comparison) for comparison in comparisons],
    }


def write(path: str, content: Mapping[str, object]) -> None:
    """Write numbers and their origin as JSON. Raises ConfigError."""
    try:
        Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out: {in_words(error)}") from None

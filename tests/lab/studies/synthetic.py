"""A study that runs in no time, and what runs and rows of any study may look like."""

import argparse
import io
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console

from fairhit.errors import ConfigError
from fairhit_lab.metrics.series import SeriesPoint
from fairhit_lab.runner import study_command
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import ResultRow, Results
from fairhit_lab.studies.shared.study import Case, Outcome, Study, Verdict

METRICS = ("service_system", "service_client", "requests", "response_time")


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """A case whose numbers are drawn by its seed; each run leaves a line in the file `log`.

    It takes `sleep_s`; `fails` says how it ends instead, for the case whose setting n is 1.
    """

    labels: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    log: str = ""
    series: bool = False
    sleep_s: float = 0.0
    fails: str = ""

    def described(self) -> dict[str, Any]:
        return dict(self.settings)

    def outcome(self, seed: int, data: Path | None) -> Outcome:
        if self.log:
            with Path(self.log).open("a", encoding="utf-8") as file:
                file.write(f"{self.settings} {seed}\n")
        time.sleep(self.sleep_s)
        if self.settings["n"] == 1 and self.fails == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.settings["n"] == 1 and self.fails == "refused":
            raise ConfigError("--quantum: expected more")
        if self.settings["n"] == 1 and self.fails == "bug":
            raise ZeroDivisionError("a bug")
        rng = Random(f"{self.settings} {seed}")
        points = [
            SeriesPoint(30.0 * tick, f"c{client}", name, None if tick == 2 else 100 * rng.random())
            for tick in range(6)
            for client in range(3)
            for name in METRICS
        ]
        return Outcome(summary={"speed": rng.random()}, series=points if self.series else ())


def timed(seed: int, log: str) -> dict[str, Any]:
    """Stands for a function of ours whose speed is measured; says when it begins and ends."""
    for word in ("begins", "ends"):
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"timed {seed} {word}\n")
        time.sleep(0.2)
    return {"speed": 1.0}


def study(cases: list[Case], **changes: Any) -> Study:
    """A study with a measure, speed, and a claim about it."""

    def judge(results: Results) -> list[Verdict]:
        speed = max(float(row["speed"] or 0) for row in results.rows)
        return [Verdict(claim="it moves", paper="1x", ours=f"{speed:.3g}", holds="holds")]

    return Study(
        **{
            "title": "A study",
            "source": "nowhere, Figure 0",
            "shows": "that it runs",
            "takes": "quick 1 s; full 1 s",
            "cases": lambda _: cases,
            "measures": {"speed": lambda outcome: outcome.summary["speed"]},
            "panels": [Panel(title="Speed", form="bars", x="quantum", y="speed")],
            "judge": judge,
            **changes,
        }
    )


def drawn(count: int, **settings: Any) -> list[Case]:
    """So many cases, which differ in one setting."""
    return [
        Drawn(labels={"policy": "dlpm", "quantum": n}, settings={"n": n}, **settings)
        for n in range(count)
    ]


def rows_of(study: Study, *, quick: bool, seeds: int) -> Results:
    """Rows that the study's cases could have left, with numbers drawn from 0 to 1."""
    rng = Random(f"{study.title} {quick}")
    cases = study.cases(quick)
    rows: list[ResultRow] = [
        {**case.labels, "seed": seed, **{name: rng.random() for name in study.measures}}
        for case in cases
        for seed in range(seeds)
    ]
    metrics = dict.fromkeys(panel.y for panel in study.panels if panel.of == "series")
    series: list[ResultRow] = [
        {
            **case.labels, "seed": 0, "time_s": 30.0 * tick, "client": f"c{client}",
            "metric": metric, "value": rng.random(),
        }
        for case in cases
        for tick in range(4)
        for client in range(3)
        for metric in metrics
    ]  # fmt: skip
    return Results(rows, series)


def run(folder: Path, studies: Mapping[str, Study], *flags: str) -> tuple[int, str]:
    """As `fairhit experiment` runs them, with its files in `folder`; exit status and what is shown."""
    parser = argparse.ArgumentParser()
    study_command.add_arguments(parser)
    console = Console(file=io.StringIO(), width=100)
    places = ["--out", str(folder / "out"), "--cache", str(folder / "cache"), "--jobs", "1"]
    options = parser.parse_args([*places, *flags])
    status = study_command.run_studies(studies, options, console)
    assert isinstance(console.file, io.StringIO)
    return status, console.file.getvalue()

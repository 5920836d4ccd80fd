"""The experiments by name: the studies, and those that are no studies (OTHERS).

A module named here has `add_arguments(parser)` and `run(options, console) -> exit status`. Modules are
imported on first use, as some need packages that others do without.
"""

import argparse
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console

from fairhit_lab.studies import STUDIES, study_of


class Module(Protocol):
    """The interface of an experiment's module."""

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Add the experiment's flags."""
        ...

    def run(self, options: argparse.Namespace, console: Console, /) -> int:
        """Run the experiment, show progress and result on the console, return the exit status.

        Raises ConfigError.
        """
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """A line of `fairhit experiment list`; a study has no module of its own.

    `alone`: the experiment needs arguments, so `all` leaves it out. `needs` is a file of the data
    folder.
    """

    summary: str
    takes: str
    source: str = ""
    module: str = ""
    alone: bool = False
    needs: str = ""


OTHERS: dict[str, Experiment] = {
    "calibrate": Experiment(
        summary="fit the constants of a GPU to measured passes",
        takes="seconds",
        module="calibration.calibrate",
        alone=True,
    ),
    "report": Experiment(
        summary="write one page with the figures and verdicts of all studies that ran",
        takes="half a minute",
        module="runner.report_command",
        alone=True,
    ),
    "rejudge": Experiment(
        summary="judge and draw results again from their rows, without a run",
        takes="a minute",
        module="runner.rejudge_command",
        alone=True,
    ),
    "vtc-calibration": Experiment(
        summary="compare the VTC artifact's measured runs with simulated ones",
        takes="quick a few s; full 4 min",
        source="VTC artifact",
        module="studies.vtc_artifact.calibration",
        needs="vtc_measured/requests.csv.gz",
    ),
}


class Experiments(Mapping[str, Experiment]):
    """The experiments by name; a study is imported when its line is read."""

    def __getitem__(self, name: str) -> Experiment:
        if name not in STUDIES:
            return OTHERS[name]
        study = study_of(name)
        return Experiment(summary=study.shows, takes=study.takes, source=study.source)

    def __iter__(self) -> Iterator[str]:
        return iter([*OTHERS, *STUDIES])

    def __len__(self) -> int:
        return len(OTHERS) + len(STUDIES)

    def __contains__(self, name: object) -> bool:
        return name in OTHERS or name in STUDIES


EXPERIMENTS = Experiments()


def module_of(name: str) -> Module:
    """The module or command that runs the experiment `name`, one of EXPERIMENTS."""
    if name in STUDIES:
        from fairhit_lab.runner.study_command import StudyCommand

        return StudyCommand(name)
    module: Module = importlib.import_module(f"fairhit_lab.{OTHERS[name].module}")
    return module

"""The experiments by name. A new one is a module beside this file and a line here.

The module has `add_arguments(parser)` and `run(options, console) -> exit status`; it is imported when
it is asked for, as some need what others do without.
"""

import argparse
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rich.console import Console

from fairlead.errors import ConfigError

DATA_VARIABLE = "FAIRLEAD_DATA"


class Module(Protocol):
    """What an experiment's module offers."""

    def add_arguments(self, parser: argparse.ArgumentParser, /) -> None:
        """Its flags."""
        ...

    def run(self, options: argparse.Namespace, console: Console, /) -> int:
        """Exit status; shows its result on the console, progress included. Raises ConfigError."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Experiment:
    """One line of `fairlead experiment list`. `alone`: it needs arguments, so `all` leaves it out."""

    summary: str
    takes: str
    module: str
    alone: bool = False

    def load(self) -> Module:
        """Its module."""
        module: Module = importlib.import_module(f"fairlead.experiments.{self.module}")
        return module


EXPERIMENTS: dict[str, Experiment] = {
    "calibrate": Experiment(
        summary="fits a GPU's constants to measured passes",
        takes="seconds",
        module="calibrate",
        alone=True,
    ),
    "vtc-calibration": Experiment(
        summary="the VTC artifact's measured runs beside simulated ones",
        takes="four minutes; --quick a few seconds",
        module="vtc_calibration",
    ),
}


def data_folder(
    given: str | None, needed: str, environment: Mapping[str, str] | None = None
) -> Path:
    """The folder of workload data, in which there is `needed`. Raises ConfigError.

    It is `given` (--data), else FAIRLEAD_DATA.
    """
    environment = os.environ if environment is None else environment
    text = given or environment.get(DATA_VARIABLE)
    if not text:
        raise ConfigError(
            f"--data: needed, or {DATA_VARIABLE}: the folder of workload data that holds {needed}"
        )
    folder = Path(text)
    if not (folder / needed).exists():
        name = "--data" if given else DATA_VARIABLE
        raise ConfigError(f"{name}: {folder} has no {needed}")
    return folder

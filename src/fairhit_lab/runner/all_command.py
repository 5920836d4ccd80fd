"""`fairhit experiment all`: every study in one pool, then the experiments that are no studies."""

import argparse
from collections.abc import Mapping, Sequence

from rich.console import Console

from fairhit.errors import ConfigError
from fairhit_lab.report.study_files import require_writable
from fairhit_lab.runner.registry import OTHERS, module_of
from fairhit_lab.runner.study_command import add_arguments as add_study_arguments
from fairhit_lab.runner.study_command import out_of, run_studies
from fairhit_lab.studies import STUDIES, study_of
from fairhit_lab.studies.shared.data_folder import data_folder
from fairhit_lab.studies.shared.study import Study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a study, and --skip-missing-data."""
    add_study_arguments(parser)
    parser.add_argument(
        "--skip-missing-data",
        action="store_true",
        help="leave out, and name, experiments whose data is missing",
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Run everything. Returns the exit status of the first part that failed. Raises ConfigError."""
    studies = {name: study_of(name) for name in STUDIES}
    needs = {name: _needs(study, options.quick) for name, study in studies.items()}
    others = {name: [other.needs] for name, other in OTHERS.items() if not other.alone}
    missing = _missing(needs | others, options)
    possible = {name: study for name, study in studies.items() if name not in missing}
    status = run_studies(possible, options, console)
    for name in others:
        if not status and name not in missing:
            status = _run_other(name, options, console)
    for name, problem in missing.items():
        console.print(f"left out: {name}: {problem}", soft_wrap=True, highlight=False, markup=False)
    return status


def _needs(study: Study, quick: bool) -> list[str]:
    return list(dict.fromkeys(file for case in study.cases(quick) for file in case.needs))


def _missing(needs: Mapping[str, Sequence[str]], options: argparse.Namespace) -> dict[str, str]:
    """The reason for each experiment whose data is missing. Raises ConfigError unless it may be left out."""
    missing: dict[str, str] = {}
    for name, files in needs.items():
        for file in files:
            try:
                data_folder(options.data, file)
            except ConfigError as error:
                if not options.skip_missing_data:
                    raise ConfigError(
                        f"{error} (for {name}; --skip-missing-data leaves it out)"
                    ) from None
                missing.setdefault(name, str(error))
    return missing


def _run_other(name: str, options: argparse.Namespace, console: Console) -> int:
    """Run an experiment that is no study; its files go beside those of the studies."""
    folder = out_of(options) / name
    require_writable(folder)
    module = module_of(name)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    module.add_arguments(parser)
    flags = ["--out", str(folder / "rows.json"), "--figure", str(folder / "figure.svg")]
    if options.data:
        flags += ["--data", options.data]
    if options.quick:
        flags += ["--quick"]
    return module.run(parser.parse_args(flags), console)

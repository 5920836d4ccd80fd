"""`fairhit experiment rejudge`: judge and draw results again from their committed rows, without a run."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from fairhit.errors import ConfigError
from fairhit.local import provenance
from fairhit_lab.report.folders import read_results
from fairhit_lab.report.study_files import FIGURES, ROWS, write_judgement
from fairhit_lab.runner.study_command import OUT as RESULTS
from fairhit_lab.studies import STUDIES, study_of
from fairhit_lab.studies.shared.study import Study


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the command."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="studies (all that have results)")
    parser.add_argument(
        "--results",
        default=str(RESULTS),
        metavar="DIR",
        help=f"a folder for each study ({RESULTS})",
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Judge the studies that have rows; 2 if a study has to run again. Raises ConfigError."""
    unknown = [name for name in options.names if name not in STUDIES]
    if unknown:
        raise ConfigError(f"{unknown[0]}: there is no study of that name; see `experiment list`")
    root = Path(options.results)
    names = options.names or [name for name in STUDIES if (root / name / ROWS).exists()]
    if not names:
        raise ConfigError(f"--results: {root} has no folder of a study; `fairhit experiment all`")
    stale = judge_again(root, {name: study_of(name) for name in names}, console)
    return 2 if stale else 0


def judge_again(root: Path, studies: Mapping[str, Study], console: Console) -> list[str]:
    """Write verdicts and figures anew from the rows; return the studies that have to run again.

    The rows stay as they are, and `about.json` keeps their commit beside that of the judgement.
    """
    from fairhit_lab.report.figures.plot import save_figure

    judged_at = {
        name: value
        for name, value in provenance.of_this_run().items()
        if name in {"commit", "date"}
    }
    stale = []
    for name, study in studies.items():
        folder = root / name
        try:
            results, about = read_results(folder, study)
        except ConfigError as error:
            console.print(str(error), highlight=False, markup=False, soft_wrap=True)
            stale.append(name)
            continue
        verdicts = study.verdicts(results)
        write_judgement(folder, name, verdicts, {**about, "judged": judged_at})
        save_figure([folder / figure for figure in FIGURES], study, results)
        console.print(f"{folder}: {len(verdicts)} claims", highlight=False, soft_wrap=True)
    return stale

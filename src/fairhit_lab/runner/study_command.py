"""`fairhit experiment NAME` for studies, one or all: flags, cases, files, verdicts on the terminal."""

import argparse
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairhit.errors import ConfigError, FairhitError
from fairhit.local import provenance
from fairhit_lab.report.study_files import (
    FIGURES,
    holds_full_run,
    replacing,
    require_writable,
    write_study,
)
from fairhit_lab.runner.cache import Cache, default_folder
from fairhit_lab.runner.running import Gathered, gathered, run_all
from fairhit_lab.studies import study_of
from fairhit_lab.studies.shared.data_folder import data_folder
from fairhit_lab.studies.shared.study import Holds, Study, Verdict

INTERRUPTED = 130
OUT, QUICK_OUT = Path("results") / "experiments", Path("results") / "quick"
SEEDS = 5


@dataclass(frozen=True, slots=True)
class StudyCommand:
    """The command of one study in the registry."""

    name: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags that all studies share."""
        add_arguments(parser)

    def run(self, options: argparse.Namespace, console: Console) -> int:
        """Run the study and return the exit status; see `run_studies`."""
        return run_studies({self.name: study_of(self.name)}, options, console)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags that all studies share."""
    parser.add_argument("--quick", action="store_true", help="fewer and shorter cases, one seed")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help=f"seeds 0 .. N-1 ({SEEDS}; with --quick 1)"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="processes at once (one a core)")
    parser.add_argument("--data", metavar="DIR", help="workload data (FAIRHIT_DATA)")
    parser.add_argument(
        "--out",
        metavar="DIR",
        help=f"parent of the studies' folders ({OUT}; with --quick {QUICK_OUT})",
    )
    parser.add_argument(
        "--cache", metavar="DIR", help="the cache of cases (~/.cache/fairhit/experiments)"
    )
    parser.add_argument("--no-cache", action="store_true", help="run every case, cache none")


def run_studies(studies: Mapping[str, Study], options: argparse.Namespace, console: Console) -> int:
    """Run studies, write their files, show their verdicts. Raises ConfigError, WorkerLost.

    Returns 0, or 130 if interrupted. An error in one study is raised after the others are complete.
    """
    seeds, workers = _counts(options)
    found = [
        gathered(name, study, quick=options.quick, seeds=range(seeds))
        for name, study in studies.items()
    ]
    data = _data_of(found, options.data)
    out = out_of(options)
    if options.quick:
        _require_no_full_run(out, studies)
    require_writable(out)
    notes = Console(stderr=True)
    cache = None if options.no_cache else _cache(options.cache, notes)
    run = _Run(out=out, quick=options.quick, began_s=time.monotonic())
    interrupted = False
    try:
        run_all(
            found, data=data, workers=workers, cache=cache, on_complete=run.write, console=notes
        )
    except KeyboardInterrupt:
        interrupted = True
    finally:
        if cache:
            cache.close()
    for study in found:
        if study.name in run.verdicts:
            show_verdicts(study.name, study.study, run.verdicts[study.name], console)
            files = f"{out / study.name}: {run.files[study.name]}\n"
            console.print(files, soft_wrap=True, markup=False)
    if interrupted:
        _print_interrupted(found, list(run.verdicts), cache, notes)
        return INTERRUPTED
    _raise_problems(found, notes)
    return 0


def out_of(options: argparse.Namespace) -> Path:
    """The folder of the studies' folders."""
    return Path(options.out) if options.out else QUICK_OUT if options.quick else OUT


def _require_no_full_run(out: Path, names: Iterable[str]) -> None:
    """Raise ConfigError rather than let a quick run replace a full one, which took hours."""
    for name in names:
        if holds_full_run(out / name):
            raise ConfigError(
                f"--out: {out / name} holds a full run, which --quick would replace;"
                " expected another folder, or that one removed"
            )


def _counts(options: argparse.Namespace) -> tuple[int, int]:
    """The number of seeds and of processes. Raises ConfigError."""
    seeds = options.seeds if options.seeds is not None else (1 if options.quick else SEEDS)
    jobs = options.jobs if options.jobs is not None else len(os.sched_getaffinity(0))
    for flag, number in (("--seeds", seeds), ("--jobs", jobs)):
        if number < 1:
            raise ConfigError(f"{flag}: expected a whole number from 1, got {number}")
    return seeds, jobs


def _data_of(studies: Sequence[Gathered], given: str | None) -> Path | None:
    """The data folder, if any case needs one. Raises ConfigError for the first missing file."""
    data = None
    for study in studies:
        for needed in dict.fromkeys(name for case in study.cases for name in case.needs):
            try:
                data = data_folder(given, needed)
            except ConfigError as error:
                raise ConfigError(f"{error} (for {study.name})") from None
    return data


def _cache(given: str | None, notes: Console) -> Cache:
    def say(message: str) -> None:
        notes.print(f"fairhit: {message}", soft_wrap=True, highlight=False, markup=False)

    return Cache(Path(given) if given else default_folder(), say=say)


class _Run:
    """Writes each study when it is complete; `verdicts` and `files` are those of written studies, by name."""

    def __init__(self, *, out: Path, quick: bool, began_s: float) -> None:
        self._out = out
        self._quick = quick
        self._began_s = began_s
        self._about = provenance.of_this_run()
        self.verdicts: dict[str, Sequence[Verdict]] = {}
        self.files: dict[str, str] = {}

    def write(self, found: Gathered) -> None:
        """Judge the study, write its files and draw its figure; no file appears before all are written."""
        from fairhit_lab.report.figures.plot import save_figure

        results, study = found.results(), found.study
        verdicts = study.verdicts(results)
        folder = self._out / found.name
        commit = self._about["commit"]
        with replacing(folder) as part:
            write_study(
                part,
                found.name,
                results,
                commit=str(commit) if commit else None,
                verdicts=verdicts,
                about=self._about_study(found, results.configs),
            )
            save_figure([part / name for name in FIGURES], study, results)
        self.verdicts[found.name] = verdicts
        self.files[found.name] = ", ".join(sorted(path.name for path in folder.iterdir()))

    def _about_study(
        self, found: Gathered, configs: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        study = found.study
        return {
            "study": found.name,
            "title": study.title,
            "source": study.source,
            "shows": study.shows,
            "choices": study.choices,
            "quick": self._quick,
            "seeds": list(found.seeds),
            "labels": list(found.cases[0].labels),
            "measures": list(study.measures),
            # CPU time of all cases when they ran, cached ones included; wall time of this command so far.
            "cpu_s": round(found.cpu_s, 2),
            "wall_s": round(time.monotonic() - self._began_s, 2),
            "runs": len(found.rows),
            "runs_from_cache": found.from_cache,
            **self._about,
            "configs": configs,
        }


def _print_interrupted(
    studies: Sequence[Gathered], whole: Sequence[str], cache: Cache | None, notes: Console
) -> None:
    runs = sum(len(study.cases) * len(study.seeds) for study in studies)
    done = runs - sum(study.missing for study in studies)
    kept = f"kept in {cache.folder}: the same command continues from there" if cache else "lost"
    written = ", ".join(whole) or "no study"
    notes.print(
        f"fairhit: interrupted: {done} of {runs} runs are done and {kept}; written: {written}",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


def _raise_problems(studies: Sequence[Gathered], notes: Console) -> None:
    """Print all problems but the first, then raise the first."""
    failed = [study for study in studies if study.problem is not None]
    for study in failed[1:]:
        message = f"fairhit: {study.name}: {study.problem}"
        notes.print(message, soft_wrap=True, highlight=False, markup=False, style=None)
    for study in failed[:1]:
        assert study.problem is not None
        if not isinstance(study.problem, FairhitError):
            study.problem.add_note(f"in study {study.name}")
        raise study.problem


STYLES: dict[Holds, str] = {
    "holds": "green",
    "holds in the median only": "yellow",
    "holds under conditions only": "yellow",
    "does not hold": "red",
    "not comparable": "dim",
}
MAX_WIDTH = 100


def show_verdicts(name: str, study: Study, verdicts: Sequence[Verdict], console: Console) -> None:
    """Print the verdicts as a table of at most 100 columns, reasons below their claims."""
    table = Table(title=Text(f"{name}: {study.title}"), title_justify="left", box=None, expand=True)
    table.add_column("claim", ratio=5)
    table.add_column("paper", ratio=2)
    table.add_column("ours", ratio=2)
    table.add_column("", ratio=2)
    for verdict in verdicts:
        claim = Text(verdict.claim)
        if verdict.why:
            claim.append(f"\n{verdict.why}", style="dim")
        holds = Text(verdict.holds, style=STYLES[verdict.holds])
        table.add_row(claim, Text(verdict.paper), Text(verdict.ours), holds)
    console.print(table, width=min(console.width, MAX_WIDTH))

"""Reads the results of studies: a folder each, read completely or reported as damaged."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, get_args

from fairhit.errors import ConfigError, in_words
from fairhit_lab.report.study_files import ABOUT, FIGURES, ROWS, SERIES, VERDICT_COLUMNS, VERDICTS
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Cell, ResultRow, Results
from fairhit_lab.studies.shared.study import Holds, Study, Verdict, Whose

HOLDS: tuple[Holds, ...] = get_args(Holds)
WHOSE: tuple[Whose, ...] = get_args(Whose)
SERIES_COLUMNS = ("seed", "time_s", "client", "metric", "value")
# Columns of the rows that are neither labels nor measures.
ABOUT_THE_RUN = ("study", "seed", "config", "commit")
AS_TEXT = {"config", "commit"}  # hashes, which may be all digits


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """A study with its results. `labels` are the columns that tell its cases apart.

    `csv` is the file of rows as it is, `figure` an SVG or empty.
    """

    name: str
    study: Study
    results: Results
    labels: tuple[str, ...]
    verdicts: Sequence[Verdict]
    about: Mapping[str, Any]
    csv: bytes
    figure: str


@dataclass(frozen=True, kw_only=True, slots=True)
class MissingStudy:
    """A study that cannot be shown, and the reason; `damaged`: its folder exists but is not as expected."""

    name: str
    study: Study | None
    reason: str
    damaged: bool


def read_folders(root: Path, studies: Mapping[str, Study]) -> list[Finished | MissingStudy]:
    """Results of all studies in their order, then unknown folders. Raises ConfigError if there is nothing."""
    try:
        # A hidden folder is left by a run that was killed.
        folders = sorted(
            entry.name
            for entry in root.iterdir()
            if entry.is_dir() and not entry.name.startswith(".")
        )
    except OSError as error:
        raise ConfigError(f"--results: {in_words(error)}") from None
    if not set(folders) & set(studies):
        raise ConfigError(f"--results: {root} has no folder of a study; `fairhit experiment all`")
    found = [_one(root, name, study, name in folders) for name, study in studies.items()]
    for name in folders:
        # A folder that is no result, such as a cache, has no rows.
        if name not in studies and (root / name / ROWS).exists():
            reason = f"{root / name}: there is no study of that name"
            found.append(MissingStudy(name=name, study=None, reason=reason, damaged=True))
    return found


def _one(root: Path, name: str, study: Study, is_there: bool) -> Finished | MissingStudy:
    if not is_there:
        return MissingStudy(
            name=name, study=study, reason=f"fairhit experiment {name} makes them", damaged=False
        )
    try:
        return read_folder(root / name, name, study)
    except ConfigError as error:
        return MissingStudy(name=name, study=study, reason=str(error), damaged=True)


def read_folder(folder: Path, name: str, study: Study) -> Finished:
    """Read one study's results. Raises ConfigError with file, line and reason."""
    results, about = read_results(folder, study)
    return Finished(
        name=name,
        study=study,
        results=results,
        labels=tuple(
            each
            for each in results.rows[0]
            if each not in ABOUT_THE_RUN and each not in study.measures
        ),
        verdicts=_verdicts(folder / VERDICTS),
        about=about,
        csv=_bytes(folder / ROWS),
        figure=_figure(folder / FIGURES[0]),
    )


def read_results(folder: Path, study: Study) -> tuple[Results, dict[str, Any]]:
    """Read one study's rows and curves, and what is said about them. Raises ConfigError."""
    path = folder / ROWS
    rows = _rows(path)
    columns = tuple(rows[0])
    for column in ("seed", *study.measures):
        if column not in columns:
            raise ConfigError(f"{path}:1: no column {column!r}; run the study again")
    series = _series(folder / SERIES)
    for panel in study.panels:
        _require_columns(panel, path, columns)
    about = _about(folder / ABOUT)
    configs = about.get("configs")
    return Results(rows, series, configs if isinstance(configs, dict) else {}), about


def _require_columns(panel: Panel, path: Path, columns: Sequence[str]) -> None:
    """Raise ConfigError unless the rows have the columns that a panel names; curves have their own."""
    if panel.of == "series":
        return
    for column in (panel.x, panel.y, panel.hue, *panel.where, *panel.columns):
        if column and column not in columns:
            raise ConfigError(f"{path}:1: no column {column!r}, which a panel shows")


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(in_words(error)) from None


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    """The heading and lines of a CSV file, each as wide as the heading.

    Raises ConfigError if the file is empty.
    """
    try:
        lines = list(csv.reader(io.StringIO(_bytes(path).decode(), newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error):
        raise ConfigError(f"{path}: expected CSV in UTF-8") from None
    if not lines:
        raise ConfigError(f"{path}: empty")
    heading, *rest = lines
    for number, line in enumerate(rest, 2):
        if len(line) != len(heading):
            raise ConfigError(f"{path}:{number}: expected {len(heading)} columns, got {len(line)}")
    return heading, rest


def _rows(path: Path) -> list[ResultRow]:
    heading, lines = _table(path)
    if not lines:
        raise ConfigError(f"{path}: no rows in it")
    return [
        {
            name: text if name in AS_TEXT else _cell(text)
            for name, text in zip(heading, line, strict=True)
        }
        for line in lines
    ]


def _cell(text: str) -> Cell:
    """The value of a cell: an integer, a float, None if empty or not finite, else text."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return value if isfinite(value := float(text)) else None
    except ValueError:
        return text or None


def _series(path: Path) -> list[ResultRow]:
    """The curves, empty without the file: few studies keep curves."""
    if not path.exists():
        return []
    heading, lines = _table(path)
    for column in SERIES_COLUMNS:
        if column not in heading:
            raise ConfigError(f"{path}:1: no column {column!r}")
    client = heading.index("client")
    found: list[ResultRow] = []
    for number, line in enumerate(lines, 2):
        # A client's name stays text, even if it is of digits.
        row = dict(zip(heading, map(_cell, line), strict=True))
        if not isinstance(row["time_s"], int | float):
            raise ConfigError(f"{path}:{number}: time_s: expected a number, got {row['time_s']!r}")
        found.append({**row, "client": line[client]})
    return found


def _verdicts(path: Path) -> list[Verdict]:
    heading, lines = _table(path)
    wanted = VERDICT_COLUMNS[1:]  # an older file has no study's name
    if tuple(each for each in heading if each in wanted) != wanted:
        raise ConfigError(f"{path}:1: expected the columns {','.join(wanted)}")
    found = []
    for number, line in enumerate(lines, 2):
        of = dict(zip(heading, line, strict=True))
        holds = next((each for each in HOLDS if each == of["holds"]), None)
        if holds is None:
            raise ConfigError(
                f"{path}:{number}: holds: expected one of {', '.join(HOLDS)}, got {of['holds']!r}"
            )
        if holds != "holds" and not of["why"]:
            raise ConfigError(f"{path}:{number}: why: expected a reason, as it is {holds!r}")
        whose = next((each for each in WHOSE if each == of["whose"]), None)
        if whose is None:
            raise ConfigError(
                f"{path}:{number}: whose: expected paper or ours, got {of['whose']!r}"
            )
        found.append(
            Verdict(
                claim=of["claim"],
                paper=of["paper"],
                ours=of["ours"],
                holds=holds,
                why=of["why"],
                whose=whose,
                least=_number(path, number, of["least"]),
                greatest=_number(path, number, of["greatest"]),
            )
        )
    return found


def _number(path: Path, line: int, text: str) -> float | None:
    """A limit of what a run could show; None if empty."""
    value = _cell(text)
    if isinstance(value, str):
        raise ConfigError(f"{path}:{line}: expected a number, got {text!r}")
    return value


def _about(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_bytes(path))
    except ValueError:
        raise ConfigError(f"{path}: expected JSON") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: expected an object")
    return found


def _figure(path: Path) -> str:
    """The SVG, empty without the file."""
    if not path.exists():
        return ""
    try:
        text = _bytes(path).decode()
    except UnicodeDecodeError:
        text = ""
    if "<svg" not in text or "</svg>" not in text:
        raise ConfigError(f"{path}: expected an SVG")
    return text

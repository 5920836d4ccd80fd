"""A study's files: rows, curves, verdicts and where they come from. The same run gives the same bytes."""

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fairlead.errors import ConfigError, in_words
from fairlead.experiments.results import Cell, ResultRow, Results
from fairlead.experiments.study import Verdict
from fairlead.workloads.files import written

ROWS, SERIES, VERDICTS, ABOUT = "rows.csv", "series.csv", "verdicts.csv", "about.json"
FIGURES = ("figure.svg", "figure.png")
VERDICT_COLUMNS = ("study", "claim", "paper", "ours", "holds", "why")

INTEGER = re.compile(r"-?\d+")


def require_writable(folder: Path, flag: str = "--out") -> None:
    """Make the folder, if need be, and see that a file can be written there. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"{flag}: {in_words(error)}") from None


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """As CSV. Floats are as short as they can be and still the same; None is an empty cell."""
    text = io.StringIO(newline="")
    table = csv.writer(text, lineterminator="\n")
    table.writerow(columns)
    table.writerows([_cell(value) for value in row] for row in rows)
    with written(path) as file:
        file.write(text.getvalue().encode())


def _cell(value: Cell) -> str:
    if value is None:
        return ""
    # float(): numpy's have a repr of their own.
    return repr(float(value)) if isinstance(value, float) else str(value)


def read_table(path: Path) -> list[dict[str, Cell]]:
    """The rows of a CSV; what looks like a number is one. Raises ConfigError if there is none."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [
                {name: _read_cell(text) for name, text in row.items()}
                for row in csv.DictReader(file)
            ]
    except OSError as error:
        raise ConfigError(in_words(error)) from None


def _read_cell(text: str) -> Cell:
    if not text:
        return None
    if INTEGER.fullmatch(text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def write_study(
    folder: Path,
    name: str,
    results: Results,
    *,
    configs: Sequence[str],
    commit: str | None,
    verdicts: Sequence[Verdict],
    about: Mapping[str, Any],
) -> None:
    """All but the figures. `configs`: the hash of each row's case. Raises ConfigError."""
    require_writable(folder)
    own = list(results.rows[0])
    write_table(
        folder / ROWS,
        ("study", *own, "config", "commit"),
        (
            (name, *(row[column] for column in own), config, commit)
            for row, config in zip(results.rows, configs, strict=True)
        ),
    )
    if results.series:
        columns = list(results.series[0])
        points = ((name, *(row[column] for column in columns)) for row in results.series)
        write_table(folder / SERIES, ("study", *columns), points)
    else:
        (folder / SERIES).unlink(missing_ok=True)  # of another version of the study
    write_table(
        folder / VERDICTS,
        VERDICT_COLUMNS,
        ((name, v.claim, v.paper, v.ours, v.holds, v.why) for v in verdicts),
    )
    with written(folder / ABOUT) as file:
        file.write(json.dumps(about, indent=2).encode() + b"\n")


def read_results(folder: Path) -> Results:
    """What was written there, for figures and reports. Raises ConfigError if there is none."""
    series: list[ResultRow] = []
    if (folder / SERIES).exists():
        series.extend(read_table(folder / SERIES))
    return Results(rows=list(read_table(folder / ROWS)), series=series)


def read_verdicts(folder: Path) -> list[Verdict]:
    """What was judged there, as text. Raises ConfigError if there is none."""
    path = folder / VERDICTS
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise ConfigError(in_words(error)) from None
    return [Verdict(**{key: row[key] for key in VERDICT_COLUMNS[1:]}) for row in rows]  # type: ignore[arg-type]

"""Writes a study's files: rows, curves, verdicts and their origin. The same run gives the same bytes."""

import csv
import io
import json
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairhit.errors import ConfigError, in_words
from fairhit_lab.studies.shared.results import Cell, Results
from fairhit_lab.studies.shared.study import Verdict
from fairhit_lab.traces.files import written

ROWS, SERIES, VERDICTS, ABOUT = "rows.csv", "series.csv", "verdicts.csv", "about.json"
FIGURES = ("figure.svg", "figure.png")
VERDICT_COLUMNS = (
    "study", "claim", "whose", "paper", "ours", "holds", "why", "least", "greatest",
)  # fmt: skip


def require_writable(folder: Path, flag: str = "--out") -> None:
    """Create the folder and probe that a file can be written there. Raises ConfigError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".probe"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise ConfigError(f"{flag}: {in_words(error)}") from None


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A temporary folder for a study's files; on exit all of them replace those in `folder`, or none does.

    An older run's files stay until then, and files that are no study's stay for good. An interrupt
    during the replacement is raised after it. Raises ConfigError.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as beside:
        yield Path(beside)
        require_writable(folder)
        try:
            with _uninterrupted():
                for name in (ROWS, SERIES, VERDICTS, ABOUT, *FIGURES):
                    if (Path(beside) / name).exists():
                        os.replace(Path(beside) / name, folder / name)
                    else:  # written by another version of the study
                        (folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"--out: {in_words(error)}") from None


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Defers Ctrl-C until the block is over."""
    interrupts: list[object] = []
    before = signal.signal(signal.SIGINT, lambda *signal: interrupts.append(signal))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupts:
        raise KeyboardInterrupt


def holds_full_run(folder: Path) -> bool:
    """True if the folder has the results of a run without --quick."""
    try:
        about = json.loads((folder / ABOUT).read_bytes())
    except (OSError, ValueError):
        return False  # no results that a report could show
    return isinstance(about, dict) and about.get("quick") is False


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Write a CSV file.

    Floats are the shortest text that reads back as the same number; None is an empty cell.
    """
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


def write_study(
    folder: Path,
    name: str,
    results: Results,
    *,
    commit: str | None,
    verdicts: Sequence[Verdict],
    about: Mapping[str, Any],
) -> None:
    """Write all files but the figures. Raises ConfigError."""
    require_writable(folder)
    own = list(results.rows[0])
    write_table(
        folder / ROWS,
        ("study", *own, "commit"),
        ((name, *(row[column] for column in own), commit) for row in results.rows),
    )
    if results.series:
        columns = list(results.series[0])
        points = ((name, *(row[column] for column in columns)) for row in results.series)
        write_table(folder / SERIES, ("study", *columns), points)
    write_judgement(folder, name, verdicts, about)


def write_judgement(
    folder: Path, name: str, verdicts: Sequence[Verdict], about: Mapping[str, Any]
) -> None:
    """Write the verdicts, the paper's claims first, and what the study is about."""
    ordered = sorted(verdicts, key=lambda verdict: verdict.whose == "ours")
    write_table(
        folder / VERDICTS,
        VERDICT_COLUMNS,
        ((name, *(getattr(each, column) for column in VERDICT_COLUMNS[1:])) for each in ordered),
    )
    with written(folder / ABOUT) as file:
        file.write(json.dumps(about, indent=2).encode() + b"\n")

"""Protocol of importers, and what the formats share: cells of CSV files with file, line and column."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from fairhit.errors import ConfigError
from fairhit_lab.traces import fields
from fairhit_lab.traces.fields import WrongField
from fairhit_lab.traces.files import lines
from fairhit_lab.traces.parameters import WorkloadSetting, settings_of
from fairhit_lab.traces.rows import runs
from fairhit_lab.traces.trace import TraceRow

Cell = TypeVar("Cell")


@dataclass(frozen=True, kw_only=True)
class Format:
    """A source format. `read` takes the files, a random generator and its keyword settings.

    It yields rows by arrival and raises ConfigError with file, line and field.
    """

    summary: str
    source: str
    read: Callable[..., Iterator[TraceRow]]

    def settings(self) -> dict[str, WorkloadSetting]:
        """Settings of the importer, by name."""
        return settings_of(self.read)

    def rows(self, paths: Sequence[str], rng: Random, **settings: Any) -> Iterator[TraceRow]:
        """The requests of the files, by arrival: the same files, generator and settings, the same rows."""
        return self.read(paths, rng, **settings)


@dataclass(frozen=True, slots=True)
class Cells:
    """A line of a CSV file with a header; every error names file, line and column."""

    path: str
    line: int
    values: dict[str, str]

    def __contains__(self, column: str) -> bool:
        return bool(self.values.get(column))

    def us(self, column: str) -> int:
        """Seconds, as microseconds."""
        return self._checked(lambda: fields.microseconds(self._number(column), column))

    def whole(self, column: str, *, least: int = 0) -> int:
        """A whole number."""
        return self._checked(lambda: fields.whole(self._number(column), column, least=least))

    def real(self, column: str, *, least: float = 0) -> float:
        """A number, as near as a float comes."""
        try:
            value = float(self.values[column])
        except ValueError:
            value = -1.0
        if not least <= value <= fields.MAX_SECONDS:
            self.wrong(column, f"a number from {least}")
        return value

    def name(self, column: str) -> str:
        """A text that is not empty."""
        return self._checked(lambda: fields.name(self.values[column].strip(), column))

    def wrong(self, column: str, expected: str) -> None:
        """Raise ConfigError for this cell."""
        raise self.at(WrongField(column, expected, self.values[column]))

    def at(self, error: ConfigError) -> ConfigError:
        """The error with this line's place in front."""
        return ConfigError(f"{self.path}:{self.line}: {error}")

    def _number(self, column: str) -> object:
        return fields.number(self.values[column])

    def _checked(self, read: Callable[[], Cell]) -> Cell:
        try:
            return read()
        except ConfigError as error:
            raise self.at(error) from None


def cells(path: str, *choices: Sequence[str]) -> Iterator[Cells]:
    """The lines of a CSV file that has one of these sets of columns, others being ignored.

    A field may not run over lines. Raises ConfigError with file and line.
    """
    header: list[str] = []
    for number, line in lines(path):
        try:
            text = line.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise ConfigError(f"{path}:{number}: expected UTF-8") from None
        values = next(csv.reader([text]))
        if not header:
            header = [name.strip() for name in values]
            if not any(set(columns) <= set(header) for columns in choices):
                wanted = " or ".join(",".join(columns) for columns in choices)
                raise ConfigError(f"{path}:{number}: expected columns {wanted}, got {text[:80]}")
        elif len(values) != len(header):
            raise ConfigError(
                f"{path}:{number}: expected {len(header)} fields as in the header, got {len(values)}"
            )
        else:
            yield Cells(path, number, dict(zip(header, values, strict=True)))


def lengths_only(
    identity: str, *, client: str, at_us: int, input_len: int, output_len: int
) -> TraceRow:
    """A request of which only lengths are known: its prompt shares nothing with any other."""
    return TraceRow(
        id=identity,
        client=client,
        arrival_us=at_us,
        prompt=runs([(identity, input_len)]),
        output_len=output_len,
        max_tokens=output_len,
    )


def rising(rows: Iterable[tuple[Cells, TraceRow]]) -> Iterator[TraceRow]:
    """The rows of one file. Raises ConfigError at a line that is earlier than the one before."""
    last_us = 0
    for place, row in rows:
        if row.arrival_us < last_us:
            raise place.at(
                ConfigError("expected lines sorted by time, got one before its forerunner")
            )
        last_us = row.arrival_us
        yield row

"""The VTC artifact's measured runs: every request of 25 runs, with the latencies its client saw."""

import csv
import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fairhit.errors import ConfigError, in_words
from fairhit_lab.metrics.vtc_table import Row

REQUESTS = "vtc_measured/requests.csv.gz"
COLUMNS = (
    "workload", "scheduler", "t_s", "client", "input_tokens", "output_tokens",
    "first_token_latency_s", "request_latency_s",
)  # fmt: skip
BEYOND = ""  # the key of a line's cells beyond the last column
MOST = 10**9  # seconds or tokens; larger values are no measurements


class MeasuredRequest(NamedTuple):
    """A request as its caller saw it; both latencies are from `t_s` on, -1 if rejected."""

    t_s: float
    client: int
    input_len: int
    output_len: int
    first_token_s: float
    latency_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRun:
    """A run of the artifact: a workload under a scheduler, both by the artifact's names."""

    workload: str
    scheduler: str
    requests: list[MeasuredRequest]

    @property
    def name(self) -> str:
        """Workload and scheduler, as "overload/VTC"."""
        return f"{self.workload}/{self.scheduler}"

    def rows(self) -> list[Row]:
        """The requests as rows for the metrics."""
        return [
            Row(
                client=f"c{each.client}",
                arrival_s=each.t_s,
                first_token_s=each.t_s + each.first_token_s,
                finish_s=each.t_s + each.latency_s,
                input_len=each.input_len,
                output_len=each.output_len,
                aborted=each.latency_s < 0,
            )
            for each in self.requests
        ]


def read_runs(data: Path) -> list[MeasuredRun]:
    """Read all runs, in the order of the file. Raises ConfigError with file and line."""
    runs: dict[tuple[str, str], MeasuredRun] = {}
    for workload, scheduler, measured in _lines(data / REQUESTS):
        key = (workload, scheduler)
        if key not in runs:
            runs[key] = MeasuredRun(workload=workload, scheduler=scheduler, requests=[])
        runs[key].requests.append(measured)
    if not runs:
        raise ConfigError(f"{data / REQUESTS}: has no runs")
    return list(runs.values())


def _lines(path: Path) -> Iterator[tuple[str, str, MeasuredRequest]]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file, restkey=BEYOND)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise ConfigError(f"{path}:1: expected the columns {','.join(COLUMNS)}")
            for line in reader:
                yield _parsed(line, f"{path}:{reader.line_num}")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error) as error:
        reason = in_words(error) if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


def _parsed(line: dict[str, str], where: str) -> tuple[str, str, MeasuredRequest]:
    """The run's two names and the request of one line. Raises ConfigError with `where`."""
    if BEYOND in line:
        found = len(COLUMNS) + len(line[BEYOND])
        raise ConfigError(f"{where}: expected {len(COLUMNS)} cells, got {found}")
    try:
        measured = MeasuredRequest(
            t_s=float(line["t_s"]),
            client=int(line["client"]),
            input_len=int(line["input_tokens"]),
            output_len=int(line["output_tokens"]),
            first_token_s=float(line["first_token_latency_s"]),
            latency_s=float(line["request_latency_s"]),
        )
    except (TypeError, ValueError):
        raise ConfigError(f"{where}: expected numbers, got {list(line.values())}") from None
    if wrong := _out_of_range(measured):
        raise ConfigError(f"{where}: {wrong}")
    return line["workload"], line["scheduler"], measured


def _out_of_range(one: MeasuredRequest) -> str | None:
    """The first number that no measured request can have, with its bounds; None if there is none."""
    for column, value, least in (
        ("t_s", one.t_s, 0),
        ("client", one.client, 0),
        ("input_tokens", one.input_len, 1),
        ("output_tokens", one.output_len, 1),
        ("first_token_latency_s", one.first_token_s, -1),
        ("request_latency_s", one.latency_s, -1),
    ):
        if not least <= value <= MOST:  # false for NaN, too
            return f"{column}: expected {least} to {MOST:,}, got {value}"
    rejected = one.first_token_s == one.latency_s == -1
    if not rejected and not 0 < one.first_token_s <= one.latency_s:
        return "expected both latencies -1, or 0 < first_token_latency_s <= request_latency_s"
    return None

"""The VTC artifact's `all_results_SUITE.jsonl` as two CSV files: every request, and every run.

A run's scheduler is the name of its folder (`VTC`, `LShare/rpm5` is RPM5), its workload that of its file.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

from fairhit.errors import ConfigError, in_words
from fairhit_lab.traces.fields import Number, WrongField, parse_object, whole
from fairhit_lab.traces.files import lines, written

REQUESTS = (
    "workload", "scheduler", "t_s", "client", "input_tokens", "output_tokens", "first_token_latency_s",
    "request_latency_s",
)  # fmt: skip
RUNS = (
    "workload", "scheduler", "requests", "aborted", "makespan_s", "tokens_per_s", "config_duration_s",
    "config_req_rate_per_s",
)  # fmt: skip


def convert(paths: Sequence[str], folder: str) -> int:
    """Write `requests.csv.gz` and `runs.csv` there; how many runs. Raises ConfigError with file and line."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(in_words(error)) from None
    count = 0
    requests_path, runs_path = Path(folder) / "requests.csv.gz", Path(folder) / "runs.csv"
    with written(requests_path) as requests_file, written(runs_path) as runs_file:
        requests, runs = _Table(requests_file, REQUESTS), _Table(runs_file, RUNS)
        for path in paths:
            for rows, run in _runs(path):
                requests.writerows(rows)
                runs.writerow(run)
                count += 1
        for table in (requests, runs):
            table.flush()
    return count


class _Table:
    """A CSV file in a file of bytes."""

    def __init__(self, file: IO[bytes], header: Sequence[str]) -> None:
        self._text = io.TextIOWrapper(cast("Any", file), encoding="utf-8", newline="")
        self._csv = csv.writer(self._text, lineterminator="\n")
        self.writerow(header)

    def writerow(self, row: Sequence[object]) -> None:
        """Write a line."""
        self._csv.writerow(row)

    def writerows(self, rows: Sequence[Sequence[object]]) -> None:
        """So many lines."""
        self._csv.writerows(rows)

    def flush(self) -> None:
        """Flush the text into the binary file, which stays open."""
        self._text.detach()


def _named(path: str) -> tuple[str, str]:
    """Workload and scheduler."""
    place = Path(path).absolute()
    found = re.fullmatch(r"all_results_(.+?)\.jsonl(\.gz|\.zst)?", place.name)
    if found is None:
        raise ConfigError(f"{path}: expected a file called all_results_WORKLOAD.jsonl")
    scheduler = re.sub(r"_(\d+)$", r"\1", place.parent.name)  # VTC_pred_50 is called VTC_pred50
    if limit := re.fullmatch(r"rpm(\d+)", scheduler):
        scheduler = f"RPM{limit[1]}"
    return found[1].replace("-", "_"), scheduler


class _Response(NamedTuple):
    """A request as it was measured, in seconds; both latencies are -1 if it was rejected."""

    at_s: float
    client: int
    input_len: int
    output_len: int
    first_token_s: float
    latency_s: float

    def cells(self) -> list[object]:
        """As the CSV file has it."""
        first, latency = (_rounded(value) for value in (self.first_token_s, self.latency_s))
        return [f"{self.at_s:.3f}", self.client, self.input_len, self.output_len, first, latency]


def _rounded(latency_s: float) -> str:
    return "-1" if latency_s < 0 else str(round(latency_s, 3))


def _runs(path: str) -> Iterator[tuple[list[list[object]], list[object]]]:
    """Of each run its requests by time, and itself."""
    workload, scheduler = _named(path)
    for number, line in lines(path):
        try:
            record = parse_object(line)
            responses = [_response(one, at) for at, one in enumerate(_responses(record))]
            makespan_s = _real(record["result"], "total_time", "result")
        except ConfigError as error:
            raise ConfigError(f"{path}:{number}: {error}") from None
        responses.sort(key=lambda one: one.at_s)
        yield (
            [[workload, scheduler, *one.cells()] for one in responses],
            [workload, scheduler, *_run(responses, makespan_s, record["config"])],
        )


def _responses(record: dict[str, Any]) -> list[Any]:
    config, result = record.get("config"), record.get("result")
    if not isinstance(config, dict):
        raise WrongField("config", "an object", config)
    responses = result.get("responses") if isinstance(result, dict) else None
    if not isinstance(responses, list) or not responses:
        raise WrongField("result.responses", "a list of responses", responses)
    return responses


def _response(one: Any, at: int) -> _Response:
    where = f"result.responses[{at}]"
    if not isinstance(one, dict):
        raise WrongField(where, "an object", one)
    adapter = one.get("adapter_dir")
    number = re.search(r"(\d+)$", adapter) if isinstance(adapter, str) else None
    if number is None:
        raise WrongField(f"{where}.adapter_dir", "a name that ends in a number", adapter)
    return _Response(
        at_s=_real(one, "req_time", where),
        client=int(number[1]),
        input_len=whole(one.get("prompt_len"), f"{where}.prompt_len", least=1),
        output_len=whole(one.get("output_len"), f"{where}.output_len", least=1),
        first_token_s=_real(one, "first_token_latency", where),
        latency_s=_real(one, "request_latency", where),
    )


def _real(one: dict[str, Any], name: str, where: str) -> float:
    value = one.get(name)
    if type(value) is int or type(value) is Number:
        number = float(value)
        if -1 <= number <= 10**9:
            return number
    raise WrongField(f"{where}.{name}", "a number from -1", value)


def _run(responses: list[_Response], makespan_s: float, config: dict[str, Any]) -> list[object]:
    served = [one for one in responses if one.latency_s >= 0]
    tokens = sum(one.input_len + one.output_len for one in served)
    rates = config.get("req_rate", "")
    return [
        len(responses),
        len(responses) - len(served),
        f"{makespan_s:.3f}",
        f"{tokens / makespan_s:.1f}" if makespan_s > 0 else "0.0",
        config.get("duration", ""),
        "|".join(str(rate) for rate in rates) if isinstance(rates, list) else rates,
    ]

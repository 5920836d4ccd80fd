"""Rows as the lines of a trace (DESIGN 6.1): what `read_trace` reads back as the same rows."""

import json
from collections.abc import Iterable, Iterator
from typing import IO

from fairhit.core.cache.token_runs import Runs
from fairhit_lab.traces.fields import seconds
from fairhit_lab.traces.trace import TraceRow


def write_trace(rows: Iterable[TraceRow], file: IO[bytes]) -> int:
    """Write them as JSONL and return how many there were. The same rows give the same bytes."""
    count = 0
    for row in rows:
        file.write(line(row))
        count += 1
    return count


def line(row: TraceRow) -> bytes:
    """Encode a row without the fields that have their defaults. ASCII, ends with a newline."""
    fields = ",".join(f'"{name}":{value}' for name, value in _fields(row))
    return f"{{{fields}}}\n".encode("ascii")


def _fields(row: TraceRow) -> Iterator[tuple[str, str]]:
    yield "id", json.dumps(row.id)
    yield "client", json.dumps(row.client)
    yield "arrival", seconds(row.arrival_us)
    yield "prompt", _tokens(row.prompt)
    yield "output_len", str(row.output_len)
    if row.max_tokens != row.output_len:
        yield "max_tokens", str(row.max_tokens)
    if row.output is not None:
        yield "output", _tokens(row.output)
    if row.program is not None:
        yield "program", json.dumps(row.program)
    if row.after:
        yield "after", _json(row.after)
    if row.weight is not None:
        yield "weight", seconds(row.weight)
    if row.cancel_us is not None:
        yield "cancel_at", seconds(row.cancel_us)


def _tokens(runs: Runs) -> str:
    (segment, *_), *more = runs.runs
    if isinstance(segment, tuple):
        assert not more, "the format has no prompt of ids and segments mixed"
        return _json(segment)
    # A run of the format begins at its segment's first token.
    assert all(isinstance(run[0], str) and run[1] == 0 for run in runs.runs), runs
    return _json([(run[0], run[2]) for run in runs.runs])


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))

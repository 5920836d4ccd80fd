"""A trace: what clients ask for and when, one row a request (DESIGN 6.1)."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from sys import intern
from typing import Any

from fairhit.core.cache.token_runs import Runs
from fairhit.core.request import ClientId, RequestId
from fairhit.errors import ConfigError
from fairhit_lab.traces.fields import (
    WrongField,
    microseconds,
    name,
    parse_object,
    seconds,
    tokens,
    weight,
    whole,
)
from fairhit_lab.traces.files import STANDARD, lines
from fairhit_lab.traces.hash_set import HashSet


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceRow:
    """A request of a trace; the simulator makes a `Request` of it when it starts.

    It starts at `arrival_us` or when the last of `after` finishes, whichever is later. It emits
    `output_len` tokens and asks for room for `max_tokens`. `output`, where known, stays cached
    behind the prompt. `weight` is in millionths, None where the row does not say.
    """

    id: RequestId
    client: ClientId
    arrival_us: int
    prompt: Runs
    output_len: int
    max_tokens: int
    output: Runs | None = None
    program: str | None = None
    after: tuple[RequestId, ...] = ()
    weight: int | None = None
    cancel_us: int | None = None


REQUIRED = dict.fromkeys(("id", "client", "arrival", "prompt", "output_len")).keys()
OPTIONAL = ("max_tokens", "output", "program", "after", "weight", "cancel_at")
FIELDS = dict.fromkeys((*REQUIRED, *OPTIONAL)).keys()


def read_trace(path: str | Path) -> Iterator[TraceRow]:
    """The rows of a JSONL file, `.gz` and `.zst` unpacked, `-` for standard input, one at a time.

    Of the rows before only a hash of each id (at most 32 bytes) and each client's weight are kept, so
    a trace may be larger than memory. Raises ConfigError, with file, line and field, at the first
    row that breaks a rule of DESIGN 6.1. O(fields and runs) a row.
    """
    rules = _Rules()
    shown = "<stdin>" if str(path) == STANDARD else path
    for number, line in lines(path):
        try:
            row = _row(parse_object(line))
            rules.keep(row)
        except ConfigError as error:
            raise ConfigError(f"{shown}:{number}: {error}") from None
        yield row


def _row(record: dict[str, Any]) -> TraceRow:
    """Check one line by itself."""
    if record.keys() != REQUIRED:
        _require_known(record)
    output_len = whole(record["output_len"], "output_len", least=1)
    arrival_us = microseconds(record["arrival"], "arrival")
    more = dict(_more(record, arrival_us, output_len)) if len(record) > len(REQUIRED) else {}
    return TraceRow(
        id=name(record["id"], "id"),
        client=intern(name(record["client"], "client")),
        arrival_us=arrival_us,
        prompt=tokens(record["prompt"], "prompt"),
        output_len=output_len,
        max_tokens=more.pop("max_tokens", output_len),
        **more,
    )


def _require_known(record: dict[str, Any]) -> None:
    for field in record:
        if field not in FIELDS:
            raise ConfigError(f"field {json.dumps(field)}: expected one of {', '.join(FIELDS)}")
    for field in REQUIRED:
        if field not in record:
            raise ConfigError(f'field "{field}": expected a value, got no such field')


def _more(record: dict[str, Any], arrival_us: int, output_len: int) -> Iterator[tuple[str, Any]]:
    """The optional fields that the line has."""
    if "max_tokens" in record:
        yield "max_tokens", whole(record["max_tokens"], "max_tokens", least=output_len)
    if "output" in record:
        output = tokens(record["output"], "output")
        if len(output) != output_len:
            raise ConfigError(
                f'field "output": expected output_len = {output_len} tokens, got {len(output)}'
            )
        yield "output", output
    if "program" in record:
        yield "program", intern(name(record["program"], "program"))
    if "after" in record:
        yield "after", _after(record["after"])
    if "weight" in record:
        yield "weight", weight(record["weight"])
    if "cancel_at" in record:
        cancel_us = microseconds(record["cancel_at"], "cancel_at")
        if cancel_us < arrival_us:
            raise WrongField("cancel_at", "no time before arrival", record["cancel_at"])
        yield "cancel_us", cancel_us


def _after(value: object) -> tuple[RequestId, ...]:
    if type(value) is not list:
        raise WrongField("after", "a list of ids", value)
    parents = tuple(name(parent, f"after[{at}]") for at, parent in enumerate(value))
    if len(set(parents)) != len(parents):
        raise WrongField("after", "each id once", value)
    return parents


class _Rules:
    """Rules across lines: unique ids, order, one weight a client, parents first."""

    def __init__(self) -> None:
        self._ids = HashSet()
        self._weights: dict[ClientId, int | None] = {}  # what each client's first row says
        self._last_us = 0

    def keep(self, row: TraceRow) -> None:
        """Remember the row. Raises ConfigError if it contradicts an earlier one. O(1) amortised."""
        if row.arrival_us < self._last_us:
            raise ConfigError(
                f'field "arrival": expected lines sorted by arrival (the line before has '
                f"{seconds(self._last_us)}), got {seconds(row.arrival_us)}"
            )
        self._last_us = row.arrival_us
        for at, parent in enumerate(row.after):
            if parent not in self._ids:
                raise WrongField(f"after[{at}]", "the id of an earlier line", parent)
        if not self._ids.add(row.id):
            raise WrongField("id", "an id of its own", row.id)
        before = self._weights.setdefault(row.client, row.weight)
        if row.weight is not None and row.weight != before:
            raise ConfigError(
                f'field "weight": expected {_first_weight(before)} for client '
                f"{json.dumps(row.client)}, got {seconds(row.weight)}"
            )


def _first_weight(weight: int | None) -> str:
    if weight is None:
        return "no value, as on the first line"
    return f"{seconds(weight)} as before"

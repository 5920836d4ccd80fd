"""Events as JSON lines, written and read back: the format of DESIGN 6.2, both directions.

One line an event and pass: a run of like passes is written pass by pass, so a file says the same
whether the simulator skipped or stepped. Keys stand in a fixed order and clients sorted by name:
one run gives one sequence of bytes, in gzip too. What each line holds: docs/reference/events.md.
"""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from sys import intern
from typing import IO, Any, cast, get_args

from fairhit.core.request import ClientId, RequestId
from fairhit.errors import ConfigError
from fairhit_lab.events import (
    PS_PER_US,
    Admit,
    Cancel,
    Decode,
    Dispatch,
    Enqueue,
    Event,
    Evict,
    Finish,
    FirstToken,
    Preempt,
    Reason,
    Refill,
    Reject,
    WorkerUpOrDown,
)
from fairhit_lab.traces.files import STANDARD, lines, written

BUFFER = 1 << 16
MAX_SECONDS = 10**11  # above it, a number is a mistake in units


def seconds(t_us: int) -> str:
    """Microseconds as seconds with exactly six decimals."""
    return f"{t_us // 10**6}.{t_us % 10**6:06d}"


def _head(name: str, event: Any) -> str:
    worker = "null" if event.worker is None else event.worker
    return f'{{"ev":"{name}","t":{seconds(event.t_us)},"w":{worker}'


def _of_request(name: str, event: Any) -> str:
    return f'{_head(name, event)},"id":{quoted(event.request)},"client":{quoted(event.client)}'


def _admit(event: Admit) -> str:
    # Only where it is so: a line of an engine that never preempts has DESIGN's keys and no other.
    again = ',"again":true' if event.again else ""
    sizes = f'"step":{event.step},"extend":{event.extend_len},"input":{event.input_len}'
    return f"{_of_request('admit', event)},{sizes}{again}}}\n"


def _decode(event: Decode) -> str:
    """Decode one line for each pass."""
    counts = ",".join(f"{quoted(client)}:{n}" for client, n in sorted(event.counts.items()))
    return "".join(
        f'{{"ev":"decode","t":{seconds(event.end_us(j))},"w":{event.worker}'
        f',"step":{event.step + j},"counts":{{{counts}}}}}\n'
        for j in range(event.passes)
    )


LINE: dict[type, Callable[[Any], str]] = {
    Dispatch: lambda e: f"{_of_request('dispatch', e)}}}\n",
    Enqueue: lambda e: f"{_of_request('enqueue', e)}}}\n",
    Reject: lambda e: f'{_of_request("reject", e)},"reason":"{e.reason}"}}\n',
    Admit: _admit,
    Decode: _decode,
    FirstToken: lambda e: f"{_of_request('first', e)}}}\n",
    Finish: lambda e: f'{_of_request("finish", e)},"step":{e.step},"output":{e.output_len}}}\n',
    Cancel: lambda e: f"{_of_request('cancel', e)}}}\n",
    Preempt: lambda e: f'{_of_request("preempt", e)},"step":{e.step}}}\n',
    Refill: lambda e: f'{_head("refill", e)},"k":{e.rounds}}}\n',
    Evict: lambda e: f'{_head("evict", e)},"tokens":{e.tokens}}}\n',
    WorkerUpOrDown: lambda e: f'{_head("worker", e)},"up":{"true" if e.up else "false"}}}\n',
}


class EventsWriter:
    """An observer that writes each event to `file` as it comes. O(passes of a run * clients) an event."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def __call__(self, event: Event, /) -> None:
        self._file.write(LINE[type(event)](event).encode("ascii"))


@contextmanager
def writing_events(path: str | Path) -> Iterator[EventsWriter]:
    """An observer that writes to `path`, packed by its suffix; the file is there once it is whole.

    Raises ConfigError if it cannot be made.
    """
    with written(path) as file:
        buffered = io.BufferedWriter(cast("io.RawIOBase", file), BUFFER)
        yield EventsWriter(buffered)
        buffered.flush()
        buffered.detach()


def read_events(path: str | Path) -> Iterator[Event]:
    """The events of a file, one at a time, each pass as a `Decode` of its own.

    Such a Decode knows when its pass ended but not when it began. Raises ConfigError, with file, line and
    field, at the first line that is not an event. O(fields) a line.
    """
    shown = "<stdin>" if str(path) == STANDARD else path
    for number, line in lines(path):
        try:
            yield _event(line)
        except ConfigError as error:
            raise ConfigError(f"{shown}:{number}: {error}") from None


def _event(line: bytes) -> Event:
    try:
        record = json.loads(line, parse_float=Decimal)
    except (ValueError, RecursionError):
        raise ConfigError("expected a JSON object on a line of its own") from None
    if not isinstance(record, dict):
        raise ConfigError("expected a JSON object on a line of its own")
    name = record.get("ev")
    if not isinstance(name, str) or name not in EVENT:
        raise ConfigError(f'field "ev": expected one of {", ".join(EVENT)}, got {_shown(name)}')
    return EVENT[name](_Fields(record))


class _Fields:
    """The fields of one line; each method raises ConfigError if the field is missing or wrong."""

    def __init__(self, record: dict[str, Any]) -> None:
        self._record = record

    def _wrong(self, field: str, expected: str) -> ConfigError:
        return ConfigError(f'field "{field}": expected {expected}, got {self._got(field)}')

    def _got(self, field: str) -> str:
        return _shown(self._record[field]) if field in self._record else "no such field"

    def micros(self) -> int:
        """`t`, in microseconds."""
        value: Any = self._record.get("t")
        good = type(value) in {int, Decimal} and 0 <= value <= MAX_SECONDS
        if good and value * 10**6 % 1 == 0:
            return int(value * 10**6)
        raise self._wrong("t", "seconds >= 0 with at most six decimals")

    def whole(self, field: str, *, least: int = 0) -> int:
        """A number of something."""
        value = self._record.get(field)
        if type(value) is not int or value < least:
            raise self._wrong(field, f"a whole number >= {least}")
        return value

    def text(self, field: str) -> str:
        """A name."""
        value = self._record.get(field)
        if not isinstance(value, str):
            raise self._wrong(field, "a string")
        return intern(value) if field == "client" else value

    def flag(self, field: str, default: bool | None = None) -> bool:
        """True or false."""
        value = self._record.get(field, default)
        if not isinstance(value, bool):
            raise self._wrong(field, "true or false")
        return value

    def worker(self) -> int:
        """Number of the replica."""
        return self.whole("w")

    def worker_or_none(self) -> int | None:
        """Number of the replica, null if there is none."""
        return self.whole("w") if self._record.get("w") is not None else None

    def reason(self) -> Reason:
        """Why it was rejected."""
        value = self._record.get("reason")
        if value not in get_args(Reason):
            raise self._wrong("reason", f"one of {', '.join(get_args(Reason))}")
        return cast("Reason", value)

    def counts(self) -> dict[ClientId, int]:
        """Tokens by client."""
        value = self._record.get("counts")
        good = isinstance(value, dict) and all(type(n) is int and n > 0 for n in value.values())
        if not good:
            raise self._wrong("counts", "an object of whole numbers > 0 by client")
        return {intern(client): n for client, n in cast("dict[str, int]", value).items()}


def _shown(value: object) -> str:
    """A value as the file has it, cut to what a line of an error can carry."""
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _of(fields: _Fields) -> tuple[int, int, RequestId, ClientId]:
    return fields.micros(), fields.worker(), fields.text("id"), fields.text("client")


def _of_any(fields: _Fields) -> tuple[int, int | None, RequestId, ClientId]:
    return fields.micros(), fields.worker_or_none(), fields.text("id"), fields.text("client")


def _read_admit(fields: _Fields) -> Admit:
    step, extend_len = fields.whole("step"), fields.whole("extend")
    input_len = fields.whole("input", least=max(1, extend_len))
    return Admit(*_of(fields), step, extend_len, input_len, fields.flag("again", default=False))


def _read_decode(fields: _Fields) -> Decode:
    end_us = fields.micros()
    at = (fields.worker(), fields.whole("step"), fields.counts())
    return Decode(end_us, *at, passes=1, start_ps=end_us * PS_PER_US, pass_ps=0, growth_ps=0)


EVENT: dict[str, Callable[[_Fields], Event]] = {
    "dispatch": lambda f: Dispatch(*_of_any(f)),
    "enqueue": lambda f: Enqueue(*_of(f)),
    "reject": lambda f: Reject(*_of_any(f), f.reason()),
    "admit": _read_admit,
    "decode": _read_decode,
    "first": lambda f: FirstToken(*_of(f)),
    "finish": lambda f: Finish(*_of(f), f.whole("step"), f.whole("output", least=1)),
    "cancel": lambda f: Cancel(*_of_any(f)),
    "preempt": lambda f: Preempt(*_of(f), f.whole("step")),
    "refill": lambda f: Refill(f.micros(), f.worker(), f.whole("k", least=1)),
    "evict": lambda f: Evict(f.micros(), f.worker(), f.whole("tokens", least=1)),
    "worker": lambda f: WorkerUpOrDown(f.micros(), f.worker(), f.flag("up")),
}

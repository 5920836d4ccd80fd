"""The access log: one line of JSON per request, without prompts, outputs or keys."""

import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_UN, flock
from typing import NamedTuple

import orjson

from fairhit.errors import ConfigError, in_words
from fairhit.gateway.observability.outbox import Outbox
from fairhit.gateway.proxy.exchange import Exchange
from fairhit.gateway.proxy.incoming_request import IncomingRequest

# Header of the request id, unless configured.
_DEFAULT_ID = ("x-request-id",)


def id_patterns(names: Sequence[str]) -> list[re.Pattern[bytes]]:
    """Patterns that find a request id in the headers `names`, in this order."""
    return [
        re.compile(
            rb"^" + re.escape(name.encode()) + rb": *+([!-~]{1,200}) *+\r$",
            re.IGNORECASE | re.MULTILINE,
        )
        for name in names or _DEFAULT_ID
    ]


class LogEntry(NamedTuple):
    """A request until its line is written."""

    time_s: float  # of the end, since 1970
    number: str  # of the gateway; "" for one that was refused before it got one
    lines: bytes  # headers, which may hold a request id
    path: str
    client: str | None
    model: str | None
    worker: str
    status: int
    tokens: tuple[int, int, int]  # extend, cached, output
    wait_s: float | None
    ttft_s: float | None
    duration_s: float | None

    def as_line(self, ids: Sequence[re.Pattern[bytes]]) -> bytes:
        """Serialise as one line of JSON."""
        found = next(filter(None, (pattern.search(self.lines) for pattern in ids)), None)
        extend, cached, output = self.tokens
        return orjson.dumps(
            {
                "time": datetime.fromtimestamp(self.time_s, UTC).isoformat(timespec="milliseconds"),
                "id": found[1].decode() if found else None,
                "number": self.number or None,
                "path": self.path,
                "client": self.client,
                "model": self.model,
                "worker": self.worker or None,
                "status": self.status,
                "extend_tokens": extend,
                "cached_tokens": cached,
                "output_tokens": output,
                "wait_s": _rounded(self.wait_s),
                "ttft_s": _rounded(self.ttft_s),
                "duration_s": _rounded(self.duration_s),
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )


class AccessLog:
    """Appends to a file, or to standard output for "-"."""

    def __init__(self, path: str, *, id_headers: Sequence[str] = ()) -> None:
        self._ids = id_patterns(id_headers)
        self._path = path
        self._lock = threading.Lock()  # between the writing thread and `reopen`
        self._torn = False  # the file ends within a line
        self._file = self._open()
        self.outbox: Outbox[LogEntry] = Outbox(self._write)

    def record(self, exchange: Exchange, status: int, *, time_s: float, now_s: float) -> None:
        """Add a finished request, which has been charged."""
        ticket, arrived_s = exchange.ticket, exchange.arrived_s
        extend_len = ticket.final_len
        served = (extend_len, ticket.matched_len, ticket.output_len) if extend_len else (0, 0, 0)
        entry = LogEntry(
            time_s,
            ticket.request.id,
            exchange.lines,
            exchange.endpoint.name,
            ticket.request.client,
            ticket.model,
            ticket.worker,
            status,
            served,
            (exchange.sent_s or now_s) - arrived_s,
            exchange.first_s - arrived_s if exchange.first_s else None,
            now_s - arrived_s,
        )
        self.outbox.add(entry)

    def record_refused(self, request: IncomingRequest, status: int, *, time_s: float) -> None:
        """Add a request that was refused before an engine was chosen."""
        endpoint = request.head.endpoint
        path = endpoint.name if endpoint is not None else ""
        lines = request.echo + request.lines  # an id of the gateway is only in the echoed lines
        entry = LogEntry(
            time_s, "", lines, path, request.client, None, "", status, (0, 0, 0), None, None, None
        )
        self.outbox.add(entry)

    def reopen(self) -> None:
        """Open the path anew, e.g. after a log rotation. Raises ConfigError, and keeps the old file."""
        fresh = self._open()
        with self._lock:
            self._file, old = fresh, self._file
            self._torn = False
        _close(old)

    async def close(self) -> None:
        """Write the remaining entries."""
        await self.outbox.close()
        _close(self._file)

    def _open(self) -> int:
        if self._path == "-":
            return sys.stdout.fileno()
        try:
            return os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise ConfigError(f"--access-log: {in_words(error)}") from None

    def _write(self, entries: list[LogEntry]) -> None:
        """Write whole lines; a line that a full disk has cut off is removed again."""
        lines = b"".join(entry.as_line(self._ids) for entry in entries)
        written = 0
        with self._lock, _locked(self._file):
            data = b"\n" + lines if self._torn else lines
            try:
                while written < len(data):
                    written += os.write(self._file, memoryview(data)[written:])
            except OSError:
                begun = written - (data.rfind(b"\n", 0, written) + 1)
                if written:
                    self._torn = begun > 0 and not _cut(self._file, begun)
                raise
            self._torn = False


@contextmanager
def _locked(file: int) -> Iterator[None]:
    """Lock `file` against other processes of this gateway, if it can be locked."""
    with suppress(OSError):
        flock(file, LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            flock(file, LOCK_UN)


def _cut(file: int, length: int) -> bool:
    """Remove the last `length` bytes; False if that is impossible."""
    try:
        end = os.fstat(file).st_size
        if file == sys.stdout.fileno() or os.lseek(file, 0, os.SEEK_CUR) != end:
            return False
        os.ftruncate(file, end - length)
    except OSError:  # a pipe
        return False
    return True


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def _close(file: int) -> None:
    if file != sys.stdout.fileno():
        os.close(file)

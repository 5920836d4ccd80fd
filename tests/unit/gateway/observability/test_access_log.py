"""The access log on a full disk: whole lines, before and afterwards."""

import asyncio
import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from fairhit.gateway.observability.access_log import AccessLog, LogEntry


def entries(*numbers: int) -> list[LogEntry]:
    return [
        LogEntry(
            0.0, str(number), b"", "/v1/completions", "a", "m", "w", 200, (1, 2, 3), 0.0, 0.0, 0.0
        )
        for number in numbers
    ]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """No file may be longer meanwhile: as on a full disk, a write ends halfway, and the next fails."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


def write(log: AccessLog, *numbers: int) -> None:
    log._write(entries(*numbers))


def numbers(path: Path) -> list[str]:
    return [json.loads(line)["number"] for line in path.read_text().splitlines()]


def test_after_a_full_disk_each_record_has_a_line_of_its_own(tmp_path: Path) -> None:
    """Two processes write to one file: what one has begun and the other goes on after is no record."""
    path = tmp_path / "access.log"
    log, other = AccessLog(str(path)), AccessLog(str(path))
    write(log, 1)
    length = path.stat().st_size
    with largest_file(length * 5 // 2):
        with pytest.raises(OSError, match="File too large"):
            write(log, 2, 3, 4)
        with pytest.raises(OSError, match="File too large"):
            write(other, 5)
    write(other, 6)
    write(log, 7)

    assert numbers(path) == ["1", "2", "6", "7"]


def test_after_a_pipe_that_took_half_a_line_the_next_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe cannot be truncated."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(str(path))
    write_once, calls = os.write, []

    def stops(file: int, data: bytes) -> int:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return write_once(file, bytes(data)[:20])

    monkeypatch.setattr(os, "write", stops)
    with pytest.raises(OSError, match="No space"):
        write(log, 1)
    monkeypatch.undo()
    write(log, 2)

    begun, whole = os.read(reading, 10_000).splitlines()
    assert (len(begun), orjson.loads(whole)["number"]) == (20, "2")
    os.close(reading)
    asyncio.run(log.close())

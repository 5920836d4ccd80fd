"""The machine's clock jumps while requests are under way: time limits and shares know nothing of it."""

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest
from scripts import install_programs

from tests.e2e.faults.census import Fate
from tests.e2e.faults.conftest import Say
from tests.e2e.faults.crowd import asking, mixed
from tests.e2e.faults.processes import engines, retries
from tests.e2e.gateway.process import Process, running

JUMPS = ("+3600", "-3600", "+0", "+86400")
# Any of these would run out at once, were it measured by the clock on the wall.
LIMITS = {
    "client_timeout_secs": 30,
    "queue_timeout_secs": 30,
    "request_timeout_secs": 30,
    "first_byte_timeout_secs": 20,
    "idle_timeout_secs": 20,
    "health_check_interval_secs": 0.2,
}
AGAIN = "settings are reloaded"
FAKETIME = install_programs.find("faketime")

pytestmark = pytest.mark.skipif(FAKETIME is None, reason="no faketime: scripts/install_programs.py")


def library() -> Path:
    """What is loaded before the C library, wherever its package was unpacked."""
    assert FAKETIME is not None
    (found,) = Path(FAKETIME).parents[1].glob("lib/*/faketime/libfaketimeMT.so.1")
    return found


class Clock:
    """The wall clock of one process; its monotonic clock is the machine's."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.jump("+0")

    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_RESET": "1",
        }

    def jump(self, offset: str) -> None:
        replacement = self._file.with_suffix(".next")
        replacement.write_text(offset + "\n")
        replacement.replace(self._file)


def said_at(process: Process) -> list[str]:
    """The days and hours of its log."""
    return [line[:13] for line in process.said.splitlines() if line[:2] == "20"]


def hour(offset: str) -> str:
    return time.strftime("%Y-%m-%d %H", time.localtime(time.time() + int(offset)))


def test_a_clock_that_jumps_times_no_request_out(tmp_path: Path, say: Say) -> None:
    """An hour on, an hour back, to the right time, a day on: all under load, each seen in the log."""
    clock = Clock(tmp_path / "clock")

    async def run() -> None:
        async with (
            engines(2, "--places", "4") as (first, second),
            running(
                tmp_path,
                clock.environment(),
                worker_urls=[first.url, second.url], log_level="info", **LIMITS,
            ) as process,
            asking(process.port, mixed(random.Random(5)), callers=24) as crowd,
        ):  # fmt: skip
            await crowd.more(50)
            for jump, offset in enumerate(JUMPS, 1):
                clock.jump(offset)
                await crowd.more(100)
                process.signal(signal.SIGHUP)  # it says so, at its time
                await process.says(AGAIN, times=jump)
                assert said_at(process)[-1] in {hour(offset), hour(f"{int(offset) - 60}")}
            retried = await retries(process)
        census = crowd.census
        answered, left = census[Fate.ANSWERED], census[Fate.LEFT]
        assert census.offered == answered + left > 400, census
        say(f"{census}; {retried} retried")

    asyncio.run(run())

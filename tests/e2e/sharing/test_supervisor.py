"""The parent of several processes survives whatever becomes of them, and passes on what it is told."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class Told:
    """A parent and its processes, and their lines so far."""

    def __init__(self, story: str, log: Path, **environment: str) -> None:
        self._log = log
        with log.open("wb") as errors:
            self.parent = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.sharing.supervisor", story],
                cwd=ROOT, stderr=errors, env={**os.environ, **environment},
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._log.read_text()

    def pids(self, does: str) -> list[int]:
        """Those that said they do, in the order in which they did."""
        return [int(pid) for pid in re.findall(rf"^(\d+) {does}$", self.said, re.MULTILINE)]

    def heard(self, pid: int) -> list[int]:
        """The engines that it was told about."""
        heard = re.findall(rf"^{pid} hears of engine (\d+)$", self.said, re.MULTILINE)
        return [int(number) for number in heard]

    def wait(self, until: Callable[[], bool]) -> None:
        for _ in range(2000):
            if until():
                return
            time.sleep(0.02)
        raise AssertionError(self.said)


@contextlib.contextmanager
def crew(story: str, folder: Path, **environment: str) -> Iterator[Told]:
    """It runs; at the end it is told to, and does, end."""
    told = Told(story, folder / "said", **environment)
    try:
        yield told
        told.parent.terminate()
        assert told.parent.wait(60) == 0, told.said
    finally:
        told.parent.kill()
        told.parent.wait()


def test_processes_that_end_together_are_all_replaced(tmp_path: Path) -> None:
    with crew("ends-come-together", tmp_path) as told:
        told.wait(lambda: "2 processes serve" in told.said)
        for pid in told.pids("serves"):
            os.kill(pid, signal.SIGKILL)
        told.wait(lambda: len(told.pids("serves")) == 4)
        assert told.said.count("ended; another is started in 1 s") == 2


def test_a_process_that_cannot_be_started_is_started_later(tmp_path: Path) -> None:
    with crew("the-third-fork-fails", tmp_path) as told:
        told.wait(lambda: "2 processes serve" in told.said)
        os.kill(told.pids("serves")[0], signal.SIGKILL)
        told.wait(lambda: len(told.pids("serves")) == 3)
        line = "no process can be started (Resource temporarily unavailable); another is started in 3 s"
        assert told.said.count(line) == 1


def test_where_they_cannot_even_start_those_that_did_are_stopped(tmp_path: Path) -> None:
    told = Told("the-second-fork-fails", tmp_path / "said")
    assert told.parent.wait(60) == 2
    assert "no process can be started (Resource temporarily unavailable)" in told.said
    assert "Traceback" not in told.said


def test_who_may_take_longer_by_settings_of_today_is_not_killed_by_those_of_the_start(
    tmp_path: Path,
) -> None:
    with crew("nobody-is-waited-for", tmp_path, ENDING_S="4") as told:
        told.wait(lambda: "2 processes serve" in told.said)
    assert len(told.pids("ends")) == 2


def test_changes_are_heard_by_all_in_one_order_and_the_last_of_each_kind_by_who_comes_later(
    tmp_path: Path,
) -> None:
    with crew("plain", tmp_path) as told:
        told.wait(lambda: "2 processes serve" in told.said)
        first, second = told.pids("serves")
        os.kill(first, signal.SIGUSR1)
        every = [*range(1000), 0]
        told.wait(lambda: told.heard(first) == every and told.heard(second) == every)
        os.kill(second, signal.SIGKILL)
        told.wait(lambda: len(told.pids("serves")) == 3)
        later = told.pids("serves")[2]
        told.wait(lambda: told.heard(later) == [*range(1, 1000), 0])


def test_who_still_starts_reads_changed_settings_when_it_serves(tmp_path: Path) -> None:
    with crew("plain", tmp_path, STARTING_S="1.5") as told:
        told.wait(lambda: len(told.pids("starts")) == 2)
        told.parent.send_signal(signal.SIGHUP)
        for pid in told.pids("starts"):  # as one who tells all of a service's processes does
            os.kill(pid, signal.SIGHUP)
        told.wait(lambda: len(told.pids("reads its settings again")) == 2)
        assert sorted(told.pids("serves")) == sorted(told.pids("starts"))
        assert len(told.pids("starts")) == 2

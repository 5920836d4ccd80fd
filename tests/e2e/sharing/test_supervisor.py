"""The supervisor replaces children that end, and relays operators' changes."""

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


class Output:
    """A supervisor and its children, and their output so far."""

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
        """Process ids of lines `PID DOES`, in order."""
        return [int(pid) for pid in re.findall(rf"^(\d+) {does}$", self.said, re.MULTILINE)]

    def received(self, pid: int) -> list[int]:
        """Engines of the changes that the child `pid` has received."""
        found = re.findall(rf"^{pid} receives engine (\d+)$", self.said, re.MULTILINE)
        return [int(number) for number in found]

    def wait(self, until: Callable[[], bool]) -> None:
        for _ in range(2000):
            if until():
                return
            time.sleep(0.02)
        raise AssertionError(self.said)


@contextlib.contextmanager
def supervised(story: str, folder: Path, **environment: str) -> Iterator[Output]:
    """Run a supervisor in the block; then terminate it, which must succeed."""
    output = Output(story, folder / "said", **environment)
    try:
        yield output
        output.parent.terminate()
        assert output.parent.wait(60) == 0, output.said
    finally:
        output.parent.kill()
        output.parent.wait()


def test_processes_that_end_together_are_all_replaced(tmp_path: Path) -> None:
    with supervised("ends-come-together", tmp_path) as output:
        output.wait(lambda: "2 processes serve" in output.said)
        for pid in output.pids("serves"):
            os.kill(pid, signal.SIGKILL)
        output.wait(lambda: len(output.pids("serves")) == 4)
        assert output.said.count("ended; another is started in 1 s") == 2


def test_a_process_that_cannot_be_started_is_started_later(tmp_path: Path) -> None:
    with supervised("the-third-fork-fails", tmp_path) as output:
        output.wait(lambda: "2 processes serve" in output.said)
        os.kill(output.pids("serves")[0], signal.SIGKILL)
        output.wait(lambda: len(output.pids("serves")) == 3)
        line = "no process can be started (Resource temporarily unavailable); another is started in 3 s"
        assert output.said.count(line) == 1


def test_if_a_child_cannot_start_the_others_are_stopped(tmp_path: Path) -> None:
    output = Output("the-second-fork-fails", tmp_path / "said")
    assert output.parent.wait(60) == 2
    assert "no process can be started (Resource temporarily unavailable)" in output.said
    assert "Traceback" not in output.said


def test_a_child_with_a_longer_reloaded_shutdown_time_is_not_killed(
    tmp_path: Path,
) -> None:
    with supervised("short-grace-time", tmp_path, ENDING_S="4") as output:
        output.wait(lambda: "2 processes serve" in output.said)
    assert len(output.pids("ends")) == 2


def test_changes_reach_all_children_in_one_order_and_replacements_get_the_last_of_each_subject(
    tmp_path: Path,
) -> None:
    with supervised("plain", tmp_path) as output:
        output.wait(lambda: "2 processes serve" in output.said)
        first, second = output.pids("serves")
        os.kill(first, signal.SIGUSR1)
        every = [*range(1000), 0]
        output.wait(lambda: output.received(first) == every and output.received(second) == every)
        os.kill(second, signal.SIGKILL)
        output.wait(lambda: len(output.pids("serves")) == 3)
        later = output.pids("serves")[2]
        output.wait(lambda: output.received(later) == [*range(1, 1000), 0])


def test_a_starting_child_reloads_its_settings_once_it_serves(tmp_path: Path) -> None:
    with supervised("plain", tmp_path, STARTING_S="1.5") as output:
        output.wait(lambda: len(output.pids("starts")) == 2)
        output.parent.send_signal(signal.SIGHUP)
        for pid in output.pids("starts"):  # as one who tells all of a service's processes does
            os.kill(pid, signal.SIGHUP)
        output.wait(lambda: len(output.pids("reads its settings again")) == 2)
        assert sorted(output.pids("serves")) == sorted(output.pids("starts"))
        assert len(output.pids("starts")) == 2

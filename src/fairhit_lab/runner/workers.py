"""Worker processes that run one case at a time, so that a killed process loses one known case."""

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, parent_process
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from fairhit.errors import WorkerLost
from fairhit_lab.runner.gc_control import no_collections
from fairhit_lab.runner.record import Record, packed
from fairhit_lab.studies.shared.study import Case


class Task(NamedTuple):
    """A case to run; `name` is for messages. `alone`: the case is timed, so no other may run beside it."""

    name: str
    case: Case
    seed: int
    data: Path | None
    alone: bool = False


def work(case: Case, seed: int, data: Path | None) -> bytes:
    """Run a case in a worker and return its packed record."""
    wall, cpu = time.perf_counter(), time.process_time()
    with no_collections():
        outcome = case.outcome(seed, data)
    return packed(Record(outcome, time.process_time() - cpu, time.perf_counter() - wall))


class WorkerProcesses:
    """A pool of `size` processes, started on demand and killed at the end of `with`.

    A worker whose parent is gone exits by itself.
    """

    def __init__(self, size: int) -> None:
        assert size > 0, size
        self._idle = [_Process() for _ in range(size)]
        self._busy: dict[Future[bytes], tuple[_Process, int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in [*self._idle, *(busy for busy, _ in self._busy.values())]:
            process.end()

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[int, bytes | BaseException]]:
        """Run the tasks and yield each one's number with its packed record, or with its error, as they end.

        Tasks start in their order, except that those with `alone` run last, one at a time.
        """
        numbered = list(enumerate(tasks))
        yield from self._run([each for each in numbered if not each[1].alone], len(self._idle))
        yield from self._run([each for each in numbered if each[1].alone], 1)

    def _run(
        self, tasks: list[tuple[int, Task]], at_once: int
    ) -> Iterator[tuple[int, bytes | BaseException]]:
        names = {number: task.name for number, task in tasks}
        tasks.reverse()
        while tasks or self._busy:
            while tasks and len(self._busy) < at_once:
                number, task = tasks.pop()
                process = self._idle.pop()
                self._busy[process.start(task)] = process, number
            for future in wait(self._busy, return_when=FIRST_COMPLETED).done:
                process, number = self._busy.pop(future)
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    process.end()
                    process = _Process()
                    error = WorkerLost(
                        f"{names[number]}: its process was killed, as happens where memory is short"
                    )
                self._idle.append(process)
                yield number, future.result() if error is None else error


class _Process:
    """A pool of one process, started at its first task."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._pid: Future[int] | None = None

    def start(self, task: Task) -> "Future[bytes]":
        if self._pool is None:
            # A fresh interpreter has none of the parent's threads or open files.
            self._pool = ProcessPoolExecutor(1, get_context("spawn"), _begin)
            with _ctrl_c_later():
                self._pid = self._pool.submit(os.getpid)
        return self._pool.submit(work, task.case, task.seed, task.data)

    def end(self) -> None:
        if self._pool is None or self._pid is None:
            return
        with suppress(BrokenProcessPool, ProcessLookupError):
            os.kill(self._pid.result(), signal.SIGKILL)
        self._pool.shutdown(cancel_futures=True)


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Blocks Ctrl-C for processes started in the block: the terminal sends it to all processes."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """Initialise a worker process before its first task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

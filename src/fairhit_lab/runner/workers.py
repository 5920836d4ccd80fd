"""Processes that run cases: one each at a time, so that it is known what was lost with one."""

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
    """A case to run; `name` is for messages. `alone`: nothing else may run beside it, it is timed."""

    name: str
    case: Case
    seed: int
    data: Path | None
    alone: bool = False


def work(case: Case, seed: int, data: Path | None) -> bytes:
    """The packed record of one run; what a worker does."""
    wall, cpu = time.perf_counter(), time.process_time()
    with no_collections():
        outcome = case.outcome(seed, data)
    return packed(Record(outcome, time.process_time() - cpu, time.perf_counter() - wall))


class WorkerProcesses:
    """`size` processes, started when there is something for them to do; `with` ends them.

    Leaving it kills what still runs. A process whose parent is gone ends by itself.
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
        """Each task by its number with its packed record, or with what went wrong, as they end.

        They begin in this order, but those that want to be alone come last.
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
    """A pool of one, started at its first task."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._pid: Future[int] | None = None

    def start(self, task: Task) -> "Future[bytes]":
        if self._pool is None:
            # A fresh interpreter: none of our threads or open files are in it.
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
    """What starts meanwhile never hears Ctrl-C: the terminal sends it to all, and it is ours to act."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin() -> None:
    """In the new process, before its first task."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

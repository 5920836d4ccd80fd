"""Runs the cases of some studies: what the cache has is taken from there, the rest goes to workers."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairhit.errors import ConfigError, FairhitError
from fairhit_lab.runner.cache import Cache
from fairhit_lab.runner.plan import Gathered, PlannedRun, jobs_of, longest_first
from fairhit_lab.runner.record import Record, unpacked
from fairhit_lab.runner.workers import WorkerProcesses

# Called with each study when its last run is there.
OnComplete = Callable[[Gathered], None]


class Left:
    """How long the remaining runs take, from those that are known or done."""

    def __init__(self, jobs: Sequence[PlannedRun], cache: Cache | None, workers: int) -> None:
        self._expected = {job.key: cache.seconds(job.config) if cache else None for job in jobs}
        self._took: list[float] = []
        self._workers = workers

    def done(self, job: PlannedRun, seconds: float) -> None:
        """Of one core."""
        del self._expected[job.key]
        self._took.append(seconds)

    def __str__(self) -> str:
        """In minutes and seconds; a question mark while there is nothing to go by."""
        known = [value for value in self._expected.values() if value is not None]
        sample = known + self._took
        if not sample:
            return "?"
        unknown = len(self._expected) - len(known)
        seconds = (sum(known) + unknown * sum(sample) / len(sample)) / self._workers
        return f"{seconds // 60:.0f}:{seconds % 60:02.0f}"


def run_all(
    studies: Sequence[Gathered],
    *,
    data: Path | None,
    workers: int,
    cache: Cache | None,
    on_complete: OnComplete,
    console: Console,
) -> None:
    """Fill every study, and hand it over when it is complete; progress goes to the console.

    What goes wrong in a case is noted as the `problem` of the studies that need it, and the others
    go on. On KeyboardInterrupt the workers are ended; what is done is in the cache.
    """
    jobs = longest_first(jobs_of(studies, data), cache)
    with _progress(console) as bar:
        task = bar.add_task("cases", total=len(jobs), left="")
        waiting = []
        for job in jobs:
            record = cache.get(job.key) if cache else None
            if record is None:
                waiting.append(job)
            else:
                _give(job, record, on_complete, cached=True)
                bar.advance(task)
        left = Left(waiting, cache, workers)
        bar.update(task, left=left)
        with WorkerProcesses(min(workers, len(waiting) or 1)) as pool:
            for number, came in pool.run([job.task for job in waiting]):
                job = waiting[number]
                if isinstance(came, BaseException):
                    _blame(job, came)
                    left.done(job, 0.0)
                else:
                    record = unpacked(came)
                    if cache:
                        cache.put(job.key, came, config=job.config, cpu_s=record.cpu_s)
                    left.done(job, record.cpu_s)
                    _give(job, record, on_complete, cached=False)
                bar.update(task, advance=1, left=left)


def _give(job: PlannedRun, record: Record, on_complete: OnComplete, *, cached: bool) -> None:
    """To each study that needs it. A bug in one study's numbers or claims leaves the others alone."""
    for study, index in job.users:
        if study.problem is not None:
            continue
        try:
            study.take(index, job.task.seed, record, cached=cached)
            if not study.missing:
                on_complete(study)
        except Exception as error:  # noqa: BLE001 - told at the end, when the others are safe
            study.problem = error


def _blame(job: PlannedRun, error: BaseException) -> None:
    """The study is told with the case's name."""
    if not isinstance(error, Exception):
        raise error
    if isinstance(error, ConfigError):
        error = ConfigError(f"{job.task.name}: {error}")
    elif not isinstance(error, FairhitError):
        error.add_note(f"in {job.task.name}")
    for study, _ in job.users:
        study.problem = study.problem or error


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[left]} left"),
        console=console,
        transient=True,
        refresh_per_second=4,
        disable=not console.is_terminal,
    )

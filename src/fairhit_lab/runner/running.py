"""Runs the cases of some studies, equal cases once, from the cache or by workers, and gathers their rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from fairhit.errors import ConfigError, FairhitError
from fairhit_lab.runner.cache import Cache
from fairhit_lab.runner.record import Record, config_of, configs_of, key_of, unpacked
from fairhit_lab.runner.workers import Task, WorkerProcesses
from fairhit_lab.studies.shared.results import ResultRow, Results
from fairhit_lab.studies.shared.study import Case, Measured, Study


@dataclass(slots=True)
class Gathered:
    """A study's cases and the rows gathered so far. `problem`: why the study cannot be completed."""

    name: str
    study: Study
    cases: Sequence[Case]
    seeds: Sequence[int]
    configs: Sequence[str]
    rows: dict[tuple[int, int], ResultRow] = field(default_factory=dict)
    points: dict[int, list[ResultRow]] = field(default_factory=dict)
    cpu_s: float = 0.0
    from_cache: int = 0
    problem: Exception | None = None

    @property
    def missing(self) -> int:
        """The number of runs without a record."""
        return len(self.cases) * len(self.seeds) - len(self.rows)

    def take(self, index: int, seed: int, record: Record, *, cached: bool) -> None:
        """Store the record of a case. Only the first seed's curves are kept, as only they are drawn."""
        case = self.cases[index]
        measures = {name: of(record.outcome) for name, of in self.study.measures.items()}
        for name, value in measures.items():
            assert value is None or isfinite(value), f"{self.name}: {name} is {value}"
        config = {"config": self.configs[index]}
        self.rows[index, seed] = {**case.labels, "seed": seed, **measures, **config}
        if seed == self.seeds[0]:
            self.points[index] = [
                {**case.labels, "seed": seed, **point._asdict()} for point in record.outcome.series
            ]
        self.cpu_s += record.cpu_s
        self.from_cache += cached

    def results(self) -> Results:
        """The rows by case, then by seed, in whatever order the runs finished."""
        assert not self.missing, self.name
        places = range(len(self.cases))
        return Results(
            rows=[self.rows[index, seed] for index in places for seed in self.seeds],
            series=[row for index in places for row in self.points[index]],
            configs=configs_of(iter(self.cases)),
        )


def gathered(name: str, study: Study, *, quick: bool, seeds: Sequence[int]) -> Gathered:
    """The study's cases before any of them has run."""
    cases = study.cases(quick)
    return Gathered(name, study, cases, seeds, [config_of(case) for case in cases])


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run and its `users`: the studies that need it, with the case's index in each."""

    key: str
    config: str
    task: Task
    users: list[tuple[Gathered, int]]


def runs_of(studies: Sequence[Gathered], data: Path | None) -> list[PlannedRun]:
    """The runs of all studies, each distinct case and seed once, in the order of the studies."""
    jobs: dict[str, PlannedRun] = {}
    for study in studies:
        for index, case in enumerate(study.cases):
            for seed in study.seeds:
                key = key_of(case, seed, data)
                if key not in jobs:
                    labels = " ".join(f"{name}={value}" for name, value in case.labels.items())
                    task = Task(
                        name=f"{study.name}: {labels} seed={seed}",
                        case=case,
                        seed=seed,
                        data=data,
                        alone=isinstance(case, Measured),
                    )
                    jobs[key] = PlannedRun(key, study.configs[index], task, [])
                jobs[key].users.append((study, index))
    return list(jobs.values())


def longest_first(jobs: Sequence[PlannedRun], cache: Cache | None) -> list[PlannedRun]:
    """The runs by expected time, longest first; those of unknown time before all others."""
    known: Mapping[str, float | None] = (
        {job.config: cache.seconds(job.config) for job in jobs} if cache else {}
    )

    def length(job: PlannedRun) -> float:
        seconds = known.get(job.config)
        return float("inf") if seconds is None else seconds

    return sorted(jobs, key=length, reverse=True)


# Called with each study when its last run is complete.
OnComplete = Callable[[Gathered], None]


class RemainingTime:
    """An estimate of the remaining time, from known times of cases and from those that are done."""

    def __init__(self, jobs: Sequence[PlannedRun], cache: Cache | None, workers: int) -> None:
        self._expected = {job.key: cache.seconds(job.config) if cache else None for job in jobs}
        self._took: list[float] = []
        self._workers = workers

    def done(self, job: PlannedRun, seconds: float) -> None:
        """Replace a run's expected time by the CPU time it took."""
        del self._expected[job.key]
        self._took.append(seconds)

    def __str__(self) -> str:
        """The estimate in minutes and seconds; a question mark while no time is known."""
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
    """Run the cases of all studies, and pass each complete study to `on_complete`; progress on the console.

    An error in a case becomes the `problem` of the studies that need it, and the others continue.
    On KeyboardInterrupt the workers are stopped; finished runs are in the cache.
    """
    jobs = longest_first(runs_of(studies, data), cache)
    with _progress(console) as bar:
        task = bar.add_task("cases", total=len(jobs), left="")
        waiting = []
        for job in jobs:
            record = cache.get(job.key) if cache else None
            if record is None:
                waiting.append(job)
            else:
                _pass_on(job, record, on_complete, cached=True)
                bar.advance(task)
        left = RemainingTime(waiting, cache, workers)
        bar.update(task, left=left)
        with WorkerProcesses(min(workers, len(waiting) or 1)) as pool:
            for number, answer in pool.run([job.task for job in waiting]):
                job = waiting[number]
                if isinstance(answer, BaseException):
                    _record_problem(job, answer)
                    left.done(job, 0.0)
                else:
                    record = unpacked(answer)
                    if cache:
                        cache.put(job.key, answer, config=job.config, cpu_s=record.cpu_s)
                    left.done(job, record.cpu_s)
                    _pass_on(job, record, on_complete, cached=False)
                bar.update(task, advance=1, left=left)


def _pass_on(job: PlannedRun, record: Record, on_complete: OnComplete, *, cached: bool) -> None:
    """Pass a record to each study that needs it.

    An error in one study's measures or claims leaves the others alone.
    """
    for study, index in job.users:
        if study.problem is not None:
            continue
        try:
            study.take(index, job.task.seed, record, cached=cached)
            if not study.missing:
                on_complete(study)
        except Exception as error:  # noqa: BLE001 - raised at the end, when the others are written
            study.problem = error


def _record_problem(job: PlannedRun, error: BaseException) -> None:
    """Record the error, with the case's name, as the problem of the studies that need the case."""
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

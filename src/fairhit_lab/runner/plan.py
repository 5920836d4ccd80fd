"""From studies to tasks and back: equal cases run once, and each study gets its rows in its own order."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

from fairhit_lab.runner.cache import Cache
from fairhit_lab.runner.record import Record, config_of, key_of
from fairhit_lab.runner.workers import Task
from fairhit_lab.studies.shared.results import ResultRow, Results
from fairhit_lab.studies.shared.study import Case, Measured, Study


@dataclass(slots=True)
class Gathered:
    """One study's cases, and what has come of them so far. `problem`: why it cannot be completed."""

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
        """Runs that have not come."""
        return len(self.cases) * len(self.seeds) - len(self.rows)

    def take(self, index: int, seed: int, record: Record, *, cached: bool) -> None:
        """The record of a case. Only the first seed's curves are kept: they are what is drawn."""
        case = self.cases[index]
        measures = {name: of(record.outcome) for name, of in self.study.measures.items()}
        for name, value in measures.items():
            assert value is None or isfinite(value), f"{self.name}: {name} is {value}"
        self.rows[index, seed] = {**case.labels, "seed": seed, **measures}
        if seed == self.seeds[0]:
            self.points[index] = [
                {**case.labels, "seed": seed, **point._asdict()} for point in record.outcome.series
            ]
        self.cpu_s += record.cpu_s
        self.from_cache += cached

    def results(self) -> Results:
        """By case, then by seed, in whatever order they came."""
        assert not self.missing, self.name
        places = range(len(self.cases))
        return Results(
            rows=[self.rows[index, seed] for index in places for seed in self.seeds],
            series=[row for index in places for row in self.points[index]],
        )


def gathered(name: str, study: Study, *, quick: bool, seeds: Sequence[int]) -> Gathered:
    """The study's cases, of which nothing has run."""
    cases = study.cases(quick)
    return Gathered(name, study, cases, seeds, [config_of(case) for case in cases])


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run that somebody needs: `users` are studies with the number of the case in each."""

    key: str
    config: str
    task: Task
    users: list[tuple[Gathered, int]]


def jobs_of(studies: Sequence[Gathered], data: Path | None) -> list[PlannedRun]:
    """One a case and seed that differ, in the order of the studies."""
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
    """So that no long one is left for the end; those of which nothing is known come first of all."""
    known: Mapping[str, float | None] = (
        {job.config: cache.seconds(job.config) for job in jobs} if cache else {}
    )

    def length(job: PlannedRun) -> float:
        seconds = known.get(job.config)
        return float("inf") if seconds is None else seconds

    return sorted(jobs, key=length, reverse=True)

"""Who dominates whom: at least as good in all that counts, within noise, and better in something."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fairlead.experiments.study.results import Label, Results

Labels = Mapping[str, Label]


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """A measure, whether more of it is better, and which share of a difference is noise."""

    metric: str
    more: bool = True
    noise: float = 0.02


def better(one: Mapping[int, float], other: Mapping[int, float], goal: Goal) -> bool:
    """Beyond noise in the median, and in no seed worse. Values by seed; False without a common one."""
    gains = _gains(one, other, goal)
    return bool(gains) and median(gains) > 1 + goal.noise and min(gains) >= 1


def worse(one: Mapping[int, float], other: Mapping[int, float], goal: Goal) -> bool:
    """Beyond noise in the median, whatever a seed says. Values by seed; False without a common one."""
    gains = _gains(other, one, goal)
    return bool(gains) and median(gains) > 1 + goal.noise


def _gains(one: Mapping[int, float], other: Mapping[int, float], goal: Goal) -> list[float]:
    return [
        _gain(one[seed], other[seed]) if goal.more else _gain(other[seed], one[seed])
        for seed in one
        if seed in other
    ]


def _gain(more: float, less: float) -> float:
    if more == less:
        return 1.0
    return more / less if less else float("inf")


def dominates(results: Results, goals: Sequence[Goal], one: Labels, other: Labels) -> bool:
    """Nothing is worse in the median beyond noise, and something better, in no seed worse.

    A goal that one has no value of says nothing.
    """
    found = [
        (goal, results.values(goal.metric, **one), results.values(goal.metric, **other))
        for goal in goals
    ]
    if any(worse(ones, others, goal) for goal, ones, others in found):
        return False
    return any(better(ones, others, goal) for goal, ones, others in found)


def dominators(
    results: Results, goals: Sequence[Goal], of: Labels, among: Sequence[Labels]
) -> list[Labels]:
    """Those that dominate it, in their order. O(among * rows)."""
    return [each for each in among if each != of and dominates(results, goals, each, of)]

"""Dominance: at least as good in every goal, within noise, and better in one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fairhit_lab.studies.shared.results import Label, Results

Labels = Mapping[str, Label]
BySeed = Mapping[int, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """A measure, the direction in which it is better, and the share of a difference that counts as noise."""

    metric: str
    more: bool = True
    noise: float = 0.02


def better(one: BySeed, other: BySeed, goal: Goal) -> bool:
    """True if `one` is better beyond noise in the median and worse in no seed.

    False without a common seed.
    """
    gains = _gains(one, other, goal)
    return bool(gains) and median(gains) > 1 + goal.noise and min(gains) >= 1


def worse(one: BySeed, other: BySeed, goal: Goal) -> bool:
    """True if `one` is worse beyond noise in the median. False without a common seed."""
    gains = _gains(other, one, goal)
    return bool(gains) and median(gains) > 1 + goal.noise


def _gains(one: BySeed, other: BySeed, goal: Goal) -> list[float]:
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
    """True if `one` is worse in no goal beyond noise, and better in one of them, in no seed worse.

    A case that lacks a value which the other has, as where a client starves, dominates no other.
    """
    return _outdoes(goals, _values(results, goals, one), _values(results, goals, other))


def dominations(
    results: Results, goals: Sequence[Goal], over: str, among: Sequence[Labels]
) -> dict[tuple[int, int], list[Label]]:
    """The values of `over` on which one case dominates another, by the pair of their indices in `among`.

    Pairs without such values are left out. O(values of `over` * among^2).
    """
    found: dict[tuple[int, int], list[Label]] = {}
    for value in results.labels(over):
        here = Results([row for row in results.rows if row[over] == value])
        values = [_values(here, goals, labels) for labels in among]
        for one, ours in enumerate(values):
            for other, theirs in enumerate(values):
                if one != other and _outdoes(goals, ours, theirs):
                    found.setdefault((one, other), []).append(value)
    return found


def _values(results: Results, goals: Sequence[Goal], labels: Labels) -> list[dict[int, float]]:
    return [results.values(goal.metric, **labels) for goal in goals]


def _outdoes(goals: Sequence[Goal], ours: Sequence[BySeed], theirs: Sequence[BySeed]) -> bool:
    pairs = list(zip(goals, ours, theirs, strict=True))
    if any(other.keys() - own.keys() or worse(own, other, goal) for goal, own, other in pairs):
        return False
    return any(better(own, other, goal) for goal, own, other in pairs)

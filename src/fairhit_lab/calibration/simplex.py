"""The downhill simplex of Nelder and Mead (1965): a minimum of a function without derivatives.

Deterministic: the same function and start give the same result to the bit.
"""

from collections.abc import Callable, Sequence

Point = list[float]
Objective = Callable[[Sequence[float]], float]


def least(
    objective: Objective, start: Sequence[float], steps: Sequence[float], *, rounds: int
) -> tuple[Point, float]:
    """The best point found in `rounds`, and its value. One to two evaluations per round, rarely more."""
    corners: list[Point] = [list(start)]
    for axis, step in enumerate(steps):
        corner = list(start)
        corner[axis] += step
        corners.append(corner)
    simplex = [(objective(corner), corner) for corner in corners]
    for _ in range(rounds):
        simplex.sort(key=lambda pair: pair[0])
        simplex = _moved(objective, simplex)
    value, point = min(simplex, key=lambda pair: pair[0])
    return point, value


def _moved(objective: Objective, simplex: list[tuple[float, Point]]) -> list[tuple[float, Point]]:
    """The simplex after one round: the worst corner is reflected, expanded or contracted, or all shrink."""
    *others, (worst_value, worst) = simplex
    middle = [sum(axis) / len(others) for axis in zip(*(point for _, point in others), strict=True)]

    def along(share: float) -> tuple[float, Point]:
        point = [m + share * (m - w) for m, w in zip(middle, worst, strict=True)]
        return objective(point), point

    reflected = along(1.0)
    if reflected[0] < others[0][0]:
        return [*others, min(reflected, along(2.0), key=lambda pair: pair[0])]
    if reflected[0] < others[-1][0]:
        return [*others, reflected]
    contracted = along(-0.5)
    if contracted[0] < worst_value:
        return [*others, contracted]
    best = others[0][1]
    halved = [[(b + p) / 2 for b, p in zip(best, point, strict=True)] for _, point in simplex[1:]]
    return [others[0], *((objective(point), point) for point in halved)]

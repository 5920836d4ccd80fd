"""Where the names of markers go, so that they do not lie upon each other: geometry, nothing drawn."""

from collections.abc import Sequence
from typing import NamedTuple

# A letter of a name, in shares of a panel's width and height; the gap between marker and name.
WIDTH, HEIGHT = 0.019, 0.05
GAP_X, GAP_Y = 0.018, 0.02
# Half a marker, and how far a name may stand out of the panel.
MARKER, OUTSIDE = 0.014, 0.1


class Mark(NamedTuple):
    """A marker, in shares of the panel from its lower left corner. `must`: it is named at any cost."""

    x: float
    y: float
    name: str
    must: bool


class Place(NamedTuple):
    """To which sides of its marker a name goes: 1 right or above, -1 left or below."""

    right: int
    up: int


PLACES = [Place(1, 1), Place(1, -1), Place(-1, 1), Place(-1, -1)]


def placed(marks: Sequence[Mark]) -> list[Place | None]:
    """For each its place, those that must be named first; None where a name would cover something.

    O(marks^2).
    """
    taken = [(mark.x - MARKER, mark.y - MARKER, mark.x + MARKER, mark.y + MARKER) for mark in marks]
    found: list[Place | None] = [None] * len(marks)
    for number in sorted(range(len(marks)), key=lambda each: not marks[each].must):
        mark = marks[number]
        if not mark.name:
            continue
        boxes = {place: _box(mark, place) for place in PLACES}
        free = [
            place
            for place, box in boxes.items()
            if box[0] >= -OUTSIDE and box[2] <= 1 + OUTSIDE
            if not any(_overlap(box, other) for other in taken)
        ]
        if free or mark.must:
            found[number] = place = (free or PLACES)[0]
            taken.append(boxes[place])
    return found


def _box(mark: Mark, place: Place) -> tuple[float, float, float, float]:
    wide = WIDTH * len(mark.name)
    left = mark.x + (GAP_X if place.right > 0 else -GAP_X - wide)
    low = mark.y + (GAP_Y if place.up > 0 else -GAP_Y - HEIGHT)
    return left, low, left + wide, low + HEIGHT


def _overlap(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    return (
        first[0] < second[2]
        and second[0] < first[2]
        and first[1] < second[3]
        and second[1] < first[3]
    )

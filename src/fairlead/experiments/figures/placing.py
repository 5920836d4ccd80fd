"""Where the names of markers go, so that they do not lie upon each other: geometry, nothing drawn."""

from collections.abc import Sequence
from typing import NamedTuple

# A letter of a name, in shares of a panel's width and height; the gap between marker and name.
WIDTH, HEIGHT = 0.019, 0.05
GAP_X, GAP_Y = 0.018, 0.02
# From one line of names to the next, which do not touch.
LINE = 1.04 * HEIGHT
# Half a marker, and how far a name may stand out of the panel.
MARKER, OUTSIDE = 0.014, 0.1


class Mark(NamedTuple):
    """A marker, in shares of the panel from its lower left corner. `must`: it is named at any cost."""

    x: float
    y: float
    name: str
    must: bool


class Place(NamedTuple):
    """To which sides of its marker a name goes: 1 right or above, -1 left or below.

    Further lines above or below are 2, 3 and so on: a thin line then leads back to the marker.
    """

    right: int
    up: int

    @property
    def is_far(self) -> bool:
        """Whether it takes a line to see whose name it is."""
        return abs(self.up) > 1


FURTHEST = 6
PLACES = [
    Place(right, up * far) for far in range(1, FURTHEST + 1) for right in (1, -1) for up in (1, -1)
]


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
            if not place.is_far or (box[1] >= 0 and box[3] <= 1)
            if not any(_overlap(box, other) for other in taken)
        ]
        if free or mark.must:
            found[number] = place = (free or PLACES)[0]
            taken.append(boxes[place])
    return found


def _box(mark: Mark, place: Place) -> tuple[float, float, float, float]:
    wide = WIDTH * len(mark.name)
    left = mark.x + (GAP_X if place.right > 0 else -GAP_X - wide)
    beyond = (abs(place.up) - 1) * LINE
    low = mark.y + (GAP_Y + beyond if place.up > 0 else -GAP_Y - beyond - HEIGHT)
    return left, low, left + wide, low + HEIGHT


def _overlap(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    return (
        first[0] < second[2]
        and second[0] < first[2]
        and first[1] < second[3]
        and second[1] < first[3]
    )

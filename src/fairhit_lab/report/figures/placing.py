"""Positions of markers' names such that they do not overlap: geometry, nothing is drawn here."""

from collections.abc import Sequence
from typing import NamedTuple

# Size of a letter, and of the gap between marker and name, in shares of a panel's width and height.
WIDTH, HEIGHT = 0.019, 0.05
GAP_X, GAP_Y = 0.018, 0.02
# Distance of two lines of names, which must not touch, and of two positions further off.
LINE, STEP = 1.04 * HEIGHT, 0.06
# Half a marker, and how far a name may extend beyond the panel.
MARKER, OUTSIDE = 0.014, 0.1

Box = tuple[float, float, float, float]


class Mark(NamedTuple):
    """A marker, in shares of the panel from its lower left corner. `must`: its name is shown at any cost."""

    x: float
    y: float
    name: str
    must: bool


class LabelSide(NamedTuple):
    """The sides of a marker on which its name is: 1 right or above, -1 left or below.

    2, 3 and so on are as many lines or steps further; a thin line then leads back to the marker.
    """

    right: int
    up: int

    @property
    def is_far(self) -> bool:
        """True if a line has to connect name and marker."""
        return abs(self.up) > 1 or abs(self.right) > 1


FURTHEST = 8
# Positions beside the marker, then further and further off.
PLACES = [
    LabelSide(right * across, up * along)
    for across, along in sorted(
        ((across, along) for across in range(1, FURTHEST) for along in range(1, FURTHEST)),
        key=sum,
    )
    for right in (1, -1)
    for up in (1, -1)
]


def placed(marks: Sequence[Mark], *, room: float = 1.0) -> list[LabelSide | None]:
    """The side of each marker's name, None where a name would cover something.

    Names that must be shown are placed first. `room`: how many times as wide and high as usual the
    panel is. O(marks^2 * places).
    """
    half = MARKER / room
    markers = [(mark.x - half, mark.y - half, mark.x + half, mark.y + half) for mark in marks]
    names: list[Box] = []
    found: list[LabelSide | None] = [None] * len(marks)
    for number in sorted(range(len(marks)), key=lambda each: not marks[each].must):
        mark = marks[number]
        if not mark.name:
            continue
        boxes = {place: _box(mark, place, room) for place in PLACES}
        inside = [place for place, box in boxes.items() if _is_inside(box, place)] or PLACES
        free = [
            place
            for place in inside
            if not any(_overlap(boxes[place], other) for other in (*markers, *names))
        ]
        # A name that must be shown covers a marker rather than another name.
        bare = [place for place in inside if not any(_overlap(boxes[place], on) for on in names)]
        if free or mark.must:
            found[number] = place = (free or bare or inside)[0]
            names.append(boxes[place])
    return found


def _is_inside(box: Box, place: LabelSide) -> bool:
    across = box[0] >= -OUTSIDE and box[2] <= 1 + OUTSIDE
    return across and (not place.is_far or (box[1] >= 0 and box[3] <= 1))


def anchor_of(mark: Mark, place: LabelSide, room: float) -> tuple[float, float]:
    """The corner of a name that is next to its marker, in shares of the panel."""
    across = (GAP_X + (abs(place.right) - 1) * STEP) / room
    along = (GAP_Y + (abs(place.up) - 1) * LINE) / room
    return (
        mark.x + (across if place.right > 0 else -across),
        mark.y + (along if place.up > 0 else -along),
    )


def _box(mark: Mark, place: LabelSide, room: float) -> Box:
    wide, high = WIDTH * len(mark.name) / room, HEIGHT / room
    x, y = anchor_of(mark, place, room)
    left, low = (x if place.right > 0 else x - wide), (y if place.up > 0 else y - high)
    return left, low, left + wide, low + high


def _overlap(first: Box, second: Box) -> bool:
    return (
        first[0] < second[2]
        and second[0] < first[2]
        and first[1] < second[3]
        and second[1] < first[3]
    )

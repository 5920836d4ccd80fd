"""The numbers that a panel shows: rows of all seeds become medians with the range over the seeds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from fairhit_lab.studies.shared.dominance import dominations
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import (
    Cell,
    Interval,
    Label,
    ResultRow,
    Results,
    interval_of,
)

# Columns that are neither labels nor measures.
ADDED = ("study", "config", "commit")
NOTHING = "–"


class Spot(NamedTuple):
    """A case in a panel: its x, and the intervals of x (where that is a measure) and y over the seeds.

    `name` has the labels by which it differs from the other cases of its line, such as the quantum.
    """

    x: Label
    across: Interval | None
    y: Interval
    name: str


@dataclass(frozen=True, slots=True)
class Lines:
    """The spots of each hue; `categories` are all values of x, `numeric` is true if x has a scale."""

    by_hue: Mapping[Label, Sequence[Spot]]
    categories: Sequence[Label]
    numeric: bool

    def place(self, x: Label) -> float:
        """The position of x along the axis: the number itself, or the index of its category."""
        return float(x) if self.numeric else float(self.categories.index(x))


class Curve(NamedTuple):
    """A client's values over time, or those of another hue."""

    name: Label
    times_s: Sequence[float]
    values: Sequence[float | None]


def kept(panel: Panel, rows: Iterable[ResultRow]) -> list[ResultRow]:
    """Rows whose labels are those of the panel's `where`."""
    return [row for row in rows if all(row[name] == want for name, want in panel.where.items())]


def label_columns(rows: Sequence[ResultRow]) -> list[str]:
    """The columns of the study's labels, which come before the seed."""
    columns = list(rows[0]) if rows else ["seed"]
    return [name for name in columns[: columns.index("seed")] if name not in ADDED]


def lines_of(panel: Panel, results: Results) -> Lines:
    """The spots of a panel of rows. Cases without a value of y (or, in a path, of x) are left out."""
    rows, labels = kept(panel, results.rows), label_columns(results.rows)
    if panel.over:
        labels.remove(panel.over)
        rows = _as_one(panel, labels, rows)
    by_case: dict[tuple[Cell, ...], list[ResultRow]] = {}
    for row in rows:
        by_case.setdefault(tuple(row[name] for name in labels), []).append(row)
    by_hue: dict[Label, list[tuple[Sequence[Cell], Spot]]] = {}
    for case, of in by_case.items():
        present = [row for row in of if row[panel.y] is not None and row[panel.x] is not None]
        if present:
            hue = _label(of[0][panel.hue]) if panel.hue else panel.y_label or panel.y
            by_hue.setdefault(hue, []).append((case, _spot(panel, present)))
    categories = list(
        dict.fromkeys(_label(row[panel.x]) for row in rows if row[panel.x] is not None)
    )
    numeric = panel.form != "bars" and all(isinstance(x, int | float) for x in categories)
    if numeric:
        categories.sort(key=float)
    return Lines(
        {hue: _named(panel, labels, spots, numeric) for hue, spots in by_hue.items()},
        categories,
        numeric,
    )


def _as_one(panel: Panel, labels: Sequence[str], rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Rows in which the values of the label `over` are merged into medians.

    Each value is first divided by the best of its `over` and seed, if the panel says so. Seeds stay
    apart.
    """
    complete = [row for row in rows if row[panel.x] is not None and row[panel.y] is not None]
    best: dict[tuple[str, Cell, Cell], float] = {}
    for row in complete:
        for name, kind in panel.best.items():
            key, value = (name, row[panel.over], row["seed"]), _number(row[name])
            best[key] = (max if kind == "most" else min)(value, best.get(key, value))
    columns: dict[tuple[Cell, ...], dict[str, list[float]]] = {}
    for row in complete:
        case = tuple(row[name] for name in (*labels, "seed"))
        of = columns.setdefault(case, {panel.x: [], panel.y: []})
        for name, values in of.items():
            unit = best[name, row[panel.over], row["seed"]] if name in panel.best else 1.0
            values.append(_number(row[name]) / unit if unit else 1.0)
    return [
        dict(zip((*labels, "seed"), case, strict=True))
        | {name: median(values) for name, values in of.items()}
        for case, of in columns.items()
    ]


def _number(cell: Cell) -> float:
    assert isinstance(cell, int | float), cell
    return float(cell)


def _spot(panel: Panel, rows: Sequence[ResultRow]) -> Spot:
    xs = [_label(row[panel.x]) for row in rows]
    ys = [float(row[panel.y] or 0.0) for row in rows]
    on_scale = all(isinstance(x, int | float) for x in xs)
    across = interval_of(float(x) for x in xs) if on_scale else None
    return Spot(xs[0], across, interval_of(ys), "")


def _named(
    panel: Panel,
    labels: Sequence[str],
    spots: Sequence[tuple[Sequence[Cell], Spot]],
    numeric: bool,
) -> list[Spot]:
    """Spots named by the labels that differ along a path; those of lines and bars are in the order of x."""
    varying = [
        place
        for place, name in enumerate(labels)
        if name != panel.hue and len({case[place] for case, _ in spots}) > 1
    ]
    named = [
        spot._replace(name=" ".join(short(case[place]) for place in varying))
        for case, spot in spots
    ]
    if panel.form == "lines" and numeric:
        named.sort(key=lambda spot: float(spot.x))
    if panel.form in {"bars", "lines"}:
        xs = [spot.x for spot in named]
        assert len(set(xs)) == len(xs), (
            f"{panel.title}: several cases at one x; `where` tells them apart"
        )
    return named


def curves_of(panel: Panel, results: Results) -> list[Curve]:
    """The curves of a panel of series, by the panel's hue, else by client."""
    hue = panel.hue or "client"
    rows = [row for row in kept(panel, results.series) if row["metric"] == panel.y]
    found: dict[Label, tuple[list[float], list[float | None]]] = {}
    for row in rows:
        times_s, values = found.setdefault(_label(row[hue]), ([], []))
        value = row["value"]
        times_s.append(float(row["time_s"] or 0.0))
        values.append(None if value is None else float(value))
    for name, (times_s, _) in found.items():
        assert times_s == sorted(times_s), f"{panel.title}: several curves of {name}"
    return [Curve(name, *found[name]) for name in sorted(found, key=_order)]


def _order(name: Label) -> tuple[float, str]:
    """A sort key: numbers by size, then texts by length first, so that c10 follows c9."""
    return (float(name), "") if isinstance(name, int | float) else (float(len(name)), name)


def table_of(panel: Panel, results: Results) -> list[list[str]]:
    """The cells of a table panel, heading first: a line per hue (and x), medians with their range as text."""
    if panel.goals:
        return _who_dominates(panel, results)
    rows = kept(panel, results.rows)
    keys = [name for name in (panel.x, panel.hue) if name]
    by_line: dict[tuple[Cell, ...], list[ResultRow]] = {}
    for row in rows:
        by_line.setdefault(tuple(row[name] for name in keys), []).append(row)
    lines = [[*keys, *panel.columns]]
    for key, of in by_line.items():
        seeds = [row["seed"] for row in of]
        assert len(set(seeds)) == len(seeds), f"{panel.title}: several cases in the line of {key}"
        lines.append(
            [*map(short, key), *(_text([row[name] for row in of]) for name in panel.columns)]
        )
    return lines


def _who_dominates(panel: Panel, results: Results) -> list[list[str]]:
    """A dominance table: a line and a column per case, and a last line that counts over all cases."""
    labels = [name for name in label_columns(results.rows) if name != panel.over]
    cases = list(dict.fromkeys(tuple(_label(row[name]) for name in labels) for row in results.rows))
    among = [dict(zip(labels, case, strict=True)) for case in cases]
    found = dominations(results, panel.goals, panel.over, among)
    places = range(len(cases))
    lines = [["", *(str(place + 1) for place in places)]]
    for one, case in enumerate(cases):
        name = " ".join(short(label) for label in case if label)
        counts = [str(len(found.get((one, other), ())) or "") for other in places]
        counts[one] = NOTHING
        lines.append([f"{one + 1} {name}", *counts])
    by_any = [
        len({value for (_, other), on in found.items() if other == place for value in on})
        for place in places
    ]
    return [*lines, ["by anybody", *(str(count or "") for count in by_any)]]


def _text(cells: Sequence[Cell]) -> str:
    numbers = [float(cell) for cell in cells if isinstance(cell, int | float)]
    if not numbers:
        texts = [str(cell) for cell in cells if cell is not None]
        return texts[0] if texts else NOTHING
    return str(interval_of(numbers))


def short(label: Cell) -> str:
    """A label as an axis shows it: 16384 becomes 16k, as a power of two, and 40000 becomes 40k."""
    if isinstance(label, int) and label >= 1024 and label & (label - 1) == 0:
        return f"{label // 1024}k"
    if isinstance(label, int) and label >= 2000 and label % 1000 == 0:
        return f"{label // 1000}k"
    if isinstance(label, int):
        return f"{label:,}"
    return f"{label:g}" if isinstance(label, float) else str(label)


def said(name: Label, hue: str) -> str:
    """A name as a legend shows it: a number with what it is of, "pool 35,000", "longest hold 2 s"."""
    if isinstance(name, str):
        return name
    number = f"{name:,}" if isinstance(name, int) else f"{name:g}"
    what = hue.replace("_", " ")
    return f"{what[:-2]} {number} s" if hue.endswith("_s") else f"{what} {number}"


def _label(cell: Cell) -> Label:
    assert cell is not None
    return cell

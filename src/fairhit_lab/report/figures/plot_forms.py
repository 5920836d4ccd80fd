"""Draws one panel: bars, lines, a path, curves over time, a table."""

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from math import nan
from typing import Any, Literal, NamedTuple

from fairhit_lab.report.figures.drawn import Curve, Lines, Spot, curves_of, lines_of, said, short
from fairhit_lab.report.figures.palette import colours_of, policy_of
from fairhit_lab.report.figures.placing import LabelSide, Mark, anchor_of, placed
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Interval, Label, Results

MARKERS = "osD^vPX*<>"
# The width of a panel for which placing's letter sizes hold.
USUAL_INCHES = 4.0
# A logarithmic axis that ends below this many times its beginning may have one of 1, 2 and 5 only.
SHORT_LOG_AXIS = 6
Dashes = Literal["-", "--", ":", "-."]
DASHES: tuple[Dashes, ...] = ("-", "--", ":", "-.")
# Bars of one colour differ in what fills them.
HATCHES: Mapping[Dashes, str | None] = {"-": None, "--": "//", ":": "..", "-.": "xx"}
# Between the lines of a panel, so that their whiskers do not hide each other, and between the outer ones at
# most: shares of its width.
APART, APART_AT_MOST = 0.008, 0.05


class SeriesStyle(NamedTuple):
    """The colour, marker and dashes of a name."""

    colour: str
    marker: str
    dashes: Dashes


SeriesStyles = Mapping[Label, SeriesStyle]


def styles_of(names: Sequence[Label]) -> dict[Label, SeriesStyle]:
    """The style of each name; names with the same colour differ in marker and dashes."""
    colours = colours_of(names)
    before: dict[str, int] = {}
    styles: dict[Label, SeriesStyle] = {}
    for place, name in enumerate(names):
        colour = colours[name]
        same = before.get(colour, 0)
        before[colour] = same + 1
        styles[name] = SeriesStyle(
            colour, MARKERS[place % len(MARKERS)], DASHES[same % len(DASHES)]
        )
    return styles


def draw(axes: Any, panel: Panel, results: Results, styles: SeriesStyles) -> None:
    """Draw the panel without its legend."""
    axes.set_title(panel.title)
    named = False
    if panel.of == "series":
        _curves(axes, curves_of(panel, results), styles, panel.hue or "client")
    else:
        lines = lines_of(panel, results)
        {"bars": _bars, "lines": _lines, "path": _path}[panel.form](axes, panel, lines, styles)
        named = panel.form == "bars" and all(isinstance(name, str) for name in lines.categories)
    axes.set_xlabel(panel.x_label or ("" if named else panel.x))
    axes.set_ylabel(panel.y_label or panel.y)
    if panel.log_y:
        axes.set_yscale("log")
        _plain(axes.yaxis)
    elif panel.zero and axes.has_data():
        data, (_, high) = axes.dataLim, axes.get_ylim()
        axes.set_ylim(min(0, data.ymin), max(high, 1.05 * data.ymax))
    for axis in (axes.xaxis, axes.yaxis):
        _separate_thousands(axis)
    if panel.form == "path":  # last, as the limits of the axes have to be final
        _name_marks(axes, lines_of(panel, results), styles)


def _plain(axis: Any) -> None:
    """Label a logarithmic axis with 0.1, 1, 10, and with 2 and 5 where they fit; a short one evenly."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

    low, high = axis.get_view_interval()
    is_short = high < low * SHORT_LOG_AXIS
    axis.set_major_locator(MaxNLocator(5) if is_short else LogLocator(subs=(1, 2, 5), numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(NullLocator())


def _separate_thousands(axis: Any) -> None:
    """Write the numbers of a linear axis as 20,000 where they are that large."""
    from matplotlib.ticker import ScalarFormatter, StrMethodFormatter

    is_plain = type(axis.get_major_formatter()) is ScalarFormatter
    if is_plain and max(map(abs, axis.get_view_interval())) >= 1_000:
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _bars(axes: Any, panel: Panel, lines: Lines, styles: SeriesStyles) -> None:
    """Draw groups by x, in each a bar per hue; whiskers show the range over the seeds."""
    wide = 0.8 / max(len(lines.by_hue), 1)
    for number, (hue, points) in enumerate(lines.by_hue.items()):
        places = [
            lines.place(point.x) + (number - (len(lines.by_hue) - 1) / 2) * wide for point in points
        ]
        if panel.hue:
            colour: Any = styles[hue][0]
        else:  # bars may be policies, which have colours of their own
            by_x = colours_of(lines.categories)
            colour = [by_x[p.x] if policy_of(p.x) else styles[hue][0] for p in points]
        hatches = HATCHES[styles[hue].dashes] if panel.hue else None
        axes.bar(
            places,
            [point.y.median for point in points],
            width=wide * 0.92,
            color=colour,
            hatch=hatches,
            edgecolor="white",
            linewidth=0.4,
            label=said(hue, panel.hue),
        )
        _whiskers(axes, places, points)
    _name_categories(axes, lines)
    axes.grid(visible=False, axis="x")


def _whiskers(axes: Any, places: Sequence[float], points: Sequence[Spot]) -> None:
    """Draw the range over the seeds, except where all seeds agree, as for measured or printed values."""
    spread = [
        (place, each.y)
        for place, each in zip(places, points, strict=True)
        if each.y.low < each.y.high
    ]
    if spread:
        axes.errorbar(
            [place for place, _ in spread], [y.median for _, y in spread],
            yerr=_error([y for _, y in spread]), fmt="none", ecolor="#222222", elinewidth=0.9,
            capsize=2,
        )  # fmt: skip


def _name_categories(axes: Any, lines: Lines) -> None:
    names = [short(name) for name in lines.categories]
    crowded = sum(len(name) for name in names) > 34
    turned = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axes.set_xticks(range(len(names)), names, **turned)


def _lines(axes: Any, panel: Panel, lines: Lines, styles: SeriesStyles) -> None:
    """Draw a line per hue, with whiskers for the range over the seeds.

    A hue with a single x beside others that have several does not depend on x: it becomes a level, with
    its whisker at the right edge. Lines stand a little apart, so that no whisker hides another.
    """
    swept = {hue for hue, points in lines.by_hue.items() if len(points) > 1}
    apart = _apart(panel, lines, swept)
    for number, (hue, points) in enumerate(lines.by_hue.items()):
        style, offset = styles[hue], number - (len(lines.by_hue) - 1) / 2
        if lines.numeric and swept and hue not in swept:
            y, edge = points[0].y, 1 - 2 * APART * (len(lines.by_hue) - number)
            axes.axhline(y.median, color=style.colour, linestyle="--", label=said(hue, panel.hue))
            axes.plot(
                [edge, edge], [y.low, y.high], color=style.colour, linewidth=1.6,
                transform=axes.get_yaxis_transform(),
            )  # fmt: skip
            continue
        places = [apart(lines.place(point.x), offset) for point in points]
        axes.plot(
            places, [point.y.median for point in points], style.dashes, marker=style.marker,
            markersize=4, color=style.colour, label=said(hue, panel.hue),
        )  # fmt: skip
        axes.errorbar(
            places, [point.y.median for point in points],
            yerr=_error([point.y for point in points]), fmt="none", ecolor=style.colour,
            elinewidth=0.9, alpha=0.7,
        )  # fmt: skip
    shown = [lines.by_hue[hue] for hue in swept or lines.by_hue]
    _x_axis(axes, panel, lines, {point.x for points in shown for point in points})


def _apart(panel: Panel, lines: Lines, swept: Collection[Label]) -> Callable[[float, float], float]:
    """The place of a point that is offset by so many lines; `swept` are the lines that vary x."""
    shown = [points for hue, points in lines.by_hue.items() if hue in swept]
    places = [lines.place(point.x) for points in shown for point in points]
    share = min(APART, APART_AT_MOST / len(lines.by_hue))
    if not places:
        return lambda place, _: place
    if panel.log_x and lines.numeric:
        factor = (max(places) / min(places)) ** share
        return lambda place, offset: place * factor**offset
    wide = share * (max(places) - min(places))
    return lambda place, offset: place + wide * offset


def _x_axis(axes: Any, panel: Panel, lines: Lines, places: Container[Label]) -> None:
    """Set a tick at each of the places if there are few of them."""
    if not lines.numeric:
        _name_categories(axes, lines)
        return
    if panel.log_x:
        axes.set_xscale("log")
    ticks = [x for x in lines.categories if x in places]
    if len(ticks) <= 8:
        axes.set_xticks(ticks, [short(x) for x in ticks])
        axes.minorticks_off()


def _path(axes: Any, panel: Panel, lines: Lines, styles: SeriesStyles) -> None:
    """Draw trade-offs: a marker per case, joined in their order, each hue named at its last marker."""
    for hue, points in lines.by_hue.items():
        colour, marker, dashes = styles[hue]
        intervals = [point.across for point in points if point.across is not None]
        across = [interval.median for interval in intervals]
        up = [point.y.median for point in points]
        axes.plot(
            across, up, dashes, marker=marker, markersize=6, color=colour, linewidth=1.2,
            label=str(hue),
        )  # fmt: skip
        if any(point.y.seeds > 1 for point in points):
            axes.errorbar(
                across, up,
                xerr=_error(intervals),
                yerr=_error([point.y for point in points]),
                fmt="none", ecolor=colour, alpha=0.4, elinewidth=0.8,
            )  # fmt: skip
    axes.margins(x=0.12, y=0.1)
    if panel.log_x:
        axes.set_xscale("log")
        _plain(axes.xaxis)
    else:
        axes.locator_params(axis="x", nbins=6)


def _name_marks(axes: Any, lines: Lines, styles: SeriesStyles) -> None:
    """Write names beside their markers, or further off with a line; the last of a path at any cost."""
    spots = [
        (hue, point, point is points[-1])
        for hue, points in lines.by_hue.items()
        for point in points
        if point.across is not None
    ]
    if not spots:
        return
    names = [
        " ".join([str(hue)] * last + [point.name] * bool(point.name)) for hue, point, last in spots
    ]
    at = [(point.across.median, point.y.median) for _, point, _ in spots if point.across]
    axes.autoscale_view()  # else the limits do not include the margins
    shares = (axes.transScale + axes.transLimits).transform(at)
    marks = [
        Mark(float(x), float(y), name, last)
        for (x, y), name, (_, _, last) in zip(shares, names, spots, strict=True)
    ]
    room = axes.figure.get_figwidth() / _columns(axes) / USUAL_INCHES
    for xy, mark, (hue, _, _), place in zip(
        at, marks, spots, placed(marks, room=room), strict=True
    ):
        if place is not None:
            anchor = anchor_of(mark, place, room)
            _annotate(axes, xy, mark.name, colour=styles[hue].colour, place=place, anchor=anchor)


def _columns(axes: Any) -> int:
    grid = axes.get_subplotspec()
    return int(grid.get_gridspec().ncols) if grid else 1


def _annotate(
    axes: Any,
    xy: tuple[float, float],
    name: str,
    *,
    colour: str,
    place: LabelSide,
    anchor: tuple[float, float],
) -> None:
    """Write a name beside the marker at xy, or at the anchor (in shares of the panel) with a line to it."""
    where: dict[str, Any] = {
        "xytext": (5 * place.right, 4 * place.up), "textcoords": "offset points"
    }  # fmt: skip
    if place.is_far:
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
        where = {"xytext": anchor, "textcoords": "axes fraction", "arrowprops": line}
    axes.annotate(
        name, xy, fontsize=7.5, color=colour, ha="left" if place.right > 0 else "right",
        va="bottom" if place.up > 0 else "top", **where,
    )  # fmt: skip


def _error(intervals: Sequence[Interval]) -> tuple[list[float], list[float]]:
    return [i.median - i.low for i in intervals], [i.high - i.median for i in intervals]


def _curves(axes: Any, curves: Sequence[Curve], styles: SeriesStyles, hue: str) -> None:
    """Draw what each client got over time; a missing value stays a gap."""
    for curve in curves:
        colour, _, dashes = styles[curve.name]
        values = [nan if value is None else value for value in curve.values]
        axes.plot(
            curve.times_s, values, dashes, color=colour, linewidth=1.3, label=said(curve.name, hue)
        )
    axes.set_xlim(left=0)


def draw_table(axes: Any, title: str, lines: Sequence[Sequence[str]]) -> None:
    """Draw a heading and lines of text, with columns as wide as their texts."""
    axes.set_axis_off()
    axes.set_title(title)
    # Spaces keep columns of one digit apart.
    head, *body = [[f"{cell:^4}" if len(cell) < 4 else cell for cell in line] for line in lines]
    made = axes.table(
        cellText=body,
        colLabels=head,
        loc="upper center",
        edges="horizontal",
        cellLoc="left",
        colLoc="left",
    )
    for cell in made.get_celld().values():
        cell.set(edgecolor="#d0d0d0")
    made.auto_set_font_size(False)
    made.set_fontsize(8)
    made.auto_set_column_width(list(range(len(lines[0]))))

"""All plotting code: studies' panels as data become figures in the papers' form, for page and docs."""

from collections.abc import Sequence
from math import ceil, nan
from pathlib import Path
from typing import Any, cast

from fairlead.errors import ConfigError, in_words
from fairlead.experiments.drawn import Curve, Lines, Spot, curves_of, lines_of, short, table_of
from fairlead.experiments.palette import colours_of, policy_of
from fairlead.experiments.panel import Panel
from fairlead.experiments.results import Interval, Label, Results
from fairlead.experiments.study import Study

MEASURED, SIMULATED, EARLIER = "#444444", "#0072b2", "#d55e00"
MARKERS = "osD^vPX*<>"
DASHES = ("-", "--", ":", "-.")
# x and y of a line, or of points.
Series = tuple[Sequence[float], Sequence[float]]

PANEL_INCHES = 4.0, 3.0
TABLE_LINE_INCHES = 0.24
LEGEND_AT_MOST = 16
STYLE: dict[str, object] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "text.parse_math": False,
    "pdf.fonttype": 42,
}


def save_figure(paths: Sequence[Path], study: Study, results: Results) -> None:
    """The study's panels, to each of the paths. The same rows give the same bytes.

    Raises ConfigError if a file cannot be written.
    """
    from matplotlib import rc_context

    with rc_context(cast("Any", {**STYLE, "svg.hashsalt": study.title})):
        figure = _figure(study, results)
        for path in paths:
            try:
                # Without it an SVG tells the time at which it was drawn.
                date = {"metadata": {"Date": None}} if path.suffix == ".svg" else {}
                figure.savefig(path, dpi=130, **date)
            except OSError as error:
                raise ConfigError(f"--out: {in_words(error)}") from None


def _figure(study: Study, results: Results) -> Any:
    """Axes in a grid, then the tables, each over the whole width."""
    from matplotlib.figure import Figure

    drawn = [panel for panel in study.panels if panel.form != "table"]
    tables = [(panel, table_of(panel, results)) for panel in study.panels if panel.form == "table"]
    columns = _columns(len(drawn))
    rows = ceil(len(drawn) / columns)
    wide, high = PANEL_INCHES
    heights = [high] * rows + [TABLE_LINE_INCHES * (len(lines) + 1.5) for _, lines in tables]
    figure = Figure(figsize=(max(columns * wide, 6.5), sum(heights) + 0.6), layout="constrained")
    figure.suptitle(f"{study.title}\n{study.source}", fontsize=10)
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    shared = _shared_hues(drawn, results)
    for place, panel in enumerate(drawn):
        axes = figure.add_subplot(grid[place // columns, place % columns])
        _draw(axes, panel, results, legend=shared is None)
    if shared:
        _shared_legend(figure, shared)
    for place, (panel, lines) in enumerate(tables):
        _table(figure.add_subplot(grid[rows + place, :]), panel.title, lines)
    return figure


def _columns(panels: int) -> int:
    """Up to three side by side; four in a square; many by four."""
    if panels <= 3:
        return max(panels, 1)
    if panels == 4:
        return 2
    return 3 if panels <= 6 or panels == 9 else 4


def _draw(axes: Any, panel: Panel, results: Results, *, legend: bool) -> None:
    axes.set_title(panel.title)
    if panel.of == "series":
        _curves(axes, curves_of(panel, results))
    else:
        lines = lines_of(panel, results)
        {"bars": _bars, "lines": _lines, "path": _path, "points": _points}[panel.form](
            axes, panel, lines
        )
    axes.set_xlabel(panel.x_label or panel.x)
    axes.set_ylabel(panel.y_label or panel.y)
    if panel.log_y:
        axes.set_yscale("log")
    elif panel.zero:
        axes.set_ylim(bottom=0)
    entries = axes.get_legend_handles_labels()[1]
    if legend and 1 < len(entries) <= LEGEND_AT_MOST and panel.form != "path":
        axes.legend(ncols=ceil(len(entries) / 8))


def _shared_hues(panels: Sequence[Panel], results: Results) -> list[Label] | None:
    """The names that one legend can explain for all panels, if that is so."""
    if len(panels) < 2 or any(panel.form == "path" for panel in panels):
        return None
    hues = [list(_hues(panel, results)) for panel in panels]
    longest = max(hues, key=len)
    if not 1 < len(longest) <= LEGEND_AT_MOST:
        return None
    return longest if all(each == longest for each in hues) else None


def _hues(panel: Panel, results: Results) -> Sequence[Label]:
    if panel.of == "series":
        return [curve.name for curve in curves_of(panel, results)]
    return list(lines_of(panel, results).by_hue) if panel.hue else []


def _shared_legend(figure: Any, names: Sequence[Label]) -> None:
    from matplotlib.patches import Patch

    looks = _looks(names)
    figure.legend(
        handles=[Patch(color=looks[name][0], label=str(name)) for name in names],
        loc="outside lower center",
        ncols=min(len(names), 8),
    )


def _looks(names: Sequence[Label]) -> dict[Label, tuple[str, str, str]]:
    """Colour, marker and dashes of each; whoever shares a colour differs in the others."""
    colours = colours_of(names)
    before: dict[str, int] = {}
    looks: dict[Label, tuple[str, str, str]] = {}
    for place, name in enumerate(names):
        colour = colours[name]
        same = before.get(colour, 0)
        before[colour] = same + 1
        looks[name] = colour, MARKERS[place % len(MARKERS)], DASHES[same % len(DASHES)]
    return looks


def _bars(axes: Any, panel: Panel, lines: Lines) -> None:
    """Groups by x, in it a bar a hue; whiskers from the least to the most over the seeds."""
    looks = _looks(list(lines.by_hue))
    wide = 0.8 / max(len(lines.by_hue), 1)
    for number, (hue, points) in enumerate(lines.by_hue.items()):
        places = [
            lines.place(point.x) + (number - (len(lines.by_hue) - 1) / 2) * wide for point in points
        ]
        if panel.hue:
            colour: Any = looks[hue][0]
        else:  # each bar is a policy, perhaps
            by_x = colours_of(lines.categories)
            colour = [by_x[p.x] if policy_of(p.x) else looks[hue][0] for p in points]
        hatches = "//" if panel.hue and looks[hue][2] != "-" else None
        axes.bar(
            places,
            [point.y.median for point in points],
            width=wide * 0.92,
            color=colour,
            hatch=hatches,
            edgecolor="white",
            linewidth=0.4,
            label=str(hue),
        )
        _whiskers(axes, places, points)
    _name_categories(axes, lines)
    axes.grid(visible=False, axis="x")


def _whiskers(axes: Any, places: Sequence[float], points: Sequence[Spot]) -> None:
    if any(point.y.seeds > 1 for point in points):
        middle = [point.y.median for point in points]
        below = [point.y.median - point.y.low for point in points]
        above = [point.y.high - point.y.median for point in points]
        axes.errorbar(
            places, middle, yerr=(below, above), fmt="none", ecolor="#222222", elinewidth=0.9,
            capsize=2,
        )  # fmt: skip


def _name_categories(axes: Any, lines: Lines) -> None:
    names = [short(name) for name in lines.categories]
    crowded = sum(len(name) for name in names) > 34
    turned = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    axes.set_xticks(range(len(names)), names, **turned)


def _lines(axes: Any, panel: Panel, lines: Lines) -> None:
    """A line a hue, a band from the least to the most over the seeds."""
    looks = _looks(list(lines.by_hue))
    for hue, points in lines.by_hue.items():
        colour, marker, dashes = looks[hue]
        places = [lines.place(point.x) for point in points]
        axes.plot(
            places, [point.y.median for point in points], dashes, marker=marker, markersize=4,
            color=colour, label=str(hue),
        )  # fmt: skip
        if any(point.y.seeds > 1 for point in points):
            axes.fill_between(
                places, [p.y.low for p in points], [p.y.high for p in points],
                color=colour, alpha=0.18, linewidth=0,
            )  # fmt: skip
    _x_axis(axes, panel, lines)


def _x_axis(axes: Any, panel: Panel, lines: Lines) -> None:
    if not lines.numeric:
        _name_categories(axes, lines)
        return
    if panel.log_x:
        axes.set_xscale("log")
    if len(lines.categories) <= 8:
        axes.set_xticks(lines.categories, [short(x) for x in lines.categories])
        axes.minorticks_off()


def _path(axes: Any, panel: Panel, lines: Lines) -> None:
    """Trade-offs: a marker a case, joined in their order, each hue named at its last marker."""
    looks = _looks(list(lines.by_hue))
    for hue, points in lines.by_hue.items():
        colour, marker, dashes = looks[hue]
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
        for place, point in enumerate(points):
            name = [str(hue)] * (place == len(points) - 1) + [point.name] * bool(point.name)
            axes.annotate(
                " ".join(name), (across[place], up[place]), xytext=(5, 4), fontsize=7.5,
                textcoords="offset points", color=colour,
            )  # fmt: skip
    axes.margins(x=0.12, y=0.1)
    if panel.log_x:
        axes.set_xscale("log")


def _error(intervals: Sequence[Interval]) -> tuple[list[float], list[float]]:
    return [i.median - i.low for i in intervals], [i.high - i.median for i in intervals]


def _points(axes: Any, panel: Panel, lines: Lines) -> None:
    """Every row by itself: the spread is what is shown."""
    looks = _looks(list(lines.by_hue))
    for hue, points in lines.by_hue.items():
        colour, marker, _ = looks[hue]
        pairs = [(lines.place(x), value) for point in points for x, value in point.pairs]
        axes.plot(
            [x for x, _ in pairs], [y for _, y in pairs], marker, color=colour, markersize=5,
            alpha=0.8, markeredgewidth=0, label=str(hue),
        )  # fmt: skip
    _x_axis(axes, panel, lines)


def _curves(axes: Any, curves: Sequence[Curve]) -> None:
    """What each client got over time; a gap stays a gap."""
    looks = _looks([curve.name for curve in curves])
    for curve in curves:
        colour, _, dashes = looks[curve.name]
        values = [nan if value is None else value for value in curve.values]
        axes.plot(curve.times_s, values, dashes, color=colour, linewidth=1.3, label=str(curve.name))
    axes.set_xlim(left=0)


def _table(axes: Any, title: str, lines: Sequence[Sequence[str]]) -> None:
    axes.set_axis_off()
    axes.set_title(title)
    made = axes.table(
        cellText=lines[1:], colLabels=lines[0], loc="upper center", edges="horizontal"
    )
    made.auto_set_font_size(False)
    made.set_fontsize(8)
    made.auto_set_column_width(list(range(len(lines[0]))))


def save_calibration(
    path: Path,
    *,
    curve: Series,
    straight: Series,
    points: dict[str, Series],
    ramp: dict[str, Series],
) -> None:
    """The time of a pass by its tokens, and the ramp's time to the first token by arrival.

    Milliseconds and tokens; seconds and seconds. Raises ConfigError if the file cannot be written.
    """
    figure, (left, right) = _panels("Passes are staircases", "Fig. 9's ramp under FCFS")
    left.plot(*curve, color=SIMULATED, label="whole waves of tiles")
    left.plot(*straight, color=EARLIER, linestyle="--", label="straight line")
    for (name, series), marker in zip(points.items(), "ox", strict=True):
        left.plot(*series, marker, color=MEASURED, label=name)
    left.set(xlabel="tokens computed in a pass", ylabel="ms, less attention")
    # One lies upon the other: the lower one is wide.
    for (name, series), look in zip(
        ramp.items(), ((MEASURED, 7, 0.3), (SIMULATED, 2, 1)), strict=True
    ):
        colour, size, alpha = look
        right.plot(
            *series, "o", markersize=size, markeredgewidth=0, color=colour, alpha=alpha, label=name
        )
    right.set(xlabel="arrival, s", ylabel="time to the first token, s")
    for axes in (left, right):
        axes.set(xlim=(0, None), ylim=(0, None))
        axes.legend(frameon=False)
    try:
        figure.savefig(path, dpi=120)
    except OSError as error:
        raise ConfigError(f"--figure: {in_words(error)}") from None
    except ValueError:  # as matplotlib says of a suffix it does not know
        raise ConfigError(f"--figure: expected .svg, .png or .pdf, got {path.name!r}") from None


def _panels(*titles: str) -> tuple[Any, Any]:
    """A figure with one panel a title, side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(titles), 3.6), layout="constrained")
    panels = figure.subplots(1, len(titles))
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels

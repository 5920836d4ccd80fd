"""Figures of studies: the panels in a grid, then the tables, as SVG and PNG.

plot_forms.py draws one panel. No study has plotting code of its own.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from math import ceil
from pathlib import Path
from typing import Any, cast

from fairhit.errors import ConfigError, in_words
from fairhit_lab.report.figures.drawn import curves_of, lines_of, said, table_of
from fairhit_lab.report.figures.plot_forms import (
    HATCHES,
    SeriesStyle,
    SeriesStyles,
    draw,
    draw_table,
    styles_of,
)
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Label, Results
from fairhit_lab.studies.shared.study import Study

# A figure as wide as this can be read at 800 pixels: its letters are 9 of them high.
WIDE_AT_MOST = 10.8
PANEL_INCHES = 4.0, 2.8
# Size of panels with a path of more policies than this, each of which is named at its marker.
CROWDED, CROWDED_INCHES = 12, (5.4, 4.2)
# The columns of panels that name their markers: of few policies, of many.
PATHS, CROWDED_PATHS = 3, 2
TABLE_LINE_INCHES = 0.2
LEGEND_AT_MOST = 16
# Sizes of the title and of the legend below it.
TITLE_POINTS, TITLE_COLOUR, LINE_INCHES = 9, "#555555", 0.18
LETTERS_AN_INCH, KEY_LETTERS = 13, 7
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
    """Draw the study's panels to each of the paths.

    The same rows give the same bytes. Raises ConfigError if a file cannot be written.
    """
    from matplotlib import rc_context

    with rc_context(cast("Any", {**STYLE, "svg.hashsalt": study.title})):
        figure = _figure(study, results)
        for path in paths:
            try:
                # Else an SVG contains the time at which it was drawn.
                date = {"metadata": {"Date": None}} if path.suffix == ".svg" else {}
                figure.savefig(path, dpi=130, **date)
                figure.set_layout_engine("none")  # keep the layout, which takes longest
            except OSError as error:
                raise ConfigError(f"--out: {in_words(error)}") from None


def _figure(study: Study, results: Results) -> Any:
    """The whole figure: axes in a grid, then the tables over the whole width."""
    from matplotlib.figure import Figure

    axed = [panel for panel in study.panels if panel.form != "table"]
    # Quick runs leave cases out, so that some panels may have nothing to show.
    drawn = [panel for panel in axed if _names(panel, results)] or axed[:1]
    tables = [(panel, table_of(panel, results)) for panel in study.panels if panel.form == "table"]
    crowd = max((len(_names(panel, results)) for panel in drawn if panel.form == "path"), default=0)
    wide, high = CROWDED_INCHES if crowd > CROWDED else PANEL_INCHES
    places = places_of(drawn, 4 if not crowd else PATHS if crowd <= CROWDED else CROWDED_PATHS)
    rows = max((row + 1 for row, _ in places), default=0)
    columns = max((column + 1 for _, column in places), default=1)
    heights = [high] * rows + [TABLE_LINE_INCHES * (len(lines) + 1.2) for _, lines in tables]
    figure = Figure(
        figsize=(min(max(columns * wide, 6.5), WIDE_AT_MOST), sum(heights) + 0.6),
        layout="constrained",
    )
    styles = _styles_by_hue(drawn, results)
    shared = _shared(drawn, styles)
    forms = {
        "curves" if panel.of == "series" else panel.form for panel in drawn if _hue(panel) == shared
    }
    keys = {said(name, shared): style for name, style in styles.get(shared, {}).items()}
    _title(figure, f"{study.title} – {study.source}", keys, forms=forms)
    grid = figure.add_gridspec(len(heights), columns, height_ratios=heights)
    curves: dict[str, list[Any]] = {}
    for (row, column), panel in zip(places, drawn, strict=True):
        alone = panel.form == "bars" and columns > 1 and [at for at, _ in places].count(row) == 1
        axes = figure.add_subplot(grid[row, :] if alone else grid[row, column])
        names = _names(panel, results)
        # Too many for one legend: the few of this panel get colours of their own.
        own = styles_of(names) if len(styles[_hue(panel)]) > LEGEND_AT_MOST else styles[_hue(panel)]
        draw(axes, panel, results, own)
        if panel.form != "path" and (not shared or _hue(panel) != shared):
            _own_legend(axes, panel)
        if panel.of == "series" and not panel.log_y:
            curves.setdefault(panel.y, []).append(axes)
    for alike in curves.values():  # curves of two policies are compared by eye
        top = max(axes.get_ylim()[1] for axes in alike)
        for axes in alike:
            axes.set_ylim(top=top)
    for place, (panel, lines) in enumerate(tables):
        draw_table(figure.add_subplot(grid[rows + place, :]), panel.title, lines)
    return figure


def places_of(panels: Sequence[Panel], at_most: int = 4) -> list[tuple[int, int]]:
    """
    The row and column of each panel.

    If each quantity has equally many panels, up to three of them make a row, and more make a column; what
    the last quantity lacks or has more goes below. Quantities that take turns make a row together.
    Other panels fill rows of up to `at_most`.
    """
    shown = [len(list(of)) for _, of in groupby(panels, key=lambda panel: (panel.of, panel.y))]
    count, each = len(panels), shown[0] if shown else 0
    if len(shown) > 1 and each > 1 and set(shown[:-1]) == {each}:
        if each <= at_most and each <= 3:
            return [divmod(place, each) for place in range(count)]
        full = [of for of in shown if of == each]
        if len(full) in {2, 3}:
            whole = len(full) * each
            below = [(each + more // len(full), more % len(full)) for more in range(count - whole)]
            return [(place % each, place // each) for place in range(whole)] + below
    shows = [(panel.of, panel.y) for panel in panels]
    turns = [
        n for n in (2, 3) if count > n and shows == (shows[:n] * count)[:count] and count % n == 0
    ]
    usual = turns[0] if turns else 2 if count == 4 else 3 if count <= 6 or count == 9 else 4
    return [divmod(place, min(usual, at_most)) for place in range(count)]


def _own_legend(axes: Any, panel: Panel) -> None:
    """Add a legend to one panel, above bars and curves, which would fill any corner."""
    names = axes.get_legend_handles_labels()[1]
    if not 1 < len(names) <= LEGEND_AT_MOST:
        return
    if panel.form == "path" or (panel.log_y and panel.form != "bars"):
        axes.legend(ncols=ceil(len(names) / 8))
        return
    columns = min(len(names), 3)
    if not panel.log_y:
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + (high - low) * 0.08 * ceil(len(names) / columns))
    axes.legend(ncols=columns, loc="upper center", borderpad=0.1)


def _hue(panel: Panel) -> str:
    return panel.hue or ("client" if panel.of == "series" else "")


def _names(panel: Panel, results: Results) -> Sequence[Label]:
    """The names that the panel has lines, bars or curves of."""
    if panel.of == "series":
        return [curve.name for curve in curves_of(panel, results)]
    return list(lines_of(panel, results).by_hue)


def _styles_by_hue(panels: Sequence[Panel], results: Results) -> dict[str, SeriesStyles]:
    """Styles by hue and name: a name has the same style in all panels, also where it is alone."""
    names: dict[str, dict[Label, None]] = {}
    for panel in panels:
        names.setdefault(_hue(panel), {}).update(dict.fromkeys(_names(panel, results)))
    return {hue: styles_of(list(of)) for hue, of in names.items()}


def _shared(panels: Sequence[Panel], styles: Mapping[str, SeriesStyles]) -> str:
    """The hue whose legend is drawn once, below the title: that of most panels; empty for a single panel."""
    hues = Counter(_hue(panel) for panel in panels if panel.form != "path" and _hue(panel))
    hue, count = max(hues.items(), key=lambda item: item[1], default=("", 0))
    return hue if count > 1 and 1 < len(styles[hue]) <= LEGEND_AT_MOST else ""


def _key(name: str, style: SeriesStyle, forms: Collection[str]) -> Any:
    """The sign of a name in the legend, as its panels draw it: a line with its marker, or a filled bar."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if "lines" in forms or ("curves" in forms and style.dashes != "-"):
        marker = style.marker if "lines" in forms else ""
        return Line2D(
            [],
            [],
            color=style.colour,
            marker=marker,
            markersize=4,
            linestyle=style.dashes,
            label=name,
        )
    hatch = HATCHES[style.dashes] if "bars" in forms else None
    return Patch(facecolor=style.colour, hatch=hatch, edgecolor="white", linewidth=0, label=name)


def _title(
    figure: Any, text: str, styles: Mapping[str, SeriesStyle], *, forms: Collection[str]
) -> None:
    """Draw the title, and below it the shared legend of panels of these forms."""
    columns = lines = 0
    if styles:
        letters = max(map(len, styles)) + KEY_LETTERS
        columns = min(len(styles), int(figure.get_figwidth() * LETTERS_AN_INCH / letters) or 1)
        lines = ceil(len(styles) / columns)
    # Empty lines of the title reserve the space of the legend, which no layout engine reserves.
    figure.suptitle(text + "\n " * lines, fontsize=TITLE_POINTS, color=TITLE_COLOUR)
    if styles:
        legend = figure.legend(
            handles=[_key(name, style, forms) for name, style in styles.items()],
            loc="upper center",
            bbox_to_anchor=(0.5, 1 - LINE_INCHES / figure.get_figheight()),
            ncols=columns,
            borderpad=0.2,
        )
        legend.set_in_layout(False)

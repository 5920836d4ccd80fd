"""A panel as an interactive chart: numbers over the seeds, drawn by Vega-Lite in the page.

The numbers are made here, so that the page carries medians and not every row.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from fairlead.experiments.figures.drawn import curves_of, lines_of
from fairlead.experiments.figures.palette import colours_of, policy_of
from fairlead.experiments.study.panel import Panel
from fairlead.experiments.study.results import Label, Results

# Pixels, axes and legend included: the page leaves that much room before a chart is drawn.
HEIGHT = 320
DIGITS = 5  # of a number in the page
# A legend longer than this hides the chart.
LEGEND_AT_MOST = 24

Record = dict[str, Any]


def chart_of(panel: Panel, results: Results) -> dict[str, Any] | None:
    """The Vega-Lite specification of any panel but a table, its numbers in it.

    None where there are none: a quick run leaves cases out.
    """
    assert panel.form != "table", panel.title
    by_hue = _curves(panel, results) if panel.of == "series" else _spots(panel, results)
    if panel.form == "lines" and panel.of == "rows":
        by_hue = _with_levels(by_hue)
    records = [
        {"hue": str(hue), **record, "order": order}
        for hue, of in by_hue.items()
        for order, record in enumerate(of)
    ]
    if not records:
        return None
    hues = list(by_hue)
    if panel.form == "bars" and not panel.hue:
        # Each bar is a policy, perhaps: then it wears its colour, as in the figure.
        hues = list(dict.fromkeys(each["x"] for each in records if policy_of(each["x"]))) or hues
        for each in records:
            each["hue"] = str(each["x"] if each["x"] in hues else hues[0])
    y, x = panel.y_label or panel.y, panel.x_label or panel.x
    chart = _layers(panel, records, hues).properties(
        width="container",
        height=HEIGHT,
        autosize=alt.AutoSizeParams(type="fit", contains="padding"),
        data=alt.InlineData(values=records),
        description=f"{panel.title}: {y} over {x}",
    )
    return bare(chart)


def _with_levels(by_hue: dict[Label, list[Record]]) -> dict[Label, list[Record]]:
    """Who has one place only, beside others that have several on a scale, is drawn all along them."""
    swept = [each["x"] for of in by_hue.values() if len(of) > 1 for each in of]
    if not swept or any(isinstance(x, str) for x in swept):
        return by_hue
    ends = (min(swept), max(swept))
    return {
        hue: of if len(of) > 1 else [{**each, "x": x} for each in of for x in ends]
        for hue, of in by_hue.items()
    }


def bare(chart: Any) -> dict[str, Any]:
    """A chart's specification but for its look, which is the page's. Checked against the schema."""
    specification: dict[str, Any] = chart.to_dict()
    return {key: of for key, of in specification.items() if key not in {"$schema", "config"}}


def _spots(panel: Panel, results: Results) -> dict[Label, list[Record]]:
    """What the figure draws, too: medians with the range, or each seed's pair where that is the form."""
    lines = lines_of(panel, results)
    if panel.form == "points":
        return {
            hue: [
                {"x": _number(x), "y": _number(y), "case": spot.name}
                for spot in spots
                for x, y in spot.pairs
            ]
            for hue, spots in lines.by_hue.items()
        }
    return {
        hue: [
            {
                "x": _number(spot.across.median if panel.form == "path" and spot.across else spot.x),
                "y": _number(spot.y.median),
                "low": _number(spot.y.low),
                "high": _number(spot.y.high),
                "seeds": spot.y.seeds,
                **({"case": spot.name} if panel.form == "path" else {}),
            }
            for spot in spots
        ]
        for hue, spots in lines.by_hue.items()
    }  # fmt: skip


def _curves(panel: Panel, results: Results) -> dict[Label, list[Record]]:
    return {
        curve.name: [
            {"x": _number(at), "y": _number(value)}
            for at, value in zip(curve.times_s, curve.values, strict=True)
            if value is not None
        ]
        for curve in curves_of(panel, results)
    }


def _number(value: Label) -> Label:
    """Short: nobody sees a sixth digit."""
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _layers(panel: Panel, records: Sequence[Record], hues: Sequence[Label]) -> Any:
    """The marks of the panel's form; a click in the legend keeps one hue."""
    draw: Mapping[str, Callable[[Any], list[Any]]] = {
        "bars": _bars, "lines": _lines, "path": _path, "points": _points, "curves": _curve_marks,
    }  # fmt: skip
    at = _at(panel, records)
    marks = draw["curves" if panel.of == "series" else panel.form](at)
    if panel.form in _RANGES and any(each.get("low") != each.get("high") for each in records):
        marks.append(_RANGES[panel.form](at))
    kept = alt.selection_point(fields=["hue"], bind="legend", name="kept")
    colours = colours_of(hues)
    legend = (
        alt.Legend(orient="bottom", titleOrient="left") if panel.hue and len(hues) > 1 else None
    )
    colour = alt.Color(
        "hue:N",
        scale=alt.Scale(domain=[str(hue) for hue in hues], range=[colours[hue] for hue in hues]),
        title=panel.hue,
        legend=legend if len(hues) <= LEGEND_AT_MOST else None,
    )
    faded = alt.condition(kept, alt.value(1), alt.value(0.12))
    marks = [mark.encode(color=colour, opacity=faded) for mark in marks]
    marks[0] = marks[0].add_params(kept)
    return alt.layer(*marks)


def _at(panel: Panel, records: Sequence[Record]) -> Any:
    """Both axes and what the pointer shows."""
    titles = {"x": panel.x_label or panel.x, "y": panel.y_label or panel.y}
    named = any(isinstance(each["x"], str) for each in records)
    if panel.form == "bars" or named:
        x = alt.X("x:N", sort=None, title=titles["x"], axis=alt.Axis(labelAngle=_angle(records)))
    else:
        scale = alt.Scale(type="log", nice=False) if panel.log_x else alt.Scale(zero=False)
        x = alt.X("x:Q", scale=scale, title=titles["x"])
    scale = alt.Scale(type="log") if panel.log_y else alt.Scale(zero=panel.zero)
    y = alt.Y("y:Q", scale=scale, title=titles["y"])
    words = {"hue": panel.hue or "of", "case": "case", **titles, "low": "least", "high": "most",
             "seeds": "seeds"}  # fmt: skip
    tooltip = [
        alt.Tooltip(f"{name}:N", title=title) for name, title in words.items() if name in records[0]
    ]
    side: dict[str, Any] = (
        {"xOffset": alt.XOffset("hue:N", sort=None)} if panel.form == "bars" and panel.hue else {}
    )
    return alt.Chart().encode(x=x, y=y, tooltip=tooltip, **side)


def _angle(records: Sequence[Record]) -> int:
    """Names lie flat where there is room for them."""
    return 0 if len("".join(dict.fromkeys(str(each["x"]) for each in records))) <= 44 else -35


def _bars(at: Any) -> list[Any]:
    return [at.mark_bar(cornerRadiusEnd=2)]


def _whiskers(at: Any) -> Any:
    """In the colour of text: the bar's own would not show upon it."""
    mark = at.mark_rule(strokeWidth=1.5, stroke="currentColor")
    return mark.encode(y="low:Q", y2="high:Q")


def _lines(at: Any) -> list[Any]:
    return [at.mark_line(point=alt.OverlayMarkDef(size=50), strokeWidth=2)]


def _band(at: Any) -> Any:
    return at.mark_area(fillOpacity=0.18).encode(y="low:Q", y2="high:Q")


def _path(at: Any) -> list[Any]:
    return [
        at.mark_line(strokeWidth=1.5, strokeDash=[4, 3]).encode(order="order:Q"),
        at.mark_point(size=90, filled=True),
        at.mark_text(dx=8, dy=-6, align="left", fontSize=11).encode(text="case:N"),
    ]


def _points(at: Any) -> list[Any]:
    return [at.mark_point(size=60, filled=True)]


def _curve_marks(at: Any) -> list[Any]:
    return [at.mark_line(strokeWidth=1.8)]


# What shows the range over the seeds.
_RANGES: Mapping[str, Callable[[Any], Any]] = {"bars": _whiskers, "lines": _band}

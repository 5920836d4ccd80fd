"""The clients' curves of a study as the page's explorer reads them: small, and the same axes for all runs."""

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import altair as alt

from fairlead.experiments.figures.palette import colours_of
from fairlead.experiments.report.charts import bare
from fairlead.experiments.report.folders import Finished
from fairlead.experiments.study.results import Cell, ResultRow

DETAIL_HEIGHT, OVERVIEW_HEIGHT = 320, 76  # pixels
AXIS = 56  # pixels to the left, for the numbers along y
# What an explorer may hold; beyond, neighbouring points of a curve become their mean.
MOST_VALUES = 40_000
# A chip and a line each: who got least service beyond these is left out, and the page says so.
MOST_CLIENTS = 32
METRICS = {
    "service_client": "service, client view, tokens/s",
    "service_system": "service, system view, tokens/s",
    "requests": "requests/s that arrive",
    "response_time": "time to the first token, s",
}
# Of one run: by metric and client, the value at each time.
_Run = dict[str, dict[str, dict[float, Cell]]]


def curves_of(found: Finished) -> dict[str, Any] | None:
    """The first seed's curves: runs, clients with colours, metrics, values by run, metric and client.

    None where a study keeps none. Values have three digits. O(points).
    """
    series = found.results.series
    seeds = [seed for row in series if isinstance(seed := row["seed"], int)]
    if not seeds:
        return None
    first = min(seeds)
    own = [row for row in series if row["seed"] == first]
    names = tuple(name for name in found.labels if name in own[0])
    clients = sorted({str(row["client"]) for row in own}, key=_counted)
    kept = _most_served(own, clients)
    runs: dict[str, _Run] = {}
    for row in own:
        if row["client"] in kept:
            run = runs.setdefault(_run_name(row, names), {})
            of_metric = run.setdefault(str(row["metric"]), {})
            curve = of_metric.setdefault(str(row["client"]), {})
            curve[_plain(row["time_s"])] = row["value"]
    step = -(-sum(map(_size, runs.values())) // MOST_VALUES)
    return {
        "seed": first,
        "step": step,
        "left_out": len(clients) - len(kept),
        "clients": [[client, colour] for client, colour in colours_of(kept).items()],
        "metrics": [[name, METRICS.get(name, name)] for name in _metrics(runs)],
        "runs": [{"name": name, **_packed(run, step)} for name, run in runs.items()],
    }


def _plain(time_s: Cell) -> float:
    assert isinstance(time_s, int | float), time_s
    return time_s


def _run_name(row: ResultRow, names: Sequence[str]) -> str:
    """Such as `policy dlpm, quantum 4096`."""
    told = [f"{name} {row[name]}" for name in names if row[name] is not None]
    return ", ".join(told) or "the run"


def _counted(client: str) -> list[tuple[int, str]]:
    """c2 before c10."""
    return [
        (int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", client)
    ]


def _size(run: _Run) -> int:
    return sum(len(curve) for of in run.values() for curve in of.values())


def _metrics(runs: Mapping[str, _Run]) -> list[str]:
    """Those we have words for first."""
    there = dict.fromkeys(metric for run in runs.values() for metric in run)
    return [*(name for name in METRICS if name in there), *(n for n in there if n not in METRICS)]


def _most_served(own: Sequence[ResultRow], clients: Sequence[str]) -> list[str]:
    """At most so many, in their order."""
    if len(clients) <= MOST_CLIENTS:
        return list(clients)
    got = dict.fromkeys(clients, 0.0)
    for row in own:
        value = row["value"]
        if row["metric"] == "service_client" and isinstance(value, int | float):
            got[str(row["client"])] += value
    most = set(sorted(got, key=lambda client: -got[client])[:MOST_CLIENTS])
    return [client for client in clients if client in most]


def _packed(run: _Run, step: int) -> dict[str, Any]:
    """The times, once for all curves, and their values; each `step` neighbours are one point."""
    times = sorted({at for of in run.values() for curve in of.values() for at in curve})
    chunks = [times[begin : begin + step] for begin in range(0, len(times), step)]
    return {
        "at": [_short(chunk[len(chunk) // 2], 6) for chunk in chunks],
        "curves": {
            metric: {
                client: [_mean([curve.get(at) for at in chunk]) for chunk in chunks]
                for client, curve in of.items()
            }
            for metric, of in run.items()
        },
    }


def _mean(values: Sequence[Cell]) -> float | None:
    numbers = [value for value in values if isinstance(value, int | float)]
    return _short(fmean(numbers), 3) if numbers else None


def _short(value: float, digits: int) -> float | int:
    short = float(f"{value:.{digits}g}")
    return int(short) if short.is_integer() else short


def explorer_charts() -> dict[str, Any]:
    """The two charts of every explorer: the curves, and the strip in which one brushes a time.

    The page sets `begin`, `end` (seconds; those of all runs in the strip) and `top` (the axis), and
    the data `curves`.
    """
    common: dict[str, Any] = {
        "width": "container",
        "autosize": alt.AutoSizeParams(type="fit", contains="padding"),
        "data": alt.NamedData(name="curves"),
    }
    params = [alt.param(name=name, value=value) for name, value in _PARAMS.items()]
    begin, end, top = (alt.ExprRef(name) for name in _PARAMS)
    colour = alt.Color("colour:N", scale=None)
    x = alt.X("t:Q", title="s", scale=alt.Scale(domainMin=begin, domainMax=end, nice=False))
    axis = alt.Axis(minExtent=AXIS, maxExtent=AXIS)
    y = alt.Y("v:Q", title=None, scale=alt.Scale(domainMin=0, domainMax=top, nice=False), axis=axis)
    dash = alt.StrokeDash("which:N", legend=None, scale=alt.Scale(
        domain=["run", "beside"], range=[[1, 0], [5, 4]]))  # fmt: skip
    near = alt.selection_point(
        name="near", nearest=True, on="pointerover", clear="pointerout", fields=["t", "key"]
    )
    line = alt.Chart().mark_line(clip=True, strokeWidth=1.8).encode(
        x=x, y=y, color=colour, detail="key:N", strokeDash=dash)  # fmt: skip
    point = alt.Chart().mark_point(clip=True, filled=True, size=70).encode(
        x=x, y=y, color=colour, opacity=alt.condition(near, alt.value(1), alt.value(0), empty=False),
        tooltip=[alt.Tooltip("client:N"), alt.Tooltip("t:Q", title="s"),
                 alt.Tooltip("v:Q", title="value"), alt.Tooltip("run:N")])  # fmt: skip
    detail = alt.layer(line, point.add_params(near)).add_params(*params).properties(
        height=DETAIL_HEIGHT, description="one line a client over time", **common)  # fmt: skip
    brush = alt.selection_interval(name="brush", encodings=["x"])
    strip = alt.Chart().mark_line(clip=True, strokeWidth=1, opacity=0.7).encode(
        x=alt.X("t:Q", title=None, scale=alt.Scale(domainMin=begin, domainMax=end, nice=False)),
        # Nothing on its axis, but as wide as the other's, so that both times lie upon each other.
        y=alt.Y("v:Q", title=None, axis=alt.Axis(minExtent=AXIS, maxExtent=AXIS, labels=False,
                ticks=False, domain=False, grid=False)), color=colour, detail="key:N",
    ).add_params(*params[:2], brush).properties(
        height=OVERVIEW_HEIGHT, description="the whole run; drag to choose a time", **common
    )  # fmt: skip
    return {"detail": bare(detail), "overview": bare(strip)}


_PARAMS = {"begin": 0, "end": 1, "top": 1}

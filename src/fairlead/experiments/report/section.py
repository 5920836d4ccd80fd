"""One study on the page: verdicts, figure, charts, the clients' curves, and where it all comes from."""

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

from fairlead.experiments.figures.drawn import table_of
from fairlead.experiments.report.charts import HEIGHT, chart_of
from fairlead.experiments.report.curves import DETAIL_HEIGHT, OVERVIEW_HEIGHT, curves_of
from fairlead.experiments.report.folders import Finished, Gap
from fairlead.experiments.report.markup import Markup, data, tag
from fairlead.experiments.report.picture import address_of
from fairlead.experiments.study.study import Verdict

MARKS = {"holds": "✓", "holds only if": "◐", "does not hold": "✕", "not comparable": "–"}
NO_RESULTS = "no results"


def class_of(holds: str) -> str:
    """The colours of a verdict, as the style sheet calls them."""
    return "is-" + holds.replace(" ", "-")


def pill(holds: str) -> Markup:
    """A verdict, in colour and in words."""
    mark = MARKS.get(holds, "○")
    return tag("span", tag("span", mark, aria_hidden="true"), f" {holds}",
               class_=f"pill {class_of(holds)}")  # fmt: skip


def titles_of(each: Finished | Gap) -> tuple[str, str]:
    """Title and source."""
    return (each.study.title, each.study.source) if each.study else (each.name, "")


def verdicts_of(each: Finished | Gap) -> Sequence[Verdict]:
    """Those of its results; a gap has none."""
    return each.verdicts if isinstance(each, Finished) else ()


def _words_of(each: Finished | Gap) -> str:
    """The verdicts that a study has, for the filter: each once, between bars."""
    words = dict.fromkeys(verdict.holds for verdict in verdicts_of(each))
    return "|".join(words if isinstance(each, Finished) else [NO_RESULTS])


def section_of(each: Finished | Gap) -> Markup:
    """All of it, or why there is a gap."""
    title, source = titles_of(each)
    parts = _gap(each) if isinstance(each, Gap) else _finished(each)
    return tag(
        "section",
        tag("p", source, class_="source"),
        tag("h2", tag("a", title, href=f"#{each.name}"), " ", tag("code", each.name)),
        *parts,
        id=each.name,
        class_="study",
        data_verdicts=_words_of(each),
    )


def _gap(gap: Gap) -> list[Markup]:
    word = "Damaged results: " if gap.damaged else "No results yet: "
    return [tag("p", tag("strong", word), gap.reason, class_="gap")]


def _finished(found: Finished) -> list[Markup]:
    study = found.study
    parts = [tag("p", study.shows, class_="shows"), _verdict_table(found.verdicts)]
    if found.figure:
        image = Markup(f'<img src="{address_of(found.figure)}" alt="{html.escape(study.shows)}">')
        parts.append(tag("figure", image, tag("figcaption", "In the paper's form.")))
    parts += [_panels(found), _explorer(found)]
    if study.choices:
        parts.append(
            tag("div", tag("h3", "Where the paper is silent"), tag("p", study.choices), class_="choices")
        )  # fmt: skip
    parts.append(_origin(found))
    return parts


def _verdict_table(verdicts: Sequence[Verdict]) -> Markup:
    if not verdicts:
        return tag("p", "These runs judge no claim.", class_="shows")
    rows = []
    for verdict in verdicts:
        why = [tag("p", verdict.why, class_="why")] if verdict.why else []
        rows.append(
            tag(
                "tr",
                tag("td", pill(verdict.holds), data_label="verdict"),
                tag("td", verdict.claim, *why, data_label="claim"),
                tag("td", verdict.paper, data_label="paper"),
                tag("td", verdict.ours, data_label="ours"),
            )
        )
    names = ("verdict", "claim", "paper", "ours")
    heading = tag("tr", *(tag("th", name, scope="col") for name in names))
    return tag("table", tag("thead", heading), tag("tbody", *rows), class_="verdicts")


def _panels(found: Finished) -> Markup:
    """A chart or a table for each panel. Charts are drawn when they come into view."""
    parts, charts = [], []
    for number, panel in enumerate(found.study.panels):
        if panel.form == "table":
            parts.append(_table(panel.title, table_of(panel, found.results)))
            continue
        chart = chart_of(panel, found.results)
        if chart is None:
            parts.append(
                tag(
                    "figure",
                    tag("figcaption", panel.title),
                    tag("p", "No case of these runs is shown here.", class_="note"),
                    class_="panel",
                )
            )
            continue
        charts.append(chart)
        parts.append(
            tag(
                "figure",
                tag("figcaption", panel.title),
                tag("div", class_="chart", data_chart=str(len(charts) - 1),
                    style=f"height:{HEIGHT}px"),
                tag("details", tag("summary", "numbers"), class_="numbers"),
                class_="panel",
                id=f"{found.name}-panel-{number}",
            )
        )  # fmt: skip
    return tag("div", *parts, data(charts, class_="charts"), class_="panels")


def _table(title: str, lines: Sequence[Sequence[str]]) -> Markup:
    heading = tag("tr", *(tag("th", name, scope="col") for name in lines[0]))
    rows = [
        tag("tr", tag("th", line[0], scope="row"), *(tag("td", cell) for cell in line[1:]))
        for line in lines[1:]
    ]
    table = tag("table", tag("thead", heading), tag("tbody", *rows), class_="plain")
    return tag(
        "figure",
        tag("figcaption", title),
        tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=title),
        class_="panel wide",
    )


def _explorer(found: Finished) -> Markup:
    """The clients' curves, with what chooses among them."""
    curves = curves_of(found)
    if curves is None:
        return Markup("")
    runs = [(str(number), run["name"]) for number, run in enumerate(curves["runs"])]
    chips = [
        tag("button", tag("span", class_="dot", style=f"--dot:{colour}"), client, type="button",
            class_="chip", aria_pressed="true", data_client=client)
        for client, colour in curves["clients"]
    ]  # fmt: skip
    notes = [f"Seed {curves['seed']}."]
    if curves["step"] > 1:
        notes.append(f"Each point is the mean of {curves['step']} neighbours.")
    if curves["left_out"]:
        notes.append(f"{curves['left_out']} clients with less service are left out.")
    return tag(
        "div",
        tag("h3", "Each client over time"),
        tag(
            "div",
            _select("run", runs),
            _select("beside, dashed", [("", "nothing"), *runs]),
            _select("metric", [(name, words) for name, words in curves["metrics"]]),
            tag("div", _seconds("from"), _seconds("to"),
                tag("button", "whole run", type="button", class_="whole"), class_="times"),
            class_="controls",
        ),
        tag("div", *chips, class_="chips", role="group", aria_label="clients"),
        tag("div", class_="detail", style=f"height:{DETAIL_HEIGHT}px"),
        tag("div", class_="overview", style=f"height:{OVERVIEW_HEIGHT}px"),
        tag("p", "Drag over the strip to choose a time. ", " ".join(notes), class_="note"),
        data(curves, class_="curves"),
        class_="explorer",
    )  # fmt: skip


def _select(label: str, choices: Sequence[tuple[str, str]]) -> Markup:
    options = (tag("option", words, value=value) for value, words in choices)
    name = label.partition(",")[0]
    return tag("label", label, tag("select", *options, data_choice=name))


def _seconds(label: str) -> Markup:
    field = tag("input", type="number", min="0", step="any", data_choice=label)
    return tag("label", f"{label}, s", field)


def _origin(found: Finished) -> Markup:
    """Where the numbers come from, and the rows themselves."""
    address = "data:text/csv;charset=utf-8;base64," + base64.b64encode(found.csv).decode()
    link = tag("a", f"{found.name}.csv", href=address, download=f"{found.name}.csv")
    facts = [
        *_facts(found.about),
        ("rows", tag("span", link, f" ({len(found.results.rows)} rows)")),
    ]
    items = (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts)
    badge = [tag("p", "A quick run: one seed, fewer cases.", class_="quick")]
    return tag("footer", *(badge if found.about.get("quick") else []), tag("dl", *items))


def _facts(about: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Commit, date, seeds and machine; what is not there is not said."""
    machine = about.get("machine")
    if isinstance(machine, Mapping):
        cores = machine.get("cores")
        machine = f"{machine.get('processor', '')}{f', {cores} cores' if cores else ''}"
    seeds = about.get("seeds")
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        seeds = ", ".join(map(str, seeds))
    of = {
        "commit": about.get("commit"),
        "date": about.get("date"),
        "seeds": seeds,
        "machine": machine,
    }
    return [(name, str(value)) for name, value in of.items() if value not in (None, "")]

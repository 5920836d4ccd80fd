"""The section of one study on the page: verdicts, figure, tables, the numbers drawn, their origin."""

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

from fairhit_lab.report.figures.drawn import lines_of, short, table_of
from fairhit_lab.report.folders import Finished, MissingStudy
from fairhit_lab.report.markup import Markup, address_of, tag
from fairhit_lab.studies.shared.panel import Panel
from fairhit_lab.studies.shared.results import Results, three_digits
from fairhit_lab.studies.shared.study import Verdict

MARKS: dict[str, str] = {
    "holds": "✓",
    "holds in the median only": "◕",
    "holds under conditions only": "◐",
    "does not hold": "✕",
    "not comparable": "–",
}
NO_RESULTS = "no results"


def class_of(holds: str) -> str:
    """The CSS class of a verdict."""
    return "is-" + holds.replace(" ", "-")


def pill(holds: str) -> Markup:
    """A verdict as a coloured badge with its text."""
    mark = MARKS.get(holds, "○")
    return tag("span", tag("span", mark, aria_hidden="true"), f" {holds}",
               class_=f"pill {class_of(holds)}")  # fmt: skip


def titles_of(each: Finished | MissingStudy) -> tuple[str, str]:
    """The title and source of a study."""
    return (each.study.title, each.study.source) if each.study else (each.name, "")


def verdicts_of(each: Finished | MissingStudy) -> Sequence[Verdict]:
    """The verdicts of a study; none without results."""
    return each.verdicts if isinstance(each, Finished) else ()


def _words_of(each: Finished | MissingStudy) -> str:
    """The kinds of verdict that a study has, separated by bars, for the filter."""
    words = dict.fromkeys(verdict.holds for verdict in verdicts_of(each))
    return "|".join(words if isinstance(each, Finished) else [NO_RESULTS])


def section_of(each: Finished | MissingStudy) -> Markup:
    """The section of a study, or why it has no results."""
    title, source = titles_of(each)
    parts = _gap(each) if isinstance(each, MissingStudy) else _finished(each)
    return tag(
        "section",
        tag("p", source, class_="source"),
        tag("h2", tag("a", title, href=f"#{each.name}"), " ", tag("code", each.name)),
        *parts,
        id=each.name,
        class_="study",
        data_verdicts=_words_of(each),
    )


def _gap(gap: MissingStudy) -> list[Markup]:
    word = "Damaged results: " if gap.damaged else "No results yet: "
    return [tag("p", tag("strong", word), gap.reason, class_="gap")]


def _finished(found: Finished) -> list[Markup]:
    study = found.study
    parts = [tag("p", study.shows, class_="shows"), _verdict_table(found.verdicts)]
    if found.figure:
        image = Markup(f'<img src="{address_of(found.figure)}" alt="{html.escape(study.shows)}">')
        parts.append(tag("figure", _scrolled("figure", image)))
    if numbers := [each for panel in study.panels for each in _numbers(panel, found.results)]:
        summary = tag("summary", "The numbers in the figure: medians, and the range over the seeds")
        parts.append(tag("details", summary, *numbers, class_="numbers"))
    if study.choices:
        parts.append(
            tag("div", tag("h3", "Where the paper is silent"), tag("p", study.choices), class_="choices")
        )  # fmt: skip
    parts.append(_origin(found))
    return parts


def _verdict_table(verdicts: Sequence[Verdict]) -> Markup:
    """The paper's claims, and below them our own."""
    if not verdicts:
        return tag("p", "These runs judge no claim.", class_="shows")
    names = ("verdict", "claim", "paper", "ours", "the run could show")
    heading = tag("tr", *(tag("th", name, scope="col") for name in names))
    papers = [_verdict_row(each) for each in verdicts if each.whose == "paper"]
    ours = [_verdict_row(each) for each in verdicts if each.whose == "ours"]
    if papers and ours:
        apart = tag(
            "th", "Our own claims about the same runs", colspan=str(len(names)), scope="colgroup"
        )
        ours = [tag("tr", apart, class_="apart"), *ours]
    return tag("table", tag("thead", heading), tag("tbody", *papers, *ours), class_="verdicts")


def _verdict_row(verdict: Verdict) -> Markup:
    why = [tag("p", verdict.why, class_="why")] if verdict.why else []
    return tag(
        "tr",
        tag("td", pill(verdict.holds), data_label="verdict"),
        tag("td", verdict.claim, *why, data_label="claim"),
        tag("td", verdict.paper, data_label="paper"),
        tag("td", verdict.ours, data_label="ours"),
        tag("td", _limits(verdict), data_label="the run could show"),
    )


def _limits(verdict: Verdict) -> str:
    """The least and greatest value that the run could show; empty where they are not known."""
    if verdict.least is None and verdict.greatest is None:
        return ""
    ends = (verdict.least, verdict.greatest)
    return " to ".join("any" if end is None else three_digits(end) for end in ends)


def _numbers(panel: Panel, results: Results) -> list[Markup]:
    """The table of what a panel shows; none for curves, or where the panel shows no case of these runs."""
    if panel.of == "series":
        return []
    if panel.form == "table":
        return [_table(panel.title, table_of(panel, results))]
    lines = []
    for hue, spots in lines_of(panel, results).by_hue.items():
        for spot in spots:
            if panel.form == "path" and spot.across:  # x is a measure, too
                lines.append([str(hue), str(spot.across), str(spot.y), spot.name])
            else:
                lines.append([str(hue), short(spot.x), str(spot.y)])
    if not lines:
        return []
    heading = [panel.hue, panel.x_label or panel.x, panel.y_label or panel.y, "case"]
    heading = heading[: len(lines[0])]
    return [_table(panel.title, [heading, *lines])]


def _table(title: str, lines: Sequence[Sequence[str]]) -> Markup:
    heading = tag("tr", *(tag("th", name, scope="col") for name in lines[0]))
    rows = [
        tag("tr", tag("th", line[0], scope="row"), *(tag("td", cell) for cell in line[1:]))
        for line in lines[1:]
    ]
    table = tag("table", tag("thead", heading), tag("tbody", *rows), class_="plain")
    return tag("figure", tag("figcaption", title), _scrolled(title, table))


def _scrolled(label: str, content: Markup) -> Markup:
    """A box that scrolls sideways where its content is wider than the window."""
    return tag("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def _origin(found: Finished) -> Markup:
    """A footer with the origin of the numbers, and the rows for download."""
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
    """Commit, date, seeds and machine, as far as recorded."""
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
    judged = about.get("judged")
    if isinstance(judged, Mapping):
        of["judged at commit"] = judged.get("commit")
    return [(name, str(value)) for name, value in of.items() if value not in (None, "")]

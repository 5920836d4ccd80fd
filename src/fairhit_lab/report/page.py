"""The report: one HTML page that contains everything, opens from a file and needs no network."""

import html
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files

from fairhit_lab.report.folders import HOLDS, Finished, MissingStudy
from fairhit_lab.report.markup import Markup, tag, together
from fairhit_lab.report.section import (
    MARKS,
    NO_RESULTS,
    class_of,
    pill,
    section_of,
    titles_of,
    verdicts_of,
)
from fairhit_lab.studies.shared.study import Holds

TITLE = "fairhit: the papers' figures, run again"
# Scripts and styles are in the page; the browser refuses every other request.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline';"
    " img-src data:; base-uri 'none'; form-action 'none'"
)
GROUPS = {"dlpm": "DLPM and D2LPM", "vtc": "VTC"}
OTHER_GROUP = "Beyond the papers"
# Claims are counted apart: one of this project does not count as a paper's claim that holds.
PAPERS, OURS = "Claims of the papers", "Claims of our own"


def page_of(found: Sequence[Finished | MissingStudy]) -> str:
    """Render the whole page. The same results give the same bytes. Takes seconds for 35 studies."""
    body = together(
        tag("a", "Skip to the studies", class_="skip", href="#studies"),
        _head(found),
        tag(
            "div",
            _navigation(found),
            tag("main", *map(section_of, found), id="studies", tabindex="-1"),
            class_="columns",
        ),
        tag("script", Markup(_own("page.js"))),
    )
    head = together(
        Markup('<meta charset="utf-8">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{html.escape(POLICY)}">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        Markup('<link rel="icon" href="data:,">'),
        tag("title", TITLE),
        tag("style", Markup(_own("page.css"))),
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}</body></html>\n'


def _own(name: str) -> str:
    return (files("fairhit_lab.report") / name).read_text(encoding="utf-8")


def _head(found: Sequence[Finished | MissingStudy]) -> Markup:
    """The heading with the count of each verdict, and the main claims."""
    judged: dict[str, Counter[Holds]] = {PAPERS: Counter(), OURS: Counter()}
    for each in found:
        for verdict in verdicts_of(each):
            judged[OURS if verdict.whose == "ours" else PAPERS][verdict.holds] += 1
    done = [each for each in found if isinstance(each, Finished)]
    papers, ours = (counts.total() for counts in judged.values())
    runs = (
        f"{len(done)} of {len(found)} studies have results; {papers} claims of the papers are judged,"
        f" and {ours} of our own."
    )
    quick = [each.name for each in done if each.about.get("quick")]
    if quick:
        runs += f" {len(quick)} of them are quick runs: one seed, fewer cases."
    return tag(
        "header",
        tag("h1", "The papers' figures, run again"),
        tag(
            "p",
            "Every figure and table of the VTC and DLPM papers that can be run on fairhit's simulator: "
            "the picture, the numbers, the paper's number beside them, and whether the claim holds. ",
            runs,
            class_="lead",
        ),
        *(_tiles(whose, counts) for whose, counts in judged.items() if counts),
        _headlines(done),
    )  # fmt: skip


def _tiles(whose: str, counts: Counter[Holds]) -> Markup:
    """A tile per kind of verdict, with its count."""
    tiles = [
        tag(
            "li",
            tag("span", str(counts[holds]), class_="number"),
            tag("span", f"{MARKS[holds]} {holds}", class_="word"),
            class_=f"tile {class_of(holds)}",
        )
        for holds in HOLDS
    ]
    heading = tag("h2", f"{whose}: {counts.total()}")
    kind = "tiles" if whose == PAPERS else "tiles of-ours"
    return tag("section", heading, tag("ul", *tiles, class_=kind), class_="judged")


def _group_of(each: Finished | MissingStudy) -> str:
    return GROUPS.get(each.name.partition("-")[0], OTHER_GROUP)


def _headlines(done: Sequence[Finished]) -> Markup:
    """Tables of each study's first claim: the papers' main claims, then all others."""
    firsts = {each.name: each for each in done if each.verdicts}
    main = [firsts.pop(name) for name in MAIN if name in firsts]
    # One table if the results have none of the main studies, or no others.
    tables = [("The main claims", main or list(firsts.values()), True)]
    if main and firsts:
        tables.append(
            (f"The first claim of {len(firsts)} more studies", list(firsts.values()), False)
        )
    return together(*(_claims(title, of, is_open) for title, of, is_open in tables if of))


def _short(source: str) -> str:
    """A source without the paper's number: "DLPM, Figure 7"."""
    return re.sub(r" \(arXiv:[^)]*\)", "", source)


def _claims(title: str, of: Sequence[Finished], is_open: bool) -> Markup:
    rows = [
        tag(
            "tr",
            tag("td", pill(each.verdicts[0].holds), data_label="verdict"),
            tag(
                "td", tag("a", _short(each.study.source), href=f"#{each.name}"), data_label="source"
            ),
            tag("td", each.verdicts[0].claim, data_label="claim"),
            tag("td", each.verdicts[0].paper, data_label="paper"),
            tag("td", each.verdicts[0].ours, data_label="ours"),
        )
        for each in of
    ]
    heading = tag("tr", *(tag("th", name, scope="col") for name in HEADLINE_COLUMNS))
    table = tag("table", tag("thead", heading), tag("tbody", *rows), class_="verdicts")
    return tag("details", tag("summary", title), table, class_="headlines", open=is_open)


# Studies with the papers' main claims, in this order.
MAIN = (
    "dlpm-fig7", "dlpm-fig9", "dlpm-fig8", "dlpm-fig1", "dlpm-fig10", "dlpm-fig11", "vtc-table2",
    "vtc-fig3", "pareto",
)  # fmt: skip
HEADLINE_COLUMNS = ("verdict", "figure", "claim", "paper", "ours")


def _navigation(found: Sequence[Finished | MissingStudy]) -> Markup:
    """The list of studies and the filter over it."""
    words = [
        "all",
        *HOLDS,
        *([NO_RESULTS] if any(isinstance(each, MissingStudy) for each in found) else []),
    ]
    buttons = [
        tag("button", word, type="button", class_=f"filter {class_of(word)}", data_verdict=word,
            aria_pressed="true" if word == "all" else "false")
        for word in words
    ]  # fmt: skip
    groups: dict[str, list[Markup]] = {}
    for each in found:
        groups.setdefault(_group_of(each), []).append(_entry(each))
    lists = [
        tag("section", tag("h3", group), tag("ul", *entries), class_="group")
        for group, entries in groups.items()
    ]
    return tag(
        "nav",
        tag("h2", "Studies", id="studies-heading"),
        tag("div", *buttons, class_="filters", role="group", aria_label="show studies with"),
        tag("label", "find ", tag("input", type="search", id="find", autocomplete="off"), class_="find"),
        tag("p", f"{len(found)} studies", id="shown", role="status"),
        tag("details", tag("summary", "list"), *lists, class_="list", open=True),
        aria_labelledby="studies-heading",
    )  # fmt: skip


def _entry(each: Finished | MissingStudy) -> Markup:
    title, source = titles_of(each)
    counts = Counter(verdict.holds for verdict in verdicts_of(each))
    marks = [
        tag("span", f"{counts[holds]}{MARKS[holds]}", class_=f"mark {class_of(holds)}",
            title=f"{counts[holds]} {holds}")
        for holds in HOLDS
        if counts[holds]
    ]  # fmt: skip
    if isinstance(each, MissingStudy):
        marks = [tag("span", "damaged" if each.damaged else "none", class_="mark is-gap")]
    return tag(
        "li",
        tag(
            "a",
            tag("span", title, class_="title"),
            tag("span", source, class_="source"),
            tag("span", *marks, class_="counts"),
            href=f"#{each.name}",
        ),
        data_study=each.name,
    )

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
    """The heading with what was found, and the count of each verdict."""
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
        _found(done),
        *(_tiles(whose, counts) for whose, counts in judged.items() if counts),
        _claims(done),
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


def _found(done: Sequence[Finished]) -> Markup:
    """What was found, ten lines: how many claims of each main study hold, and its first claim."""
    by_name = {each.name: each for each in done if each.verdicts}
    # The first studies if the results have none of the main ones.
    main = [by_name[name] for name in MAIN if name in by_name]
    lines = [_line(each) for each in main or list(by_name.values())[: len(MAIN)]]
    heading = tag("h2", "What was found", id="found")
    found = tag("ol", *lines)
    return tag("section", heading, found, class_="headlines") if lines else Markup("")


def _line(each: Finished) -> Markup:
    first = each.verdicts[0]
    held = sum(verdict.holds == "holds" for verdict in each.verdicts)
    title = _short(each.study.source) if _group_of(each) != OTHER_GROUP else each.study.title
    printed = "" if first.whose == "ours" else f" The paper: {first.paper}."
    return tag(
        "li",
        tag("a", title, href=f"#{each.name}"),
        f": {held} of {len(each.verdicts)} claims hold without a condition. {first.claim}: ",
        pill(first.holds),
        f" {first.ours}.{printed}",
    )


def _short(source: str) -> str:
    """A source without the paper's number: "DLPM, Figure 7"."""
    return re.sub(r" \(arXiv:[^)]*\)", "", source)


def _claims(done: Sequence[Finished]) -> Markup:
    """A table of each study's first claim."""
    of = [each for each in done if each.verdicts]
    if not of:
        return Markup("")
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
    title = f"The first claim of each of {len(of)} studies"
    return tag("details", tag("summary", title), table, class_="headlines")


# The studies with the main claims, the papers' first.
MAIN = (
    "dlpm-fig7", "dlpm-fig8", "dlpm-fig9", "dlpm-fig1", "dlpm-fig11", "vtc-fig3", "vtc-table2", "pareto",
    "fair-cost", "fleet",
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

"""The report: one HTML page that contains everything, opens from a file and needs no network."""

import html
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple

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
    """Summarise the results in ten lines: how many claims of each main study hold, and one of them."""
    by_name = {each.name: each for each in done if each.verdicts}
    lines = [_line(by_name[main.name], main) for main in MAIN if main.name in by_name]
    if not lines:  # the results have none of the main studies
        lines = [
            _line(each, MainStudy(each.name, each.study.title))
            for each in list(by_name.values())[: len(MAIN)]
        ]
    heading = tag("h2", "What was found", id="found")
    found = together(tag("p", NAMES), tag("ol", *lines))
    return tag("section", heading, found, class_="headlines") if lines else Markup("")


def _line(each: Finished, main: "MainStudy") -> Markup:
    shown = next((of for of in each.verdicts if main.words in of.claim), each.verdicts[0])
    papers = [of for of in each.verdicts if of.whose == "paper"]
    counted, whose = (papers, "the paper's") if papers else (each.verdicts, "our own")
    held = sum(of.holds == "holds" for of in counted)
    source = f" ({_short(each.study.source)})" if papers else ""
    printed = "" if shown.whose == "ours" else f" The paper: {shown.paper}."
    return tag(
        "li",
        tag("a", main.asks, href=f"#{each.name}"),
        f"{source}: {held} of {whose} {len(counted)} claims hold for every seed and setting. For example, "
        f"{shown.claim}: ",
        pill(shown.holds),
        f" {shown.ours}.{printed}",
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


class MainStudy(NamedTuple):
    """A study of the ten lines: what it is about in plain words, and words of the claim that is shown."""

    name: str
    asks: str
    words: str = ""


# The studies with the main claims, the papers' first.
MAIN = (
    MainStudy(
        "vtc-fig3", "Two clients that both ask for more than their share", "Theorem 4.4 allows"
    ),
    MainStudy("vtc-table2", "Eight schedulers on a recorded trace, as printed and here", "vtc:"),
    MainStudy("dlpm-fig1", "Throughput against fairness of one engine", "lie beyond the line"),
    MainStudy(
        "dlpm-fig7", "Three workloads on one to eight GPUs, four systems", "the throughput of VTC"
    ),
    MainStudy("dlpm-fig8", "Two clients flood a chat service", "clients 0 and 1 wait longer"),
    MainStudy(
        "dlpm-fig9", "One client with a ten times longer prefix", "VTC's time from end to end"
    ),
    MainStudy("dlpm-fig11", "Five to fifty clients with the same load in all", "above VTC's"),
    MainStudy("fair", "This project's policy, fair, on 13 workloads", "light clients' p99 wait"),
    MainStudy(
        "fair-cost", "What a long cached prefix costs the other tenants", "fair: two tenants"
    ),
    MainStudy("fleet", "One queue in front of many engines", "fleet + plug-in has at least"),
)
# What a reader of the ten lines has to know of the names in them.
NAMES = (
    "The names: VTC serves the client next that has received the fewest tokens, LPM the request with the "
    "longest prefix in the cache; DLPM does as LPM, but only for clients that have credit left, and D2LPM is "
    "DLPM with a router in front of several engines. RR+LPM sends requests to engines in turns, Preble to "
    "the engine that has the prefix. fair and fleet are this project's: DLPM that charges engine time, and "
    "one queue under it in front of many engines. A seed is one draw of the arrivals."
)
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

"""The report page as text: everything is in it, nothing gets out of it, and gaps are named."""

import argparse
import base64
import html
import re
import shutil
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console
from tests.lab.report.report_sample import HOSTILE, STUDIES, VERDICTS, write_sample

from fairhit.errors import ConfigError
from fairhit_lab.report.folders import Finished, MissingStudy, read_folders
from fairhit_lab.report.markup import Markup, address_of, tag
from fairhit_lab.report.page import page_of
from fairhit_lab.runner import report_command as report


class Elements(HTMLParser):
    """Every element's name and attributes, and the text outside of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is None:
            self.text += data

    def attributes(self, name: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.found if name in attrs]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sample")
    write_sample(folder)
    return folder


@pytest.fixture(scope="module")
def page(sample):
    return page_of(read_folders(sample, STUDIES))


@pytest.fixture
def root(sample, tmp_path):
    """A copy that may be damaged."""
    return shutil.copytree(sample, tmp_path / "results")


def test_every_verdict_stands_there_in_words(page):
    text = Elements(page).text

    for verdict in VERDICTS:
        assert f"{verdict.holds}{verdict.claim}" in text
        assert verdict.why in text
    assert (
        "2 of 3 studies have results; 6 claims of the papers are judged, and 1 of our own."
        " 2 of them are quick runs" in text
    )


def test_our_claims_stand_below_the_papers_with_what_a_run_could_show(page):
    """A reader must not take a line of ours for the paper's, nor a limit of the run for a finding."""
    text = Elements(page).text

    assert text.index("Our own claims about the same runs") < text.index("holdsf")
    assert "not comparabledother hardware230 to 1.5" in text


def test_our_own_claims_are_counted_apart(root):
    """Or the headline would say how often the papers and we are right, together."""
    write_sample(root, names=("pareto-missing",))

    text = Elements(page_of(read_folders(root, STUDIES))).text

    assert "6 claims of the papers are judged, and 2 of our own." in text
    papers = text.index("Claims of the papers: 6")
    ours = text.index("Claims of our own: 2")
    assert re.findall(r"(\d)\W*(?=does not hold|holds|not comp)", text[papers:ours]) == list(
        "11121"
    )
    after = text[ours : ours + 250]
    assert re.findall(r"(\d)\W*(?=does not hold|holds|not comp)", after)[:5] == list("10010")


def test_text_stays_text(page):
    """Studies are our own, but a name out of a trace need not be."""
    elements = Elements(page)

    scripts = [attrs for name, attrs in elements.found if name == "script"]
    assert len(scripts) == 1  # the page's own
    assert elements.text.count(HOSTILE) >= 6


def test_nothing_is_asked_of_the_network(page):
    elements = Elements(page)
    addresses = [*elements.attributes("src"), *elements.attributes("href")]

    assert addresses
    assert {re.match(r"#|data:", address) is not None for address in addresses} == {True}
    assert any("default-src 'none'" in text for text in elements.attributes("content"))


def test_rows_can_be_taken_away(page, root):
    address = next(a for a in Elements(page).attributes("href") if a.startswith("data:text/csv"))

    rows = base64.b64decode(address.partition("base64,")[2])
    assert (root / "dlpm-sample" / "rows.csv").read_bytes() == rows


def test_the_numbers_of_each_panel_stand_in_a_table(page):
    """A reader who cites a median finds it here. A panel without cases has no table."""
    text = Elements(page).text

    assert "Barspolicyloadtokens/svtc21,000vtc4k1,040dlpm21,080 (1,070 to 1,080)" in text
    assert "A tableloadpolicythroughputjain2vtc" in text
    assert "Empty" not in text


def test_the_figure_is_a_picture(page, sample):
    pictures = [a for a in Elements(page).attributes("src") if a.startswith("data:image/svg+xml,")]

    assert len(pictures) == 2
    svg = unquote(pictures[0].partition(",")[2])
    ET.fromstring(svg)
    assert len(pictures[0]) < 0.7 * (sample / "dlpm-sample" / "figure.svg").stat().st_size


def test_a_picture_keeps_what_its_parts_refer_to():
    svg = (
        '<?xml version="1.0"?><!-- a --><svg>\n<defs><path id="m1-a" d="M 0.12345 1"/></defs> '
        """<g id="g1" title="100% &amp; 'so'" clip-path="url(#c)" fill="#00ff00">"""
        '<use xlink:href="#m1-a" x="3.14159" transform="scale(0.015625)"/></g></svg>'
    )

    text = unquote(html.unescape(address_of(svg)).partition(",")[2])

    assert text == (
        '<svg><defs><path id="n1" d="M 0.12 1"/></defs>'
        """<g title="100% &amp; 'so'" clip-path="url(#n0)" fill="#00ff00">"""
        '<use href="#n1" x="3.14" transform="scale(0.015625)"/></g></svg>'
    )


def test_the_same_results_give_the_same_page(root, page):
    assert page_of(read_folders(root, STUDIES)) == page


def test_a_study_that_has_not_run_is_a_gap(page, root):
    found = read_folders(root, STUDIES)

    assert isinstance(found[2], MissingStudy) and not found[2].damaged
    assert "No results yet: fairhit experiment pareto-missing makes them" in Elements(page).text


VERDICT_HEAD = "claim,whose,paper,ours,holds,why,least,greatest\n"
DAMAGES = [
    ("rows.csv", None, "rows.csv: No such file"),
    ("rows.csv", "", "rows.csv: empty"),
    ("rows.csv", "study,policy,seed,throughput,jain\n", "rows.csv: no rows in it"),
    ("rows.csv", "study,policy,seed,jain\na,b,0,1\n", "rows.csv:1: no column 'throughput'"),
    ("rows.csv", "study,policy,seed,throughput,jain\na,b,0,1\n", "rows.csv:2: expected 5 columns"),
    ("rows.csv", "policy,seed,throughput,jain\nb,0,1,1\n", "rows.csv:1: no column 'load', which a"),
    ("rows.csv", b"\xff\xfe", "rows.csv: expected CSV in UTF-8"),
    ("verdicts.csv", None, "verdicts.csv: No such file"),
    ("verdicts.csv", "claim,paper\n", "verdicts.csv:1: expected the columns claim,whose,paper,ours"),
    ("verdicts.csv", f"{VERDICT_HEAD}a,paper,b,c,maybe,,,\n",
     "verdicts.csv:2: holds: expected one of holds, holds in the median only"),
    ("verdicts.csv", f"{VERDICT_HEAD}a,paper,b,c,does not hold,,,\n",
     "verdicts.csv:2: why: expected a reason"),
    ("verdicts.csv", f"{VERDICT_HEAD}a,whose,b,c,holds,,,\n",
     "verdicts.csv:2: whose: expected paper or ours"),
    ("verdicts.csv", f"{VERDICT_HEAD}a,ours,b,c,holds,,much,\n",
     "verdicts.csv:2: expected a number, got 'much'"),
    ("series.csv", "seed,time_s\n0,1\n", "series.csv:1: no column 'client'"),
    ("series.csv", "seed,time_s,client,metric,value\n0,x,a,m,1\n", "series.csv:2: time_s: expected"),
    ("about.json", "{", "about.json: expected JSON"),
    ("about.json", "[]", "about.json: expected an object"),
    ("figure.svg", "<html>", "figure.svg: expected an SVG"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "content", "reason"), DAMAGES)
def test_damage_is_named_and_the_others_are_shown(root, file, content, reason):
    path = root / "dlpm-sample" / file
    path.unlink()
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    found = read_folders(root, STUDIES)

    assert isinstance(found[0], MissingStudy) and found[0].damaged
    assert reason in found[0].reason and "\n" not in found[0].reason
    assert isinstance(found[1], Finished)


def test_damage_is_named_in_the_page(root):
    (root / "vtc-small" / "about.json").write_text("{")
    (root / "dlpm-sample" / "about.json").write_text("{")

    text = Elements(page_of(read_folders(root, STUDIES))).text

    assert f"Damaged results: {root / 'vtc-small' / 'about.json'}: expected JSON" in text


def test_a_folder_without_a_study_is_named(root):
    write_sample(root / "x", names=("vtc-small",))
    (root / "x" / "vtc-small").rename(root / "vtc-gone")

    last = read_folders(root, STUDIES)[-1]

    assert (
        isinstance(last, MissingStudy)
        and last.damaged
        and "there is no study of that name" in last.reason
    )


def test_no_results_at_all_are_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"--results: .*: No such file"):
        read_folders(tmp_path / "none", STUDIES)
    with pytest.raises(ConfigError, match="has no folder of a study"):
        read_folders(tmp_path, STUDIES)


def run(monkeypatch, *arguments):
    monkeypatch.setattr(report, "STUDIES", STUDIES)
    monkeypatch.setattr(report, "study_of", STUDIES.__getitem__)
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    console = Console(record=True, width=300)
    return report.run(parser.parse_args(arguments), console), console.export_text()


def test_the_command_writes_the_page_and_says_what_is_missing(root, tmp_path, monkeypatch):
    out = tmp_path / "made" / "page.html"

    status, said = run(monkeypatch, "--results", str(root), "--out", str(out))

    assert status == 0
    assert f"{out}: 2 of 3 studies, 0." in said and "no results: pareto-missing" in said
    assert out.read_text().startswith("<!doctype html>")
    assert [path.name for path in out.parent.iterdir()] == ["page.html"]


def test_without_a_full_run_the_page_is_of_the_quick_one(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root.rename(tmp_path / "moved")
    (tmp_path / "results").mkdir()
    (tmp_path / "moved").rename(tmp_path / "results" / "quick")
    (tmp_path / "results" / "quick" / ".a.part").mkdir()
    (tmp_path / "results" / "quick" / ".a.part" / "rows.csv").write_text("")

    status, said = run(monkeypatch)

    assert status == 0 and "results/report.html: 2 of 3 studies" in said
    (tmp_path / "results" / "experiments").mkdir()
    with pytest.raises(ConfigError, match="results/experiments has no folder of a study"):
        run(monkeypatch)


def test_the_command_fails_on_damage_though_it_writes(root, tmp_path, monkeypatch):
    (root / "vtc-small" / "about.json").write_text("{")
    out = tmp_path / "page.html"

    status, said = run(monkeypatch, "--results", str(root), "--out", str(out))

    assert status == 2 and out.exists()
    assert f"damaged: {root / 'vtc-small' / 'about.json'}: expected JSON" in said


def test_a_page_that_cannot_be_written_is_an_error(root, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="--out: "):
        run(monkeypatch, "--results", str(root), "--out", str(tmp_path / "file" / "page.html"))


def test_markup_escapes_all_but_markup():
    made = tag("a", "<b>", Markup("<i></i>"), href='"x" & y', hidden=True, open=False, class_="c")

    assert made == '<a href="&quot;x&quot; &amp; y" hidden class="c">&lt;b&gt;<i></i></a>'

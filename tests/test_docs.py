"""Every relative link in README and docs leads somewhere."""

import argparse
import re
import textwrap
from pathlib import Path

import pytest
from benchmarks import effect_figure, fair_figure, readme, sglang_figure
from scripts import settings_pages

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.gateway import settings
from tests.properties.traffic import CAPACITY, unlike
from tests.reference.engine import IdealEngine

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"")


def pages() -> list[Path]:
    return sorted(
        [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/**/*.md")]
    )


def anchors(page: Path) -> set[str]:
    """The anchors that a Markdown viewer makes from headings."""
    headings = re.findall(r"^#+ +(.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


def broken(page: Path, text: str) -> list[str]:
    wrong = []
    for target in (first or second for first, second in LINK.findall(text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            wrong.append(f"{page.relative_to(ROOT)}: {target}")
    return wrong


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    assert broken(page, page.read_text()) == []


def test_a_broken_link_is_found():
    text = (
        "[a](no/such.md) [b](#no-such-heading) [c](CONTRIBUTING.md#the-floors) [d](https://x.test)"
    )

    assert broken(ROOT / "README.md", text) == [
        "README.md: no/such.md",
        "README.md: #no-such-heading",
    ]


def test_every_flag_of_the_gateway_is_documented():
    parser = argparse.ArgumentParser(add_help=False)
    settings.add_arguments(parser)
    flags = {flag for action in parser._actions for flag in action.option_strings}
    page = (ROOT / "docs/reference/gateway.md").read_text()

    assert {flag for flag in flags if f"`{flag}" not in page} == set()


@pytest.mark.parametrize("page", settings_pages.PAGES, ids=lambda page: page.name)
def test_the_tables_of_settings_are_those_of_the_declarations(page: Path):
    text = page.read_text(encoding="utf-8")

    assert settings_pages.BLOCK.search(text)
    assert settings_pages.filled(text) == text, "python scripts/settings_pages.py writes them"


def test_every_declared_setting_is_in_a_table():
    text = "".join(page.read_text(encoding="utf-8") for page in settings_pages.PAGES)

    assert {found[2] for found in settings_pages.BLOCK.finditer(text)} == set(settings_pages.TABLES)


def test_a_table_that_differs_is_found():
    text = "<!-- settings demo -->\n| `--seconds S` | 99 | old |\n<!-- /settings -->"

    assert "| `--seconds S` | 20 | measured time for each policy |" in settings_pages.filled(text)


def test_the_scheduler_of_the_how_to_works():
    """The example is run as it stands: it must serve everybody, as the shared suite demands."""
    page = (ROOT / "docs/howto/add-a-scheduler.md").read_text()
    example = re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1)
    namespace = {}
    exec(textwrap.dedent(example), namespace)
    tree = RadixTree()
    run = IdealEngine(policy=namespace["Shortest"](), tree=tree, capacity=CAPACITY)

    assert len(run.run(unlike(10)).finished) == 20


@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.name)
def test_the_numbers_of_a_page_are_those_of_the_committed_runs(page):
    assert readme.filled(page) == page.read_text(), "python -m benchmarks.readme writes them"


def test_the_curves_are_of_the_committed_run():
    drawn = sglang_figure.FIGURE.read_bytes()

    assert sglang_figure.made_of().encode() in drawn, (
        "python -m benchmarks.sglang_figure draws them"
    )


def test_the_figure_of_engine_time_is_what_the_record_gives():
    drawn = fair_figure.FIGURE.read_text(encoding="utf-8")

    assert fair_figure.drawn() == drawn, "python -m benchmarks.fair_figure writes it"


def test_the_readmes_figure_is_of_the_committed_runs():
    figure = effect_figure.FIGURE.read_text()

    assert effect_figure.made_of() in figure, "python -m benchmarks.effect_figure draws it"

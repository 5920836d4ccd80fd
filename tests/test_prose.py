"""The words of docs/glossary.md: no dialect in code and pages, docstrings that name their subject."""

from pathlib import Path

import pytest

from tests import prose

ROOT = Path(__file__).resolve().parent.parent
PLACES = (
    "src", "docs", "README.md", "CONTRIBUTING.md", "benchmarks", "scripts", "examples",
    "tests/e2e", "tests/fuzz", "tests/golden", "tests/lab", "tests/peers", "tests/properties",
    "tests/reference", "tests/unit/core", "tests/unit/dispatch", "tests/unit/engines",
    "tests/unit/gateway", "tests/unit/policies", "tests/unit/routers", "tests/wire",
)  # fmt: skip
# Of all docstrings, in per cent: some sentences are clearest with the pronoun first.
MOST_PRONOUNS = 3.0


def files(*places: str) -> list[Path]:
    return [path for place in places for path in prose.files_below(ROOT / place)]


def test_no_page_and_no_module_uses_a_banned_word():
    found = [
        f"{path.relative_to(ROOT)}:{complaint}"
        for path in files(*PLACES)
        for complaint in prose.dialect(path, path.read_text(encoding="utf-8"))
    ]

    assert found == []


def test_docstrings_name_their_subject():
    texts = [
        text
        for path in files("src")
        if path.suffix == ".py"
        for _, text in prose.docstrings_of(path.read_text(encoding="utf-8"))
    ]
    pronouns = [text for text in texts if prose.opens_with_pronoun(text)]

    assert texts and 100 * len(pronouns) / len(texts) < MOST_PRONOUNS


@pytest.mark.parametrize("name", ["docs/a.md", "src/fairhit/a.py"])
@pytest.mark.parametrize(
    "text",
    [
        "The next look sees it.",
        "Requests are passed over.",
        "The client is owed a quantum.",
        "Whoever waits is told.",
        "A stretch of the prompt.",
    ],
)
def test_a_banned_word_is_found_in_a_page_a_comment_and_a_docstring(name, text):
    path = ROOT / name
    sources = (
        [text] if path.suffix == ".md" else [f"# {text}\n", f'"""{text}"""\n', f'x = "{text}"\n']
    )

    assert all(list(prose.dialect(path, source)) for source in sources)


def test_code_in_backticks_and_in_fences_is_exempt():
    assert not list(prose.dialect(ROOT / "a.md", "`--misfit` is a flag.\n\n```\na look\n```\n"))
    assert not list(prose.dialect(ROOT / "a.py", '"""Look at `misfit`, and overlook nothing."""\n'))


def test_a_name_of_the_dialect_is_found():
    source = '"""Law."""\nclass SlotlessQueue:\n    def begin_look(self, guess):\n        self.seat = 1\n'

    assert len(list(prose.dialect(ROOT / "a.py", source))) == 4


def test_a_pronoun_at_the_beginning_is_found():
    assert prose.opens_with_pronoun("Whether it fits.")
    assert prose.opens_with_pronoun("Those that wait.")
    assert not prose.opens_with_pronoun("Return the requests that wait.")

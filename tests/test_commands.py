"""Every command line in README, docs and deploy/ is one that our argument parser takes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairhit.cli import _dashed, make_parser

ROOT = Path(__file__).resolve().parent.parent
# Up to the end of the line; what ends a command for a shell is cut off after.
COMMAND = re.compile(r"^(?:\S*/)?fairhit ((?:gateway|serve|demo|simulate|experiment|trace)\b.*)$")
NOT_ITS_ARGUMENTS = re.compile(r"\s+(?:#|[|&;<>]).*$")


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]


def commands(text: str) -> Iterator[str]:
    """Those in blocks of code that are for a shell, each without what is not an argument."""
    for block in re.findall(r"^```(?:sh|bash|console)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            words = re.sub(r"^(?:[A-Z_]+=\S+\s+)+", "", line.strip().removeprefix("$ "))
            if found := COMMAND.match(words):
                yield NOT_ITS_ARGUMENTS.sub("", found[1])


ALL = sorted(
    (page.relative_to(ROOT).as_posix(), command)
    for page in pages()
    for command in commands(page.read_text(encoding="utf-8"))
)


@pytest.mark.parametrize(("page", "command"), ALL, ids=[f"{page}: {line}" for page, line in ALL])
def test_the_parser_takes_it(page: str, command: str):
    words = shlex.split(command)

    assert make_parser(words[0]).parse_args(list(_dashed(words)))


def test_commands_are_found_as_people_write_them():
    text = (
        "```\nKEY=a B=b fairhit gateway --port 1  # as root\n"
        "$ fairhit serve \\\n    --engines 2 | tee log\n"
        "/opt/bin/fairhit trace describe x\npip install fairhit\n```\n"
        "```yaml\nfairhit gateway\n```\nfairhit gateway\n"
    )

    assert list(commands(text)) == [
        "gateway --port 1",
        "serve  --engines 2",
        "trace describe x",
    ]


def test_a_flag_that_was_renamed_is_found(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        test_the_parser_takes_it("a page", "gateway --worker-urls http://a --no-such-flag")

    assert "--no-such-flag" in capsys.readouterr().err


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_page_says_to_install_the_name_from_an_index(page: Path):
    """Nothing is released: a package of that name on an index would be other software."""
    found = re.findall(
        r"pip install [^`#\n]*[ \"']fairhit\b[^`#\n]*", page.read_text(encoding="utf-8")
    )

    assert found == []


def test_the_how_tos_have_commands():
    """A change of their form must not leave nothing to check."""
    found = {page for page, _ in ALL}

    for name in ("vllm", "sglang", "nginx-in-front"):
        assert f"docs/howto/{name}.md" in found

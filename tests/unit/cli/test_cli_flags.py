"""A misspelt or shortened flag is named, with the one that was meant, by every command alike.

argparse takes the value behind a flag that it does not know for an argument of its own, and complains
about the value (`--queue-sise 5`: "invalid choice: '5'"); and it takes any beginning of a flag for the
flag, so that the next version's flags change what a script of today says.
"""

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairhit.cli import main, make_parser
from fairhit_lab.runner.registry import EXPERIMENTS, module_of

ROOT = Path(__file__).resolve().parents[3]

# The words of a command, a flag of it misspelt, and the flag that was meant.
MISSPELT = [
    ("gateway", "--queue-sise", "--queue-size"),
    ("gateway", "--queue_sise", "--queue-size"),
    ("gateway", "-port", "--port"),
    ("gateway hash-key alice", "--hepl", "--help"),
    ("serve", "--engins", "--engines"),
    ("serve", "--min-mach", "--min-match"),
    ("demo", "--secnds", "--seconds"),
    ("top", "--ulr", "--url"),
    ("simulate trace.jsonl", "--replcas", "--replicas"),
    ("trace describe t.jsonl", "--jsn", "--json"),
    ("trace generate chat", "--sede", "--seed"),
    ("trace import azure a.csv", "--ot", "--out"),
    ("experiment list", "--hlep", "--help"),
    ("experiment all", "--quik", "--quick"),
    ("experiment dlpm-fig9", "--quik", "--quick"),
    ("experiment report", "--reslts", "--results"),
]


def said(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a command ends with, and that its status is 2."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    line = capsys.readouterr().err

    assert caught.value.code == 2
    assert line.count("\n") == 1, line
    return line


@pytest.mark.parametrize(("command", "flag", "meant"), MISSPELT)
@pytest.mark.parametrize("value", [[], ["5"], "=5"], ids=["alone", "5", "=5"])
def test_a_misspelt_flag_is_named_with_its_nearest(
    command: str, flag: str, meant: str, value: "list[str] | str", capsys
):
    words = [flag + value] if isinstance(value, str) else [flag, *value]
    named = flag.replace("_", "-")

    line = said([*command.split(), *words], capsys)

    assert line.endswith(f"error: unknown flag {named}; did you mean {meant}?\n")


def parsers() -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    """Every command and sub-command that there is, with its parser."""
    for command in ("gateway", "serve", "demo", "simulate", "trace", "experiment", "top"):
        yield from below([], make_parser(command), only=command)
    for name in EXPERIMENTS:
        parser = argparse.ArgumentParser()
        module_of(name).add_arguments(parser)
        yield ["experiment", name], parser


def below(
    words: list[str], parser: argparse.ArgumentParser, *, only: str | None = None
) -> Iterator[tuple[list[str], argparse.ArgumentParser]]:
    if not only:
        yield words, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                if only in (None, name):
                    yield from below([*words, name], sub)


EVERY = [(words, parser) for words, parser in parsers() if words != ["experiment"]]


@pytest.mark.parametrize(("words", "parser"), EVERY, ids=[" ".join(words) for words, _ in EVERY])
def test_no_command_takes_a_shortened_flag(words: list[str], parser, capsys):
    """Each flag of each command, without its last letter: refused, and the whole one named."""
    flags = [name for name in parser._option_string_actions if name.startswith("--")]
    for flag in flags:
        if (short := flag[:-1]) in flags:
            continue
        line = said([*words, short, "5"], capsys)
        assert f"unknown flag {short}" in line, line
        if parser._option_string_actions[flag].help != argparse.SUPPRESS:
            assert flag in line, line


def test_every_command_of_the_table_is_there():
    """What is added to the command line is in the tables above."""
    names = {words[0] for words, _ in EVERY}

    assert names == set(make_parser(None)._subparsers._group_actions[0].choices)
    assert names == {command.split()[0] for command, _, _ in MISSPELT}


def test_what_stands_behind_a_command_or_two_dashes_is_not_the_parsers():
    """The engine's flags, a value of several words and numbers below 0 are none of ours."""
    options = make_parser("serve").parse_args(["serve", "--engine-args=--no-such-flag 5"])
    assert options.engine_engine_arguments == "--no-such-flag 5"

    options = make_parser("gateway").parse_args(["gateway", "--max-concurrent-requests", "-1"])
    assert options.max_concurrent_requests == "-1"

    options = make_parser("experiment").parse_args(["experiment", "dlpm-fig9", "--quick"])
    assert options.arguments == ["--quick"]


def test_no_parser_of_ours_takes_shortened_flags():
    """Scripts that run before the package is there have parsers of their own."""
    found = []
    for folder in ("src", "scripts", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ArgumentParser"):
                    if "allow_abbrev=False" not in ast.unparse(node):
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found

"""The command line: parses arguments, calls one function, and turns our errors into one line.

Exit status: 0 done, 1 an engine failed, 2 the command was wrong, 130 interrupted, 141 nobody reads on.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import NoReturn

from fairhit.cli import service, top
from fairhit.cli.parser import OneLineParser
from fairhit.errors import ConfigError, FairhitError, in_words

# Which extra brings a package, for whoever installed only part of fairhit.
EXTRAS = {
    "uvloop": "gateway",
    "httptools": "gateway",
    "xxhash": "gateway",
    "matplotlib": "experiments",
    "numpy": "experiments",
    "zstandard": "experiments",
}
SHARED = {"rich", "yaml"}  # two extras bring these; the command says which of them is wanted
SIMULATING = {"simulate", "trace", "experiment"}


PIPE_CLOSED = 141  # as a shell shows SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit status."""
    arguments = list(_dashed(sys.argv[1:] if argv is None else argv))
    command = next((word for word in arguments if not word.startswith("-")), None)
    try:
        options = make_parser(command).parse_args(arguments)
        run: Callable[[argparse.Namespace], int] = options.run
        status = run(options)
        sys.stdout.flush()
        return status
    except ConfigError as error:
        print(f"fairhit: error: {error}", file=sys.stderr)
        return 2
    except FairhitError as error:
        print(f"fairhit: error: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        shared = ("experiments" if command in SIMULATING else "gateway") if name in SHARED else None
        wanted = EXTRAS.get(name, shared)
        if wanted is None:
            raise
        print(f"fairhit: error: needs {name}: pip install 'fairhit[{wanted}]'", file=sys.stderr)
        return 2
    except BrokenPipeError as error:
        if error.filename is not None:
            print(f"fairhit: error: {in_words(error)}", file=sys.stderr)
            return 1
        # `| head` has seen enough. What is still to be flushed at the exit goes nowhere, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:
        # Where it matters what was being done, that is said; this is for output into a full disk.
        print(f"fairhit: error: {in_words(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


class _Version(argparse.Action):
    """argparse's own would look the version up for every command, which takes longer than parsing."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print it and exit 0."""
        from importlib.metadata import version

        from fairhit import built

        print(f"fairhit {version('fairhit')} ({built.description()})")
        parser.exit()


FLAG = re.compile(r"--[A-Za-z0-9_-]+")


def _dashed(arguments: Iterable[str]) -> Iterator[str]:
    """Underscores in a flag's name are accepted for dashes; values are left alone."""
    remaining = iter(arguments)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        if not FLAG.fullmatch(name):
            yield argument
            continue
        name = name.replace("_", "-")
        if (
            name == service.FLAGS_FLAG
            and not equals
            and (following := next(remaining, None)) is not None
        ):
            equals, value = "=", following
        yield name + equals + value


def lab_commands() -> tuple[ModuleType, ...]:
    """The modules of the laboratory's commands; none where `fairhit_lab` is not installed."""
    if find_spec("fairhit_lab") is None:
        return ()
    commands: tuple[ModuleType, ...] = import_module("fairhit_lab.cli").COMMANDS
    return commands


def make_parser(command: str | None) -> OneLineParser:
    """Every command by name; what runs real engines has its flags only where it is the one asked for.

    Theirs come with the gateway's packages, which a simulator does without.
    """
    parser = OneLineParser(
        prog="fairhit",
        description="Fair shares of LLM serving capacity that keep the prefix cache.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="which this is, and end")
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", parser_class=OneLineParser
    )
    service.add(commands, command)
    for module in lab_commands():
        module.add(commands, command)
    top.add(commands)
    return parser

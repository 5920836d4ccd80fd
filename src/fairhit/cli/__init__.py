"""The command line: parses arguments, calls one function, and prints each of our errors as one line.

Exit status: 0 done, 1 an engine failed, 2 the command was wrong, 130 interrupted, 141 the output was closed.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import NoReturn

from fairhit.cli.command import Command
from fairhit.cli.parser import OneLineParser
from fairhit.errors import ConfigError, FairhitError, in_words
from fairhit.installing import install_command

PIPE_CLOSED = 141  # as a shell shows SIGPIPE
# Its value begins with dashes too, and would be taken for a flag as a word of its own.
ENGINE_FLAGS = "--engine-args"


_SERVICE = "fairhit.cli.service"
COMMANDS = {
    "serve": Command("local engines with the gateway in front", _SERVICE, "fill_serve"),
    "gateway": Command("the gateway in front of running engines", _SERVICE, "fill_gateway"),
    "demo": Command("two tenants, one of them flooding: latency and shares", _SERVICE, "fill_demo"),
    "top": Command("live view of a running gateway", "fairhit.cli.top"),
}
# The laboratory: its commands are there where its package is installed.
LAB = "fairhit_lab"
LAB_COMMANDS = {"simulate", "trace", "experiment"}
# Packages that an extra brings.
PACKAGES = {
    "uvloop", "httptools", "xxhash", "msgspec", "orjson", "prometheus_client", "zmq", "matplotlib", "numpy",
    "zstandard", "rich", "yaml",
}  # fmt: skip


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
        return _failed(error, 2)
    except FairhitError as error:
        return _failed(error, 1)
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        asked = all_commands().get(command or "")
        if name not in PACKAGES or asked is None:
            raise
        return _failed(f"needs {name}: {install_command(asked.extra)}", 2)
    except BrokenPipeError as error:
        if error.filename is not None:
            return _failed(in_words(error), 1)
        # `| head` has read enough. What is still to be flushed at the exit is dropped, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except OSError as error:
        # Errors of files that a command names are reported where they are opened; this is a full disk.
        return _failed(in_words(error), 1)
    except KeyboardInterrupt:
        return 130


def _failed(reason: object, status: int) -> int:
    print(f"fairhit: error: {reason}", file=sys.stderr)
    return status


class _Version(argparse.Action):
    """argparse's own would look the version up for every command, which takes longer than parsing."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print the version and exit 0."""
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
        if name == ENGINE_FLAGS and not equals and (following := next(remaining, None)) is not None:
            equals, value = "=", following
        yield name + equals + value


def all_commands() -> dict[str, Command]:
    """The commands of this package, and the laboratory's where that is installed."""
    if find_spec(LAB) is None:
        return COMMANDS
    theirs: dict[str, Command] = import_module(f"{LAB}.cli").COMMANDS
    return COMMANDS | theirs


def make_parser(command: str | None) -> OneLineParser:
    """Every installed command by name; only `command` has its flags, since only its packages are imported.

    Raises ConfigError for a command of the laboratory where that is not installed.
    """
    parser = OneLineParser(
        prog="fairhit",
        description="Fair shares of LLM serving capacity that keep the prefix cache.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    commands = parser.add_subparsers(
        title="commands", required=True, metavar="COMMAND", parser_class=OneLineParser
    )
    installed = all_commands()
    if command in LAB_COMMANDS - installed.keys():
        raise ConfigError(f"{command}: needs the laboratory: {install_command('lab')}")
    for name, each in installed.items():
        own = commands.add_parser(name, help=each.summary)
        if name == command:
            each.loaded()(own)
    return parser

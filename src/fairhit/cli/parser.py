"""The argument parser of every command: one line for each mistake, and no abbreviated flags."""

import argparse
import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

# A word that argparse would take for a flag; `-5` is a number, and `--a b` in one word is a value.
_FLAG = re.compile(r"(--?[A-Za-z][A-Za-z0-9_-]*)(?:=.*)?", re.DOTALL)
# How alike two names are for the one to be meant by the other; of 1.
_ALIKE = 0.7
# Full flags that are named where an abbreviation could stand for many.
_MOST_NAMED = 4


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser whose complaints are one line, and which refuses abbreviated flags."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{**settings, "allow_abbrev": False})

    def parse_known_args(  # type: ignore[override]  # argparse's own overloads name the namespace's type
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse `args`; a flag that this parser does not have is named, with or without a value.

        argparse would take the value that follows such a flag for a positional argument, and complain
        about that instead.
        """
        words = sys.argv[1:] if args is None else args
        for flag in self._flags_in(words):
            if flag not in self._option_string_actions:
                self.error(f"unknown flag {flag}{self._meant(flag)}")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Exit 2 with one line: the usage text is behind --help."""
        if flag := re.fullmatch(r"argument (\S+): expected one argument", message):
            action = self._option_string_actions[flag[1]]
            message += f": {action.metavar}" if action.metavar else ""
        message = message.removeprefix("argument : ")  # of commands that have no common name
        self.exit(2, f"{self.prog}: error: {message}\n")

    def _flags_in(self, words: Sequence[str]) -> Iterator[str]:
        """The flags that are this parser's own business: those before a sub-command or `--`."""
        commands: set[str] = set()
        takes_rest = False
        for action in self._actions:
            if action.nargs == argparse.PARSER:
                commands.update(action.choices or ())
            takes_rest |= action.nargs == argparse.REMAINDER
        for word in words:
            if word == "--" or word in commands or (takes_rest and not word.startswith("-")):
                return
            if found := _FLAG.fullmatch(word):
                yield found[1]

    def _meant(self, flag: str) -> str:
        """The part of an error line that names the nearest flags; empty where none is near."""
        known = [
            name
            for name, action in self._option_string_actions.items()
            if name.startswith("--") and action.help != argparse.SUPPRESS
        ]
        name = "--" + flag.lstrip("-")
        if whole := [each for each in known if each.startswith(name)]:
            if name in whole:
                return f"; did you mean {name}?"
            more = ", ..." if len(whole) > _MOST_NAMED else ""
            return (
                f": flags are not abbreviated; did you mean {', '.join(whole[:_MOST_NAMED])}{more}?"
            )
        near = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
        return f"; did you mean {near[0]}?" if near else ""

"""Commands of the command line, declared without the import of their modules."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Command:
    """A command: its line in --help, the function that adds its flags, and the extra it needs."""

    summary: str
    module: str
    fill: str = "fill"
    extra: str = "gateway"

    def loaded(self) -> Callable[[Any], None]:
        """The function that adds the command's flags to a parser. Imports the module."""
        fill: Callable[[Any], None] = getattr(import_module(self.module), self.fill)
        return fill

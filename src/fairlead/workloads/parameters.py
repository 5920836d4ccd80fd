"""Settings of a generator or importer, written as `key=value`: what each may be is its annotation.

A function's keyword parameters are its settings; nothing is declared twice.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from fairlead.errors import ConfigError

LARGEST = 10**12


@dataclass(frozen=True)
class Kind:
    """What a setting may be: in words, and as the function that reads it (ValueError if it is not)."""

    words: str
    read: Callable[[str], object]


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        number = int(text)
        if not least <= number <= LARGEST:
            raise ValueError
        return number

    return read


def _real(least: float, most: float, *, open_end: bool = False) -> Callable[[str], float]:
    def read(text: str) -> float:
        number = float(text)
        if not math.isfinite(number) or not least <= number <= most or (open_end and number <= 0):
            raise ValueError
        return number

    return read


def _each(read: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    return lambda text: tuple(read(part) for part in text.split(","))


def _among(choices: Mapping[str, object]) -> Callable[[str], object]:
    def read(text: str) -> object:
        if text not in choices:
            raise ValueError
        return choices[text]

    return read


def _word(text: str) -> str:
    if not text:
        raise ValueError
    return text


def one_of(*choices: str) -> Kind:
    """One of these words."""
    return Kind(f"one of {', '.join(choices)}", _among({choice: choice for choice in choices}))


Count = Annotated[int, Kind("a whole number above 0", _whole(1))]
Natural = Annotated[int, Kind("a whole number from 0", _whole(0))]
Positive = Annotated[float, Kind("a number above 0", _real(0, LARGEST, open_end=True))]
Amount = Annotated[float, Kind("a number from 0", _real(0, LARGEST))]
Share = Annotated[float, Kind("a number from 0 to 1", _real(0, 1))]
Switch = Annotated[bool, Kind("yes or no", _among({"yes": True, "no": False}))]
Word = Annotated[str, Kind("a word", _word)]
# One value a client; the last holds for all clients that follow.
Counts = Annotated[
    tuple[int, ...], Kind("whole numbers above 0 with commas between", _each(_whole(1)))
]
Naturals = Annotated[
    tuple[int, ...], Kind("whole numbers from 0 with commas between", _each(_whole(0)))
]
Positives = Annotated[
    tuple[float, ...],
    Kind("numbers above 0 with commas between", _each(_real(0, LARGEST, open_end=True))),
]


def of(values: Sequence[Any], client: int) -> Any:
    """The value for one client: its own, or the last."""
    return values[min(client, len(values) - 1)]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of a function."""

    name: str
    kind: Kind
    default: Any

    @property
    def shown(self) -> str:
        """The default as it would be written."""
        if isinstance(self.default, bool):
            return "yes" if self.default else "no"
        if isinstance(self.default, tuple):
            return ",".join(str(part) for part in self.default)
        return str(self.default)


def settings_of(function: Callable[..., Any]) -> dict[str, Setting]:
    """The keyword parameters that have a `Kind`, in order."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: Setting(name=name, kind=hints[name].__metadata__[0], default=parameter.default)
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def read_settings(settings: Mapping[str, Setting], words: Iterable[str]) -> dict[str, Any]:
    """`key=value` words as arguments. Raises ConfigError that names the key and what it may be."""
    given: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        setting = settings.get(name.replace("-", "_"))
        if not equals or setting is None:
            known = ", ".join(settings) or "none: it has no settings"
            raise ConfigError(f"--set {word}: expected KEY=VALUE with a key of {known}")
        if setting.name in given:
            raise ConfigError(f"--set {name}: expected once, got twice")
        try:
            given[setting.name] = setting.kind.read(text)
        except ValueError:
            raise ConfigError(
                f"--set {name}: expected {setting.kind.words}, got {text!r}"
            ) from None
    return given

"""Settings of a generator or importer, written as `key=value`: the annotation of a parameter is its kind.

A function's keyword parameters are its settings; nothing is declared twice.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from fairhit.errors import ConfigError
from fairhit.settings.kinds import Kind, real, refused, whole

LARGEST = 10**12


def _each(kind: Kind, words: str) -> Kind:
    def read(value: object) -> tuple[Any, ...]:
        try:
            return tuple(kind.read(part) for part in str(value).split(","))
        except ValueError:
            raise refused(words, value) from None

    return Kind(words, read)


def _read_switch(value: object) -> bool:
    if value not in {"yes", "no"}:
        raise refused("yes or no", value)
    return value == "yes"


def _read_word(value: object) -> object:
    if not value:
        raise refused("a word", value)
    return value


_COUNT = whole(1, LARGEST, words="a whole number above 0")
_NATURAL = whole(0, LARGEST, words="a whole number from 0")
_POSITIVE = real(above=0, most=LARGEST)

Count = Annotated[int, _COUNT]
Natural = Annotated[int, _NATURAL]
Positive = Annotated[float, _POSITIVE]
Amount = Annotated[float, real(0, LARGEST, words="a number from 0")]
Share = Annotated[float, real(0, 1)]
Switch = Annotated[bool, Kind("yes or no", _read_switch)]
Word = Annotated[str, Kind("a word", _read_word)]
# One value a client; the last is the value of all clients that follow.
Counts = Annotated[tuple[int, ...], _each(_COUNT, "whole numbers above 0 with commas between")]
Naturals = Annotated[tuple[int, ...], _each(_NATURAL, "whole numbers from 0 with commas between")]
Positives = Annotated[tuple[float, ...], _each(_POSITIVE, "numbers above 0 with commas between")]


def of(values: Sequence[Any], client: int) -> Any:
    """The value for one client; the last one for clients beyond the list."""
    return values[min(client, len(values) - 1)]


@dataclass(frozen=True, kw_only=True)
class WorkloadSetting:
    """A setting of a function that makes or reads a trace."""

    name: str
    kind: Kind
    default: Any

    @property
    def shown(self) -> str:
        """The default as a user would write it."""
        if isinstance(self.default, bool):
            return "yes" if self.default else "no"
        if isinstance(self.default, tuple):
            return ",".join(str(part) for part in self.default)
        return str(self.default)


def settings_of(function: Callable[..., Any]) -> dict[str, WorkloadSetting]:
    """The keyword parameters that have a `Kind`, in order."""
    hints = get_type_hints(function, include_extras=True)
    return {
        name: WorkloadSetting(
            name=name, kind=hints[name].__metadata__[0], default=parameter.default
        )
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def read_settings(settings: Mapping[str, WorkloadSetting], words: Iterable[str]) -> dict[str, Any]:
    """Parse `key=value` words into arguments. Raises ConfigError with the key and its possible values."""
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
        except ValueError as error:
            raise ConfigError(f"--set {name}: {error}") from None
    return given

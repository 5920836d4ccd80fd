"""Sources of the gateway's settings: flags win over the environment, that over files, files over defaults."""

import argparse
import difflib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairhit.errors import ConfigError
from fairhit.gateway.settings.files import Layer, read_config
from fairhit.gateway.settings.gateway_settings import SECTIONS, GatewaySettings
from fairhit.settings.declaration import dashed, settings_of
from fairhit.settings.flags import add_flags

# The engines' own key is a secret: better here than on the command line, which every user can see.
WORKER_KEY_VARIABLE = "FAIRHIT_WORKER_API_KEY"
# FAIRHIT_GATEWAY_PORT is --port, and so on for every setting.
PREFIX = "FAIRHIT_GATEWAY_"
# Settings files, the first one weakest.
FILES = {
    "config": "YAML file with settings; flags and environment win",
    "dynamic_config_yaml": "the same, as another gateway calls it; wins over --config",
}

_SETTINGS = settings_of(GatewaySettings)
_ALIASES = {alias: name for name, each in _SETTINGS.items() for alias in each.aliases}


def add_arguments(parser: argparse.ArgumentParser, *, but: Collection[type] = ()) -> None:
    """Add the gateway's flags to a parser, by section, without the sections in `but`."""
    for section in SECTIONS:
        if section not in but:
            add_flags(parser.add_argument_group(title_of(section).lower()), settings_of(section))
    files = parser.add_argument_group("files")
    for name, words in FILES.items():
        flag = f"--{dashed(name)}"
        files.add_argument(flag, default=argparse.SUPPRESS, metavar="FILE", help=words)


def title_of(section: type) -> str:
    """The title of a section of settings: the first line of its docstring."""
    return (section.__doc__ or "").splitlines()[0].rstrip(".")


def from_arguments(arguments: argparse.Namespace) -> GatewaySettings:
    """The settings that flags, files and environment give. Raises ConfigError."""
    layers = [read_config(path) for path in files_of(arguments)]
    layers += [_from_environment(), _from_flags(arguments)]
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for layer in layers:
        own_values, own_places = _canonical(layer)
        values |= own_values
        places |= own_places
    return make(values, where="settings", places=places)


@dataclass(frozen=True)
class Sources:
    """A command line, from which settings can be read again."""

    arguments: argparse.Namespace

    def read(self) -> GatewaySettings:
        """The settings as flags, files and environment are now. Raises ConfigError."""
        return from_arguments(self.arguments)

    def files(self) -> list[Path]:
        """The settings files, whose changes matter."""
        return files_of(self.arguments)


def files_of(arguments: argparse.Namespace) -> list[Path]:
    """The settings files that flags or the environment name, the weakest first. Raises ConfigError."""
    named = []
    for name in FILES:
        given = getattr(arguments, name, None)
        if given == "":
            raise ConfigError(f"--{dashed(name)}: expected a file")
        if path := given or os.environ.get(PREFIX + name.upper()):
            named.append(Path(path))
    return named


def make(
    values: Mapping[str, Any], *, where: str, places: Mapping[str, str] | None = None
) -> GatewaySettings:
    """Settings from values by name; an error names `where`, or the value's own place. Raises ConfigError."""
    read = {}
    for name, value in values.items():
        place = (places or {}).get(name) or f"{where}: {dashed(name)}"
        if name not in _SETTINGS:
            raise ConfigError(f"{place}: no such setting{_nearest(name)}")
        read[name] = _SETTINGS[name].read(value, place)
    try:
        return GatewaySettings(**read)
    except ConfigError as error:  # two settings contradict
        raise ConfigError(f"{where}: {error}") from None


def environment_without_settings() -> dict[str, str]:
    """The environment for a child process that has all its settings in a file."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def _from_flags(arguments: argparse.Namespace) -> Layer:
    names = {*_SETTINGS, *_ALIASES}
    given = {name: value for name, value in vars(arguments).items() if name in names}
    return given, {name: f"--{dashed(name)}" for name in given}


def _from_environment() -> Layer:
    """Every FAIRHIT_GATEWAY_*, without the variables that Kubernetes adds for a Service of our name."""
    values, places = {}, {}
    key = os.environ.get(WORKER_KEY_VARIABLE)
    if key:
        values["worker_api_key"], places["worker_api_key"] = key, WORKER_KEY_VARIABLE
    for variable, value in os.environ.items():
        name = variable.removeprefix(PREFIX).lower()
        if name == variable.lower() or name in FILES or _is_service_link(name, value):
            continue
        if name not in _SETTINGS and name not in _ALIASES:
            raise ConfigError(f"{variable}: no such setting{_nearest(name)}")
        values[name], places[name] = value, variable
    return values, places


def _is_service_link(name: str, value: str) -> bool:
    """A Service `fairhit-gateway` puts FAIRHIT_GATEWAY_PORT=tcp://... into every pod near it."""
    words = name.split("_")
    if words[0] == "service" and words[1:2] in (["host"], ["port"]):
        return True
    return words[0] == "port" and (len(words) > 1 or "://" in value)


def _canonical(layer: Layer) -> Layer:
    """The layer under our own names. Raises ConfigError where a setting is given under two names."""
    values, places = layer
    own_values: dict[str, Any] = {}
    own_places: dict[str, str] = {}
    for given, value in values.items():
        name = _ALIASES.get(given, given)
        place = places.get(given, dashed(given))
        if name in own_values:
            raise ConfigError(f"{place}: the same setting as {own_places[name]}; give one of them")
        own_values[name], own_places[name] = value, place
    return own_values, own_places


def _nearest(name: str) -> str:
    found = difflib.get_close_matches(name, [*_SETTINGS, *_ALIASES], n=1)
    return f"; did you mean {dashed(found[0])}?" if found else ""

"""Where settings come from: flags win over the environment, that over files, files over defaults."""

import argparse
import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from fairlead.errors import ConfigError
from fairlead.gateway.settings.declaring import Group, declared
from fairlead.gateway.settings.reading import Layer, read_config
from fairlead.gateway.settings.whole import GROUPS, GatewaySettings

# The engines' own key is a secret: better here than on the command line, which every user can see.
WORKER_KEY_VARIABLE = "FAIRLEAD_WORKER_API_KEY"
# FAIRLEAD_GATEWAY_PORT is --port, and so on for every setting.
PREFIX = "FAIRLEAD_GATEWAY_"
# Settings files, the first one weakest.
FILES = ("config", "dynamic_config_yaml")
_FILE_WORDS = {
    "config": "YAML file with settings; flags and environment win",
    "dynamic_config_yaml": "the same, as another gateway calls it; wins over --config",
}

# What pydantic says in Python's words.
_IN_WORDS = {"tuple_type": "expected a list", "path_type": "expected a path"}

_FIELDS = GatewaySettings.model_fields
_OTHER_NAMES = {other: name for name, field in _FIELDS.items() for other in declared(field, "also")}


def add_arguments(parser: argparse.ArgumentParser, *, but: tuple[type[Group], ...] = ()) -> None:
    """The gateway's flags, by group; what is not given stays out of the namespace.

    A command with flags of its own may do without the groups in `but`.
    """
    for group in GROUPS:
        if group in but:
            continue
        title = (group.__doc__ or "").splitlines()[0].rstrip(".").lower()
        section = parser.add_argument_group(title)
        for name in group.__annotations__:
            _add_flags(section, name, _FIELDS[name])
    section = parser.add_argument_group("files")
    for name in FILES:
        section.add_argument(
            _flag(name), default=argparse.SUPPRESS, metavar="FILE", help=_FILE_WORDS[name]
        )


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
    """A command line as a place that settings can be read from again."""

    arguments: argparse.Namespace

    def read(self) -> GatewaySettings:
        """The settings as they are now. Raises ConfigError."""
        return from_arguments(self.arguments)

    def files(self) -> list[Path]:
        """The settings files, whose changes matter."""
        return files_of(self.arguments)


def files_of(arguments: argparse.Namespace) -> list[Path]:
    """The settings files named by flags or environment, the weakest first. Raises ConfigError."""
    named = []
    for name in FILES:
        given = getattr(arguments, name, None)
        if given == "":
            raise ConfigError(f"{_flag(name)}: expected a file")
        if path := given or os.environ.get(PREFIX + name.upper()):
            named.append(Path(path))
    return named


def make(
    values: Mapping[str, Any], *, where: str, places: Mapping[str, str] | None = None
) -> GatewaySettings:
    """Validated settings, from `where`, or each from its place. Raises ConfigError, for one fault."""
    try:
        return GatewaySettings.model_validate(dict(values))
    except ValidationError as failure:
        fault = failure.errors(include_url=False)[0]
        name = str(fault["loc"][0]) if fault["loc"] else ""
        source = (places or {}).get(name) or (f"{where}: {_dashed(name)}" if name else where)
        if fault["type"] == "extra_forbidden":
            raise ConfigError(f"{source}: no such setting{_nearest(name, _FIELDS)}") from None
        message = _IN_WORDS.get(fault["type"]) or fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "literal_error":  # a choice is no secret
            message += f", got {fault['input']!r}"
        raise ConfigError(f"{source}: {message[0].lower()}{message[1:]}") from None


def environment_without_settings() -> dict[str, str]:
    """What a child is given that has all its settings in a file."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def _add_flags(section: Any, name: str, field: FieldInfo) -> None:
    options: dict[str, Any] = {"help": _help(field), "default": argparse.SUPPRESS}
    choices = get_args(field.annotation)
    if field.annotation is bool:
        # A value is only needed to undo what a file says.
        options |= {"nargs": "?", "const": True, "metavar": "true|false"}
    elif choices and all(isinstance(choice, str) for choice in choices) and not field.metadata:
        options["choices"] = choices
    else:
        options["metavar"] = declared(field, "metavar")
    shape = declared(field, "shape")
    if shape == "many":
        options["nargs"] = "+"
    elif shape == "again":
        options["action"] = "append"
    section.add_argument(_flag(name), **options)
    for other in declared(field, "also"):
        section.add_argument(_flag(other), **{**options, "help": f"same as {_flag(name)}"})


def _help(field: FieldInfo) -> str:
    """Its words, with the default unless they name it, or there is none to name."""
    words, default = str(field.description), field.default
    plain = isinstance(default, int | float | str) and not isinstance(default, bool)
    if words.endswith(")") or not plain:
        return words.replace("%", "%%")
    return f"{words} ({default})".replace("%", "%%")


def _from_flags(arguments: argparse.Namespace) -> Layer:
    names = [*_FIELDS, *_OTHER_NAMES]
    given = {name: value for name, value in vars(arguments).items() if name in names}
    return given, {name: _flag(name) for name in given}


def _from_environment() -> Layer:
    """Every FAIRLEAD_GATEWAY_*; what Kubernetes adds for a Service of our name is not one of them."""
    values, places = {}, {}
    key = os.environ.get(WORKER_KEY_VARIABLE)
    if key:
        values["worker_api_key"], places["worker_api_key"] = key, WORKER_KEY_VARIABLE
    for variable, value in os.environ.items():
        name = variable.removeprefix(PREFIX).lower()
        if name == variable.lower() or name in FILES or _is_service_link(name, value):
            continue
        if name not in _FIELDS and name not in _OTHER_NAMES:
            raise ConfigError(f"{variable}: no such setting{_nearest(name, _FIELDS)}")
        values[name], places[name] = value, variable
    return values, places


def _is_service_link(name: str, value: str) -> bool:
    """A Service `fairlead-gateway` puts FAIRLEAD_GATEWAY_PORT=tcp://... into every pod near it."""
    words = name.split("_")
    if words[0] == "service" and words[1:2] in (["host"], ["port"]):
        return True
    return words[0] == "port" and (len(words) > 1 or "://" in value)


def _canonical(layer: Layer) -> Layer:
    """The layer under our own names. Raises ConfigError where a setting is given under two."""
    values, places = layer
    own_values: dict[str, Any] = {}
    own_places: dict[str, str] = {}
    for given, value in values.items():
        name = _OTHER_NAMES.get(given, given)
        place = places.get(given, _dashed(given))
        if name in own_values:
            raise ConfigError(f"{place}: the same setting as {own_places[name]}; give one of them")
        own_values[name], own_places[name] = value, place
    return own_values, own_places


def _nearest(name: str, names: Iterable[str]) -> str:
    found = difflib.get_close_matches(name, [*names, *_OTHER_NAMES], n=1)
    return f"; did you mean {_dashed(found[0])}?" if found else ""


def _flag(name: str) -> str:
    return "--" + _dashed(name)


def _dashed(name: str) -> str:
    return name.replace("_", "-")

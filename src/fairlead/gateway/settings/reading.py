"""Files of settings: text in UTF-8, YAML with a place for each name."""

from pathlib import Path
from typing import Any

import yaml

from fairlead.errors import ConfigError

# Name -> value, and name -> where it stands, in words.
Layer = tuple[dict[str, Any], dict[str, str]]


# A keys file of a million tenants; and settings, whose YAML takes seconds a megabyte.
_MOST_BYTES, _MOST_CONFIG_BYTES = 128 << 20, 1 << 20
# Names and values: with aliases, which stand for what was said before, a few lines can be millions.
_MOST_NODES = 100_000


def read_text(path: Path, *, most: int = _MOST_BYTES) -> str:
    """The file's text, which may have so many bytes. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise ConfigError(f"{path}: expected at most {most:,} bytes")
        return data.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


def read_config(path: Path) -> Layer:
    """The settings in a YAML file, dashes or underscores, and where each stands. Raises ConfigError."""
    text = read_text(path, most=_MOST_CONFIG_BYTES)
    try:
        content, node = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except RecursionError:
        raise ConfigError(f"{path}: lists or mappings too deep in each other") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: not valid YAML") from None
    if content is None:
        return {}, {}
    if not isinstance(content, dict) or not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path}: expected settings, one `name: value` a line")
    _require_few(node, path)
    if strange := [name for name in content if not isinstance(name, str)]:
        raise ConfigError(f"{path}: expected names of settings, got {strange[0]!r}")
    places: dict[str, str] = {}
    for key, _ in node.value:
        name = str(key.value).replace("-", "_")
        place = f"{path}, line {key.start_mark.line + 1}: {key.value}"
        if name in places:
            raise ConfigError(f"{place}: is there twice")
        places[name] = place
    return {name.replace("-", "_"): value for name, value in content.items()}, places


def _require_few(node: yaml.Node, path: Path) -> None:
    """Raises ConfigError where what is written out is more than any settings are, or without end."""
    count, left = 0, [node]
    while left:
        one = left.pop()
        count += 1
        if count > _MOST_NODES:
            raise ConfigError(f"{path}: expected at most {_MOST_NODES:,} names and values")
        if isinstance(one, yaml.MappingNode):
            left += [part for pair in one.value for part in pair]
        elif isinstance(one, yaml.SequenceNode):
            left += one.value

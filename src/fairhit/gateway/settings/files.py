"""Settings files: text in UTF-8, and YAML with the line of each name for error messages."""

from pathlib import Path
from typing import Any

import yaml

from fairhit.errors import ConfigError

# Name -> value, and name -> the file and line, or the variable, that gives the value.
Layer = tuple[dict[str, Any], dict[str, str]]


# A keys file of a million tenants; and settings with the weights of as many, though their YAML takes
# seconds a megabyte.
_MOST_BYTES, _MOST_CONFIG_BYTES = 128 << 20, 64 << 20
# Names and values repeated by YAML aliases, with which a few lines can expand to millions.
_MOST_REPEATED = 100_000


def read_text(path: Path, *, most: int = _MOST_BYTES) -> str:
    """The text of a file of at most `most` bytes. Raises ConfigError."""
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
    """The settings in a YAML file, with dashes or underscores, and the line of each. Raises ConfigError."""
    text = read_text(path, most=_MOST_CONFIG_BYTES)
    try:
        content, node = _load(text)
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
    _require_few_repeated(node, path)
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


def _load(text: str) -> tuple[Any, yaml.Node | None]:
    """The content of a YAML text, and its nodes. Raises yaml.YAMLError and RecursionError."""
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        return (None if node is None else loader.construct_document(node)), node
    finally:
        loader.dispose()


def _require_few_repeated(node: yaml.Node, path: Path) -> None:
    """Refuse a file whose aliases expand to more than settings have, or without end. Raises ConfigError."""
    seen: set[int] = set()
    repeated, left = 0, [node]
    while left:
        one = left.pop()
        repeated += id(one) in seen
        seen.add(id(one))
        if repeated > _MOST_REPEATED:
            raise ConfigError(
                f"{path}: expected at most {_MOST_REPEATED:,} names and values by aliases"
            )
        if isinstance(one, yaml.MappingNode):
            left += [part for pair in one.value for part in pair]
        elif isinstance(one, yaml.SequenceNode):
            left += one.value

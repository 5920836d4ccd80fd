"""Files of settings: text in UTF-8, YAML with a place for each name."""

from pathlib import Path
from typing import Any

import yaml

from fairlead.errors import ConfigError

# Name -> value, and name -> where it stands, in words.
Layer = tuple[dict[str, Any], dict[str, str]]


def read_text(path: Path) -> str:
    """The file's text. Raises ConfigError."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None


def read_config(path: Path) -> Layer:
    """The settings in a YAML file, dashes or underscores, and where each stands. Raises ConfigError."""
    text = read_text(path)
    try:
        content, node = yaml.safe_load(text), yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{line}: not valid YAML") from None
    if content is None:
        return {}, {}
    if not isinstance(content, dict) or not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{path}: expected settings, one `name: value` a line")
    places = {
        key.value.replace("-", "_"): f"{path}, line {key.start_mark.line + 1}: {key.value}"
        for key, _ in node.value
        if isinstance(key, yaml.ScalarNode)
    }
    return {str(name).replace("-", "_"): value for name, value in content.items()}, places

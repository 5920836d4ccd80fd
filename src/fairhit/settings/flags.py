"""Flags of a command, from declared settings: the namespace has those that were given, as typed."""

import argparse
from collections.abc import Mapping
from typing import Any

from fairhit.settings import kinds
from fairhit.settings.declaration import Setting, dashed


def add_flags(section: Any, settings: Mapping[str, Setting], *, prefix: str = "") -> None:
    """Add a flag for each setting and alias; a value is kept as typed, under `prefix` and the name."""
    for name, setting in settings.items():
        options: dict[str, Any] = {"help": help_of(setting), "default": argparse.SUPPRESS}
        if setting.shape == "none":
            options |= {"action": "store_const", "const": True}
        elif setting.kind is kinds.SWITCH:
            # A value is only needed to undo what a file says.
            options |= {"nargs": "?", "const": True, "metavar": "true|false"}
        elif setting.kind.choices and not setting.metavar:
            options["choices"] = setting.kind.choices
        else:
            options["metavar"] = setting.metavar or None
        if setting.shape == "many":
            options["nargs"] = "+"
        elif setting.shape == "again":
            options["action"] = "append"
        section.add_argument(f"--{setting.flag}", dest=prefix + name, **options)
        for alias in setting.aliases:
            same = {**options, "help": f"same as --{setting.flag}"}
            section.add_argument(f"--{dashed(alias)}", dest=prefix + alias, **same)


def read_flags(
    settings: Mapping[str, Setting], arguments: argparse.Namespace, *, prefix: str = ""
) -> dict[str, Any]:
    """The settings that were given as flags, read. Raises ConfigError that names the flag."""
    given = vars(arguments)
    return {
        name: setting.read(given[prefix + name], f"--{setting.flag}")
        for name, setting in settings.items()
        if prefix + name in given
    }


def help_of(setting: Setting) -> str:
    """The help text of a flag: what is set, with the default, unless the text names or lacks one."""
    default = setting.default_words
    if setting.help.endswith(")") or not default or isinstance(setting.default, bool):
        return setting.help.replace("%", "%%")
    return f"{setting.help} ({default})".replace("%", "%%")

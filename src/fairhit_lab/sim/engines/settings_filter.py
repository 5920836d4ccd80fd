"""Which settings of a simulation a scheduler or router is made with."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from fairhit.errors import ConfigError


def given_settings(
    name: str, made: type | None, *, flags: Mapping[str, Any], shared: Mapping[str, Any]
) -> dict[str, Any]:
    """Those of `flags` that are not None, and what of `shared` `made` takes, by its own names.

    `name` is what a person calls it ("router d2lpm"). Raises ConfigError for a flag of which `made` has
    no setting; a `made` that is None has all, for its name is what is wrong then.
    """
    accepted = signature(made).parameters if made else {}
    settings = {key: value for key, value in shared.items() if key in accepted}
    for flag, value in flags.items():
        key = flag.removeprefix("worker-").replace("-", "_")
        if value is None:
            continue
        if made and key not in accepted:
            raise ConfigError(f"{flag}: {name} has no such setting")
        settings[key] = value
    return settings

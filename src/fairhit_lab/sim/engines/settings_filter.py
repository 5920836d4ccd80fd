"""The settings of a simulation that a policy or router is made with."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from fairhit.errors import ConfigError


def given_settings(
    name: str, made: type | None, *, flags: Mapping[str, Any], shared: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the `flags` that are not None, and those of `shared` that `made` takes, by its own names.

    `name` is the name in messages ("router d2lpm"). Raises ConfigError for a flag of which `made` has no
    setting; a `made` that is None accepts all, for then its name is refused later.
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

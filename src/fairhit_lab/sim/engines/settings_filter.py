"""The settings of a simulation that a policy or router is made with."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from fairhit.errors import ConfigError


def given_settings(
    kind: str,
    name: str,
    classes: Mapping[str, type],
    *,
    flags: Mapping[str, Any],
    shared: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the `flags` that are not None, and those of `shared` that the class takes, by its own names.

    The class is that of `name` in `classes`; `kind` is what messages call it ("router"). Raises ConfigError
    for a flag of which it has no setting; an unknown name accepts all, and is refused later.
    """
    made = classes.get(name)
    accepted = signature(made).parameters if made else {}
    settings = {key: value for key, value in shared.items() if key in accepted}
    for flag, value in flags.items():
        key = flag.removeprefix("worker-").replace("-", "_")
        if value is None:
            continue
        if made and key not in accepted:
            having = [each for each, one in classes.items() if key in signature(one).parameters]
            expected = f"expected with {', '.join(having)}" if having else "nor has any other"
            raise ConfigError(f"{flag}: {kind} {name} has no such setting; {expected}")
        settings[key] = value
    return settings

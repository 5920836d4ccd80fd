"""What the operator of an engine sets for its plug-in: an object that the engine hands on, and FAIRLEAD_*.

A key of the object wins over the environment; an unknown key, a wrong type or an impossible value is
a ConfigError of one line that names what, where and the expected form.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead.core.path_cache import Cache
from fairlead.core.protocols import Policy
from fairlead.core.service import Weights, parse_weight
from fairlead.engines.adapter_turns import AdapterTurns
from fairlead.errors import ConfigError
from fairlead.schedulers import IN_ENGINES, OWED_ALIKE, make_policy

# Tokens of service. Each turn costs what an engine does not compute while its last requests end, so a
# turn is longer than Q^u, which costs nothing but cache.
TURN_LEN = 16_384


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How this engine schedules. `quantum`, `max_overtake` and `adapter_turn` are in tokens of service;
    None is the policy's default. What a policy does not have may not be set for it.
    """

    scheduler: str = "dlpm"
    quantum: int | None = None
    weights: Mapping[str, object] | None = None
    max_overtake: int | None = None
    max_clients: int | None = None
    adapter_turn: int | None = None
    lora_clients: bool | None = None
    audit: bool | None = None

    @property
    def names_adapters(self) -> bool:
        """Whether who is not named is its LoRA adapter."""
        return self.lora_clients is not False

    def turns(self) -> AdapterTurns:
        """The turns at the LoRA slots; none where the policy owes all alike."""
        tenure_len = TURN_LEN if self.adapter_turn is None else self.adapter_turn
        if self.scheduler in OWED_ALIKE:
            tenure_len = 0
        return AdapterTurns(tenure_len=tenure_len, weights=Weights(self.weights))

    def policy(self, cache: Cache) -> Policy:
        """The policy set, over what the engine has cached. Raises ConfigError."""
        return make_policy(
            self.scheduler,
            cache=cache,
            quantum=self.quantum,
            weights=Weights(self.weights) if self.weights else None,
            max_overtake=self.max_overtake,
            max_clients=self.max_clients,
        )

    def __str__(self) -> str:
        given = {key: getattr(self, key) for key in _READERS if getattr(self, key) is not None}
        return ", ".join(f"{key} {value}" for key, value in given.items())


def read_settings(section: object, environ: Mapping[str, str], *, where: str) -> Settings:
    """The settings in force; `where` names the section in a complaint. Raises ConfigError."""
    if not isinstance(section, Mapping):
        raise ConfigError(f"{where}: expected an object, got {section!r}")
    if unknown := sorted(set(section) - set(_READERS)):
        raise ConfigError(f"{where}.{unknown[0]}: unknown; expected one of {', '.join(_READERS)}")
    values: dict[str, Any] = {}
    for key, read in _READERS.items():
        variable = f"FAIRLEAD_{key.upper()}"
        if key in section:
            values[key] = read(section[key], f"{where}.{key}")
        elif text := environ.get(variable):
            values[key] = read(_from_text(key, text, variable), variable)
    return Settings(**values)


def _from_text(key: str, text: str, where: str) -> object:
    """An environment variable's value: a name, JSON, or for weights also gold=2,silver=1.5."""
    if key == "scheduler":
        return text
    if key == "weights" and not text.lstrip().startswith("{"):
        return _pairs(text, where)
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{where}: expected a number or JSON, got {text[:100]!r}") from None


def _pairs(text: str, where: str) -> dict[str, str]:
    weights: dict[str, str] = {}
    for pair in filter(str.strip, text.split(",")):
        client, _, weight = (part.strip() for part in pair.partition("="))
        if client in weights:
            raise ConfigError(f"{where}.{client}: named twice")
        weights[client] = weight
    return weights


def _scheduler(value: object, where: str) -> str:
    if not isinstance(value, str) or value not in IN_ENGINES:
        raise ConfigError(f"{where}: expected one of {', '.join(IN_ENGINES)}, got {value!r}")
    return value


def _whole(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{where}: expected a whole number above 0, got {value!r}")
    return value


def _turn(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{where}: expected a whole number, 0 for off, got {value!r}")
    return value


def _switch(value: object, where: str) -> bool:
    if isinstance(value, int) and value in {0, 1}:
        return bool(value)
    raise ConfigError(f"{where}: expected true or false, got {value!r}")


def _weights(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(client, str) for client in value):
        raise ConfigError(f"{where}: expected an object of client: weight, got {value!r}")
    for client, weight in value.items():
        parse_weight(weight, where=f"{where}.{client}")
    return dict(value)


_READERS: dict[str, Callable[[object, str], object]] = {
    "scheduler": _scheduler,
    "quantum": _whole,
    "weights": _weights,
    "max_overtake": _whole,
    "max_clients": _whole,
    "adapter_turn": _turn,
    "lora_clients": _switch,
    "audit": _switch,
}

"""Settings of an engine's plug-in: an object in the engine's own configuration, and variables FAIRHIT_*.

A key of the object wins over the environment; an unknown key, a wrong type or an impossible value is
a ConfigError of one line that names the place and the expected form.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fairhit.core.cache.cache_view import Cache
from fairhit.core.costs import parse_cost
from fairhit.core.policy import Policy
from fairhit.core.service import Weights
from fairhit.engines.lora_slots import LoraSlotRotation
from fairhit.errors import ConfigError
from fairhit.policies import IN_ENGINES, SHOWN, WITHOUT_CREDIT, describe, make_policy
from fairhit.settings import kinds
from fairhit.settings.declaration import Setting, setting, settings_of
from fairhit.settings.kinds import refused

PREFIX = "FAIRHIT_"
# Tokens of service. A rotation of LoRA slots costs what the engine does not compute while the last requests
# of an adapter end, so a turn is longer than Q^u, which costs nothing but cache.
TURN_LEN = 16_384


# Settings whose value is a text, in the environment, too.
TEXTS = ("scheduler", "weights", "cost", "eviction", "prepay")


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """The settings of one engine's plug-in; None is the policy's default, and all that some policies take."""

    scheduler: str = setting("dlpm", "policy that orders waiting requests", choices=IN_ENGINES)
    quantum: int | None = setting(
        None, "Q^u in tokens of service; smaller is fairer, larger keeps more of the cache",
        ge=1, shown="4096; fair 1024",
    )  # fmt: skip
    cost: Annotated[str, kinds.COST] | None = setting(
        None, "cost of a request: linear:P,Q, context:OUTPUT,CONTEXT, engine, profiled, flops:MODEL, ...",
        shown="linear:1,2; fair engine",
    )  # fmt: skip
    overdraft: int | None = setting(
        None, "debt beyond its last admission up to which a client's cached prompts are admitted, for fair",
        ge=0, shown="1024, at most the quantum",
    )  # fmt: skip
    near: int | None = setting(
        None, "steps of matched tokens within which the client with the most credit is first, for fair",
        ge=1, shown="256",
    )  # fmt: skip
    eviction: str | None = setting(
        None, "order of eviction under fair: what waiting prompts want last, or least recently used",
        choices=("wanted-last", "lru"), shown="wanted-last",
    )  # fmt: skip
    prepay: str | None = setting(
        None, "outputs that fair charges at admission: the expected ones, or none",
        choices=("expected", "none"), shown="expected",
    )  # fmt: skip
    weights: Annotated[Mapping[str, object], kinds.WEIGHTS] | None = setting(
        None, 'shares of clients: `{"gold": 2}`, or `gold=2,silver=1.5` in the environment', shown="1 each"
    )  # fmt: skip
    max_overtake: int | None = setting(
        None, "prompt tokens that may be computed for a client's later requests before its oldest is first",
        ge=1, shown="off",
    )  # fmt: skip
    max_clients: int | None = setting(
        None, "clients with a counter; beyond that clients without debt are forgotten",
        ge=1, shown="1,000,000",
    )  # fmt: skip
    adapter_turn: int | None = setting(
        None, "tokens of service after which a LoRA adapter gives its slot to one that waits; 0: never",
        ge=0, shown=f"{TURN_LEN:,}",
    )  # fmt: skip
    lora_clients: bool | None = setting(
        None, "take the LoRA adapter for the client of a request that names none", shown="on; SGLang: off"
    )  # fmt: skip
    audit: bool | None = setting(
        None, "compare the plug-in's records with the engine's at each step; end the engine at a difference",
        shown="off",
    )  # fmt: skip

    @property
    def names_adapters(self) -> bool:
        """True if the LoRA adapter is the client of a request that names none."""
        return self.lora_clients is not False

    def slot_rotation(self) -> LoraSlotRotation:
        """The rotation of LoRA slots; none under a policy without debts."""
        tenure_len = TURN_LEN if self.adapter_turn is None else self.adapter_turn
        if self.scheduler in WITHOUT_CREDIT:
            tenure_len = 0
        return LoraSlotRotation(tenure_len=tenure_len, weights=Weights(self.weights))

    def policy(self, cache: Cache) -> Policy:
        """The policy that is set, over the engine's cache. Raises ConfigError."""
        return make_policy(
            self.scheduler,
            cache=cache,
            quantum=self.quantum,
            weights=Weights(self.weights) if self.weights else None,
            max_overtake=self.max_overtake,
            max_clients=self.max_clients,
            cost=None if self.cost is None else parse_cost(self.cost),
            overdraft=self.overdraft,
            near=self.near,
            eviction=self.eviction,
            prepay=self.prepay,
        )

    def described(self, policy: Policy) -> str:
        """Return the policy with its cost and settings, and what else is set, in words for the log."""
        given = {key: getattr(self, key) for key in settings_of(Settings)}
        others = [
            f"{key} {value}"
            for key, value in given.items()
            if value is not None and key not in {"scheduler", "cost", *SHOWN}
        ]
        return ", ".join([describe(self.scheduler, policy, given), *others])


def read_settings(section: object, environ: Mapping[str, str], *, where: str) -> Settings:
    """The settings in force; an error names `where` for those of the section. Raises ConfigError."""
    declared = settings_of(Settings)
    if not isinstance(section, Mapping):
        raise ConfigError(f"{where}: expected an object, got {section!r}")
    if unknown := sorted(set(section) - set(declared)):
        raise ConfigError(f"{where}.{unknown[0]}: unknown; expected one of {', '.join(declared)}")
    values = {}
    for key, each in declared.items():
        variable = f"{PREFIX}{key.upper()}"
        if key in section:
            values[key] = _typed(each, section[key], f"{where}.{key}")
        elif text := environ.get(variable):
            values[key] = _typed(each, _from_text(key, text, variable), variable)
    return Settings(**values)


def _typed(setting: Setting, value: object, where: str) -> Any:
    """Read a value of JSON, in which a number within quotes is a mistake. Raises ConfigError."""
    if value is None or (isinstance(value, str) and setting.name not in TEXTS):
        raise ConfigError(f"{where}: {refused(setting.kind.words, value)}")
    return setting.read(value, where)


def _from_text(key: str, text: str, where: str) -> object:
    """The value of a variable: a name, JSON, or for weights also gold=2,silver=1.5."""
    if key in TEXTS and not (key == "weights" and text.lstrip().startswith("{")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ConfigError(f"{where}: expected a number or JSON, got {text[:100]!r}") from None

"""The scheduling policies by name. A new policy is a file in this folder and a line here."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from fairhit.core.costs import cost_words
from fairhit.core.ledgers.overdraft import OverdraftDeficits
from fairhit.core.policy import KeepsLedger, Policy
from fairhit.core.waiting.cache_listener import AnyCache
from fairhit.errors import ConfigError
from fairhit.policies.dlpm import DLPM
from fairhit.policies.dlpm_predict import DLPMPredict
from fairhit.policies.drr import DRR
from fairhit.policies.fair import Fair
from fairhit.policies.fcfs import FCFS
from fairhit.policies.lcf import LCF
from fairhit.policies.lpm import LPM
from fairhit.policies.preble_groups import PrebleGroups
from fairhit.policies.vtc import VTC
from fairhit.policies.vtc_predict import VTCPredict

SCHEDULERS: dict[str, type[Policy]] = {
    "fcfs": FCFS,
    "lcf": LCF,
    "vtc": VTC,
    "vtc-predict": VTCPredict,
    "drr": DRR,
    "lpm": LPM,
    "dlpm": DLPM,
    "dlpm-predict": DLPMPredict,
    "fair": Fair,
    "preble-groups": PrebleGroups,
}

# What an engine with a choice does at the first request that does not fit: stop the scheduling pass, or
# skip the request (drr: all requests of its client).
ON_UNFIT = {
    "fcfs": "stop",
    "lcf": "stop",
    "vtc": "stop",
    "vtc-predict": "stop",
    "drr": "skip",
    "lpm": "stop",
    "dlpm": "skip",
    "dlpm-predict": "skip",
    "fair": "stop",
    "preble-groups": "skip",
}

# Policies that give all clients the same credit: under memory pressure the newest request is preempted.
WITHOUT_CREDIT = frozenset({"fcfs", "lpm", "preble-groups"})

IN_ENGINES = tuple(sorted(SCHEDULERS))

# Settings in the order of the line that names them at a start, besides the cost.
SHOWN = ("quantum", "overdraft", "near", "eviction", "prepay", "max_overtake")


def lacks(key: str, name: str, policies: Mapping[str, type[Policy]] = SCHEDULERS) -> ConfigError:
    """Return the error for a setting that the policy `name` has not; it names the policies that have it."""
    having = [other for other, made in policies.items() if key in signature(made).parameters]
    return ConfigError(
        f"{key}: the scheduler {name} has none; expected with {', '.join(having) or 'no scheduler'}"
    )


def make_policy(
    name: str,
    *,
    cache: AnyCache,
    policies: Mapping[str, type[Policy]] = SCHEDULERS,
    **settings: Any,
) -> Policy:
    """Return a new policy over `cache`, which notifies it of changes from now on.

    `settings` are the keywords of the policy's class; a setting that is None keeps its default. Raises
    ConfigError, one line, for an unknown name, an unknown setting and a value out of range.
    """
    policy = policies.get(name)
    if policy is None:
        raise ConfigError(f"scheduler: expected one of {', '.join(policies)}, got {name!r}")
    accepted = signature(policy).parameters
    given = {key: value for key, value in settings.items() if value is not None}
    for key in given:
        if key not in accepted:
            raise lacks(key, name, policies)
    try:
        return policy(**({"cache": cache} if "cache" in accepted else {}), **given)
    except TypeError as error:
        # A compiled policy refuses a wrong type before it can say what it expects.
        raise ConfigError(f"scheduler {name}: {error}, among {given}") from error


def describe(name: str, policy: Policy, given: Mapping[str, Any]) -> str:
    """Return the policy, its cost and its settings in words, for a line of the log.

    `given` are settings that differ from the policy's defaults; those that it does not have are left out.
    """
    words = [f"policy {name}"]
    ledger: object = None
    if isinstance(policy, KeepsLedger):
        ledger = policy.ledger
        words.append(f"cost {cost_words(policy.cost.current)}")
    accepted = signature(SCHEDULERS[name]).parameters
    for key in SHOWN:
        if key in accepted:
            value = accepted[key].default if given.get(key) is None else given[key]
            if key == "overdraft" and isinstance(ledger, OverdraftDeficits):
                value = ledger.overdraft
            if value is not None and value is not ...:  # a compiled class may not tell its defaults
                words.append(f"{key} {value}")
    return ", ".join(words)

"""Settings of an engine, configured or from the environment; what is wrong is one line that names it."""

import pytest

from fairhit.core.cache.radix_tree import RadixTree
from fairhit.core.costs import ContextCost
from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.engines.settings import Settings, read_settings
from fairhit.errors import ConfigError
from fairhit.policies.fair import Fair

A_PRICE = "expected a price from 0 to 1,000,000 with at most eight decimals"


def read(section: object = None, **environ: str) -> Settings:
    return read_settings({} if section is None else section, environ, where="fairhit")


def test_what_is_configured_goes_before_the_environment():
    read_both = read({"quantum": 7}, FAIRHIT_QUANTUM="9", FAIRHIT_MAX_CLIENTS="3")

    assert (read_both.quantum, read_both.max_clients) == (7, 3)


def test_each_setting_of_fair_reaches_the_policy():
    """Each at another value than its default, and each visible in what the policy then is."""
    section = {
        "scheduler": "fair", "quantum": 100, "overdraft": 50, "near": 7, "eviction": "lru",
        "prepay": "none", "cost": "context:3,0.5,0.25",
    }  # fmt: skip
    policy = read(section).policy(RadixTree())

    assert isinstance(policy, Fair)
    assert policy.cost.current == ContextCost(
        output=3 * UNITS_PER_TOKEN, context=UNITS_PER_TOKEN // 2, attention=UNITS_PER_TOKEN // 4
    )
    assert read(section).described(policy) == (
        "policy fair, cost context:3,0.5,0.25, quantum 100, overdraft 50, near 7, eviction lru, "
        "prepay none"
    )


@pytest.mark.parametrize(
    ("section", "line"),
    [
        (
            {"scheduler": "fair"},
            (
                "policy fair, cost engine (fitted), quantum 1024, overdraft 1024, near 256, "
                "eviction wanted-last, prepay expected"
            ),
        ),
        (
            {"scheduler": "fair", "quantum": 300, "audit": True},
            (
                "policy fair, cost engine (fitted), quantum 300, overdraft 300, near 256, "
                "eviction wanted-last, prepay expected, audit True"
            ),
        ),
        ({}, "policy dlpm, cost linear:1,2, quantum 4096"),
        (
            {"scheduler": "vtc", "weights": {"a": 2}},
            "policy vtc, cost linear:1,2, weights {'a': '2'}",
        ),
        ({"scheduler": "fcfs"}, "policy fcfs"),
    ],
)
def test_the_line_at_the_start_names_policy_cost_and_every_setting_in_force(section, line):
    """Defaults included: an operator reads there what a release or a variable changed."""
    settings = read(section)

    assert settings.described(settings.policy(RadixTree())) == line


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"quantum": 100, "overdraft": 101}, "overdraft"),
        (
            {"scheduler": "dlpm", "near": 7},
            "^near: the scheduler dlpm has none; expected with fair$",
        ),
        ({"scheduler": "vtc", "overdraft": 7}, "^overdraft: the scheduler vtc has none"),
        ({"scheduler": "fcfs", "cost": "engine"}, "^cost: the scheduler fcfs has none"),
        ({"quantum": 10**12 + 1}, "^quantum: expected at most 1,000,000,000,000 tokens"),
    ],
)
def test_what_a_policy_cannot_take_is_one_line(section, says):
    with pytest.raises(ConfigError, match=says) as caught:
        read({"scheduler": "fair", **section}).policy(RadixTree())

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ['{"gold": 2, "silver": 1.5}', "gold=2, silver=1.5,"])
def test_weights_are_an_object_or_a_list_of_pairs(text):
    weights = read(FAIRHIT_WEIGHTS=text).weights or {}

    assert {client: float(str(weight)) for client, weight in weights.items()} == {
        "gold": 2,
        "silver": 1.5,
    }


@pytest.mark.parametrize(("text", "means"), [("1", True), ("true", True), ("0", False)])
def test_a_switch_is_a_number_or_a_word_of_json(text, means):
    assert read(FAIRHIT_LORA_CLIENTS=text).lora_clients is means


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("QUANTUM", "many", "expected a number or JSON, got 'many'"),
        ("QUANTUM", "[" * 100_000, r"expected a number or JSON, got '\[\[\["),
        ("QUANTUM", "0", "expected a whole number above 0, got 0"),
        ("QUANTUM", "true", "expected a whole number above 0, got True"),
        ("ADAPTER_TURN", "-1", "expected a whole number from 0, got -1"),
        ("LORA_CLIENTS", "yes", "expected a number or JSON, got 'yes'"),
        ("LORA_CLIENTS", "2", "expected true or false, got 2"),
        ("LORA_CLIENTS", "1.0", "expected true or false, got 1.0"),
        ("LORA_CLIENTS", "[]", r"expected true or false, got \[\]"),
        ("LORA_CLIENTS", "{}", "expected true or false, got {}"),
        ("SCHEDULER", "just", "expected one of .*dlpm.*, got 'just'"),
        ("COST", "context:2", "context:2': expected context:OUTPUT,CONTEXT or context"),
        ("COST", "context:2,-1", f"{A_PRICE}, got '-1'"),
        ("COST", "context:inf,1", f"{A_PRICE}, got 'inf'"),
        ("COST", "context:2,nan", f"{A_PRICE}, got 'nan'"),
        ("COST", "context:2,1e300", f"{A_PRICE}, got '1e300'"),
        ("COST", "context:2,0,1e3000000", f"{A_PRICE}, got '1e3000000'"),
        ("COST", "context:2,1e-3000000", f"{A_PRICE}, got '1e-3000000'"),
        ("COST", "linear:1000000.1,2", f"{A_PRICE}, got '1000000.1'"),
        ("OVERDRAFT", "-1", "expected a whole number from 0, got -1"),
        ("NEAR", "0", "expected a whole number above 0, got 0"),
        ("EVICTION", "mru", "expected one of wanted-last, lru, got 'mru'"),
        ("PREPAY", "1", "expected one of expected, none, got '1'"),
        ("WEIGHTS", "[]", r"expected CLIENT=WEIGHT,..., got '\[\]'"),
        ("WEIGHTS", "gold=2,gold=3", "client 'gold' is there twice"),
        ("WEIGHTS", "gold=0", "weight of client 'gold': expected a positive number.*, got '0'"),
        ("WEIGHTS", "gold=nan", "expected a positive number .*, got 'nan'"),
        ("WEIGHTS", "gold=1e300", "expected a positive number under 10.9 .*, got '1e300'"),
        ("WEIGHTS", "gold=1e3000000", "expected a positive number .*, got '1e3000000'"),
        ("WEIGHTS", "gold=1e-3000000", "expected a positive number .*, got '1e-3000000'"),
        ("WEIGHTS", "gold", "expected CLIENT=WEIGHT,..., got 'gold'"),
    ],
)
def test_what_the_environment_says_wrongly_is_one_line(variable, text, says):
    with pytest.raises(ConfigError, match=f"^FAIRHIT_{variable}.*{says}") as caught:
        read(**{f"FAIRHIT_{variable}": text})

    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        (["dlpm"], r"fairhit: expected an object, got \['dlpm'\]"),
        ({"quanta": 1}, "fairhit.quanta: unknown; expected one of scheduler, quantum"),
        ({"lora_clients": []}, r"fairhit.lora_clients: expected true or false, got \[\]"),
        (
            {"weights": {"gold": -1}},
            "fairhit.weights: weight of client 'gold': expected a positive",
        ),
    ],
)
def test_what_is_configured_wrongly_is_one_line(section, says):
    with pytest.raises(ConfigError, match=f"^{says}"):
        read(section)

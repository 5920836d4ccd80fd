"""Settings of an engine, configured or from the environment; what is wrong is one line that names it."""

import pytest

from fairhit.engines.settings import Settings, read_settings
from fairhit.errors import ConfigError


def read(section: object = None, **environ: str) -> Settings:
    return read_settings({} if section is None else section, environ, where="fairhit")


def test_what_is_configured_goes_before_the_environment():
    read_both = read({"quantum": 7}, FAIRHIT_QUANTUM="9", FAIRHIT_MAX_CLIENTS="3")

    assert (read_both.quantum, read_both.max_clients) == (7, 3)


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
        ("WEIGHTS", "[]", r"expected CLIENT=WEIGHT,..., got '\[\]'"),
        ("WEIGHTS", "gold=2,gold=3", "client 'gold' is there twice"),
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

"""Settings as `key=value`: each mistake is one line that names the key and what it may be."""

import pytest

from fairhit.errors import ConfigError
from fairhit_lab.traces.importers import FORMATS
from fairhit_lab.traces.parameters import (
    Amount,
    Count,
    Counts,
    Natural,
    Positive,
    Positives,
    Share,
    Switch,
    Word,
    of,
    read_settings,
    settings_of,
)
from fairhit_lab.workloads import GENERATORS


def sample(
    rng,
    *,
    count: Count = 1,
    natural: Natural = 0,
    positive: Positive = 1,
    amount: Amount = 0,
    share: Share = 0.5,
    switch: Switch = False,
    word: Word = "",
    counts: Counts = (1,),
    positives: Positives = (1.0,),
):
    return rng


def test_words_become_values_of_their_kind():
    words = [
        "count=3",
        "natural=0",
        "positive=0.5",
        "share=1",
        "switch=yes",
        "word=a=b",
        "counts=4,2",
    ]

    assert read_settings(settings_of(sample), words) == {
        "count": 3, "natural": 0, "positive": 0.5, "share": 1.0, "switch": True, "word": "a=b",
        "counts": (4, 2),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("word", "complaint"),
    [
        ("count=0", "--set count: expected a whole number above 0, got '0'"),
        ("count=1.5", "--set count: expected a whole number above 0, got '1.5'"),
        (
            "count=10000000000000",
            "--set count: expected a whole number above 0, got '10000000000000'",
        ),
        ("natural=-1", "--set natural: expected a whole number from 0, got '-1'"),
        ("positive=0", "--set positive: expected a number above 0, got '0'"),
        ("positive=nan", "--set positive: expected a number above 0, got 'nan'"),
        ("amount=inf", "--set amount: expected a number from 0, got 'inf'"),
        ("share=1.1", "--set share: expected a number from 0 to 1, got '1.1'"),
        ("switch=true", "--set switch: expected yes or no, got 'true'"),
        ("word=", "--set word: expected a word, got ''"),
        (
            "counts=1,,2",
            "--set counts: expected whole numbers above 0 with commas between, got '1,,2'",
        ),
        (
            "positives=1,x",
            "--set positives: expected numbers above 0 with commas between, got '1,x'",
        ),
        ("count", "--set count: expected KEY=VALUE with a key of count, natural,"),
        ("speed=1", "--set speed=1: expected KEY=VALUE with a key of count, natural,"),
    ],
)
def test_a_wrong_setting_is_named(word: str, complaint: str):
    with pytest.raises(ConfigError) as error:
        read_settings(settings_of(sample), [word])

    assert str(error.value).startswith(complaint)


def test_a_setting_is_given_once():
    with pytest.raises(ConfigError, match="--set count: expected once, got twice"):
        read_settings(settings_of(sample), ["count=1", "count=2"])


def test_the_last_value_holds_for_the_clients_that_follow():
    assert [of((4, 2), client) for client in range(4)] == [4, 2, 2, 2]


@pytest.mark.parametrize("name", [*GENERATORS, *FORMATS])
def test_every_default_is_a_value_that_could_be_set(name: str):
    """`--settings` shows the defaults: what it shows must be accepted."""
    settings = (GENERATORS.get(name) or FORMATS[name]).settings()

    for setting in settings.values():
        if setting.shown:
            given = read_settings(settings, [f"{setting.name}={setting.shown}"])
            assert given == {setting.name: setting.default}

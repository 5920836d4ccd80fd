"""The engine table: an engine can be spared if each of its models is served elsewhere."""

import pytest

from fairhit.dispatch.engine import Engine, EngineTable

Models = tuple[str, ...] | None


class Trial:
    """A trial gate that lets one more request through."""

    lets_through = True

    def sent(self) -> None:
        pass


def fleet(*models: Models) -> EngineTable:
    """Return engines "0", "1", ... that are up and serve the given models."""
    made = EngineTable()
    for number, each in enumerate(models):
        made.engines[str(number)] = Engine(up=True)
        made.set_models(str(number), each)
    return made


@pytest.mark.parametrize(
    ("mine", "others", "spared"),
    [
        (("base",), [("base",)], True),
        (("base", "a"), [("base",)], False),
        (("base", "a"), [("base", "b"), ("a",)], True),
        (("base", "a"), [("base", "b"), ("b",)], False),
        (("base", "a"), [None], True),
        (None, [("base",)], True),
        (None, [], False),
        (("base",), [], False),
    ],
)
def test_an_engine_is_spared_where_all_its_models_are_served_elsewhere(
    mine: Models, others: list[Models], spared: bool
) -> None:
    assert fleet(mine, *others).can_spare("0") is spared


def test_an_engine_that_is_down_draining_or_on_trial_replaces_no_other() -> None:
    made = fleet(("m",), ("m",))
    other = made.engines["1"]
    assert made.can_spare("0")
    other.up = False
    assert not made.can_spare("0")
    other.up, other.accepts = True, False
    assert not made.can_spare("0")
    other.accepts, other.gate = True, Trial()
    assert other.is_open
    assert not made.can_spare("0")


def test_only_the_named_engines_may_replace_another() -> None:
    made = fleet(("m",), ("m",), ("n",))
    assert made.can_spare("0", ["1", "2"])
    assert not made.can_spare("0", ["2"])
    assert not made.can_spare("0", [])


def test_two_may_have_a_model_in_common() -> None:
    made = fleet(("a", "b"), ("b", "c"), ("c",), None)
    assert made.shares("0", "1")
    assert not made.shares("0", "2")
    assert made.shares("0", "3") and made.shares("3", "2")

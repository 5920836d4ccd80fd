"""Deficits with an overdraft: when a client in debt may use what is cached."""

import pytest

from fairhit.core.ledgers.overdraft import OverdraftDeficits, Standing
from fairhit.core.service import UNITS_PER_TOKEN, Weights
from fairhit.errors import ConfigError


def ledger(*, quantum=100, overdraft=50, weights=None):
    changed = []
    made = OverdraftDeficits(
        quantum=quantum,
        overdraft=overdraft,
        on_change=lambda client, _: changed.append(client),
        weights=Weights(weights),
    )
    made.changed = changed
    return made


def spend(deficits, client, tokens):
    deficits.charge(client, tokens * UNITS_PER_TOKEN)


def test_a_client_in_debt_may_use_hits_until_its_overdraft_is_spent():
    deficits = ledger()
    deficits.join("a")
    assert deficits.standing("a") is Standing.CLOSED  # it never had credit

    deficits.check_refill()
    assert deficits.standing("a") is Standing.OPEN
    spend(deficits, "a", 1000)  # d = -900
    assert deficits.standing("a") is Standing.HITS
    spend(deficits, "a", 49)
    assert deficits.standing("a") is Standing.HITS
    spend(deficits, "a", 1)
    assert deficits.standing("a") is Standing.CLOSED


def test_each_round_lets_a_client_in_debt_use_hits_again():
    """The debt stays; meanwhile it is served at the rate of its quantum."""
    deficits = ledger()
    deficits.join("a")
    deficits.check_refill()
    spend(deficits, "a", 1000)
    spend(deficits, "a", 180)  # -1080: 130 below the floor
    deficits.changed.clear()

    assert deficits.check_refill() == ["a"]

    assert deficits.rounds == 1 + 2  # two rounds, not the eleven that a credit takes
    assert deficits.changed == ["a"]
    assert deficits.standing("a") is Standing.HITS


def test_who_has_credit_first_stops_the_refill():
    deficits = ledger()
    for client in "ab":
        deficits.join(client)
    deficits.check_refill()
    spend(deficits, "a", 1000)
    spend(deficits, "a", 500)  # 450 below the floor: 5 rounds
    spend(deficits, "b", 250)  # d = -150
    spend(deficits, "b", 60)  # 10 below the floor: 1 round; 3 rounds to a credit

    assert deficits.check_refill() == ["b"]
    assert deficits.standing("b") is Standing.HITS
    spend(deficits, "b", 60)
    assert deficits.check_refill() == ["b"]


def test_an_overdraft_of_nothing_is_none():
    deficits = ledger(overdraft=0)
    deficits.join("a")
    deficits.check_refill()
    spend(deficits, "a", 200)

    assert deficits.standing("a") is Standing.CLOSED
    assert deficits.check_refill() == ["a"]
    assert deficits.standing("a") is Standing.OPEN


def test_places_are_by_credit_and_weight_and_survive_refills():
    deficits = ledger(weights={"b": 2})
    for client in "abc":
        deficits.join(client)
    deficits.check_refill()
    spend(deficits, "a", 30)  # 70 of 100 left
    spend(deficits, "b", 50)  # 150 of 200
    assert sorted("abc", key=deficits.place) == ["c", "b", "a"]

    for client, tokens in (("a", 400), ("b", 210), ("c", 350)):  # -330, -60 of 200, -250
        spend(deficits, client, tokens)
    assert sorted("abc", key=deficits.place) == ["b", "c", "a"]
    noted = deficits.place("a"), deficits.place("c")

    deficits.check_refill()

    assert deficits.standing("b") is Standing.OPEN
    assert (deficits.place("a"), deficits.place("c")) == noted


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"overdraft": 101}, "overdraft: expected at most the quantum, 100, got 101"),
        ({"overdraft": -1}, "overdraft: expected a whole number of tokens >= 0, got -1"),
    ],
)
def test_a_wrong_overdraft_is_one_clear_line(settings, message):
    with pytest.raises(ConfigError) as caught:
        ledger(**settings)
    assert str(caught.value) == message

"""The shared ledger of several gateways, and the deficits of one gateway that uses it."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from fairhit.core.ledgers.overdraft import Standing
from fairhit.core.ledgers.shared_deficits import SharedDeficits
from fairhit.core.service import UNITS_PER_TOKEN, Weights
from fairhit.dispatch import LedgerReport, SharedLedger
from fairhit.dispatch.accounting.shared_ledger import refill

Q = 100


ANY: tuple[str, ...] = ()


def reported(charged: dict[str, int] | None = None, waiting: str = "") -> LedgerReport:
    return LedgerReport(charged=charged or {}, waiting={ANY: tuple(waiting)} if waiting else {})


def quantum_of(client: str) -> int:
    return 2 * Q if client == "heavy" else Q


def refill_by_rounds(deficits: dict[str, int], waiting: list[str]) -> dict[str, int]:
    """Run CheckRefill of Algorithm 1 as printed, one round at a time."""
    deficits = {**dict.fromkeys(waiting, 0), **deficits}
    while all(deficits[client] <= 0 for client in waiting):
        for client, q in deficits.items():
            if q <= 0:
                deficits[client] = q + quantum_of(client)
    return deficits


@given(
    deficits=st.dictionaries(st.sampled_from(["a", "b", "c", "heavy"]), st.integers(-1000, 300)),
    waiting=st.lists(st.sampled_from(["a", "b", "heavy", "new"]), min_size=1, unique=True),
)
def test_a_refill_is_the_printed_loop(deficits: dict[str, int], waiting: list[str]) -> None:
    expected = refill_by_rounds(deficits, waiting)
    refill(deficits, waiting, quantum_of)

    assert {**dict.fromkeys(waiting, 0), **deficits} == expected


def test_each_gateway_gets_the_charges_and_waiting_clients_of_the_other() -> None:
    accounts = SharedLedger()
    accounts.exchange("one", reported(waiting="a"), quantum_of)
    news = accounts.exchange("two", reported({"b": 30}, waiting="b"), quantum_of)

    assert dict(news.deficits) == {"a": Q, "b": -30}
    assert news.elsewhere == {ANY: ("a",)}


def test_a_refill_waits_for_who_waits_elsewhere() -> None:
    accounts = SharedLedger()
    accounts.exchange("one", reported(waiting="a"), quantum_of)
    for _ in range(3):
        news = accounts.exchange("two", reported({"b": 50}, waiting="b"), quantum_of)
    assert news.deficits["b"] == -150

    accounts.exchange("one", reported({"a": Q}, waiting="a"), quantum_of)
    assert accounts.deficits == {"a": Q, "b": -50}


def test_clients_are_passed_on_with_the_engines_that_they_wait_for() -> None:
    accounts = SharedLedger()
    accounts.exchange(
        "one",
        LedgerReport(charged={}, waiting={("w0",): ("a",), ("w0", "w1"): ("b",)}),
        quantum_of,
    )
    accounts.exchange("two", LedgerReport(charged={}, waiting={("w0",): ("c",)}), quantum_of)
    news = accounts.exchange("three", reported(), quantum_of)

    assert news.elsewhere == {("w0",): ("a", "c"), ("w0", "w1"): ("b",)}


def test_a_removed_gateway_blocks_no_client() -> None:
    accounts = SharedLedger()
    accounts.exchange("one", reported(waiting="a"), quantum_of)
    accounts.forget(["one"])
    news = accounts.exchange("two", reported({"b": 250}, waiting="b"), quantum_of)

    assert news.elsewhere == {}
    assert news.deficits["b"] == 50


def test_an_idle_client_without_debt_is_forgotten() -> None:
    accounts = SharedLedger()
    accounts.exchange("one", reported({"a": 30}), quantum_of)

    assert accounts.deficits == {}


def deficits_of(**waiting: int) -> SharedDeficits:
    deficits = SharedDeficits(quantum=Q, weights=Weights({"heavy": "2"}))
    for client in waiting:
        deficits.join(client)
    assert deficits.report() == {}  # what is charged from now on is collected
    return deficits


def tokens(number: int) -> int:
    return number * UNITS_PER_TOKEN


def test_no_client_is_refilled_while_one_elsewhere_has_credit() -> None:
    deficits = deficits_of(b=1)
    deficits.adopt({"a": tokens(50), "b": tokens(-10)}, {ANY: ("a",)})

    assert not deficits.is_dry
    assert deficits.check_refill() == []

    deficits.adopt({"a": tokens(-5), "b": tokens(-10)}, {ANY: ("a",)})
    assert deficits.check_refill() == ["b"]
    assert deficits.value("a") == tokens(95)


def test_who_waits_elsewhere_has_precedence_at_its_own_engines_only() -> None:
    deficits = deficits_of(b=1)
    deficits.adopt({"a": tokens(50), "c": tokens(-1)}, {("w0",): ("a",), ANY: ("c",)})

    assert deficits.is_due_elsewhere("w0")
    assert not deficits.is_due_elsewhere("w1")
    deficits.adopt({"c": tokens(1)}, {ANY: ("c",)})
    assert deficits.is_due_elsewhere("w1")


def test_what_is_charged_while_news_is_on_its_way_still_counts() -> None:
    deficits = deficits_of(b=1)
    deficits.charge("b", tokens(30))
    report = deficits.report()
    deficits.charge("b", tokens(5))
    deficits.adopt({"b": tokens(70)}, {})

    assert report == {"b": tokens(30)}
    assert deficits.value("b") == tokens(65)
    assert deficits.report() == {"b": tokens(5)}


def test_a_report_that_was_lost_is_part_of_the_next() -> None:
    deficits = deficits_of(b=1)
    deficits.charge("b", tokens(30))
    deficits.take_back(deficits.report())
    deficits.give_back("b", tokens(10))

    assert deficits.report() == {"b": tokens(20)}


def test_who_stops_waiting_elsewhere_has_no_say_here() -> None:
    deficits = deficits_of(b=1)
    deficits.adopt({"a": tokens(50), "b": tokens(-10)}, {ANY: ("a",)})
    deficits.adopt({}, {})

    assert deficits.is_dry
    assert deficits.check_refill() == ["b"]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), overdraft=st.sampled_from([0, Q // 2]))
def test_what_is_believed_of_who_waits_is_always_what_is_true_of_them(
    seed: int, overdraft: int
) -> None:
    """After any events: the solvent clients are exactly those that wait, here or elsewhere, with q > 0.

    And the standing reported last of each that waits here is its standing.
    """
    rng, clients = random.Random(seed), ["a", "b", "c", "heavy"]
    here, elsewhere = set(), set()
    reported: dict[str, Standing] = {}
    deficits = SharedDeficits(quantum=Q, overdraft=overdraft)
    deficits.attend(reported.__setitem__)
    for _ in range(80):
        client, units = rng.choice(clients), tokens(rng.randint(0, 150))
        what = rng.randrange(6)
        if what == 0 and client not in here:
            assert deficits.join(client) == (deficits.value(client) > 0)
            here.add(client)
            reported[client] = deficits.standing(client)
        elif what == 1 and client in here:
            deficits.leave(client)
            here.discard(client)
            del reported[client]
        elif what == 2:
            deficits.charge(client, units)
        elif what == 3:
            deficits.give_back(client, units // 4)
        elif what == 4:
            assert set(deficits.check_refill()) <= here
        else:
            elsewhere = set(rng.sample(clients, rng.randrange(4)))
            news = {one: tokens(rng.randint(-300, 100)) for one in rng.sample(clients, 2)}
            deficits.adopt(news, {ANY: sorted(elsewhere)})
        waiting = here | elsewhere
        assert deficits._positive == {one for one in waiting if deficits.value(one) > 0}
        assert deficits.is_dry == (bool(waiting) and not deficits._positive)
        assert reported == {one: deficits.standing(one) for one in here}


def test_an_overdraft_begins_when_the_ledger_says_that_a_client_is_in_debt() -> None:
    """The prefix that the client paid for through another gateway is in the engine all the same."""
    deficits = SharedDeficits(quantum=Q, overdraft=30)
    deficits.join("a")
    assert deficits.check_refill() == ["a"]
    deficits.adopt({"a": tokens(-400)}, {})

    assert deficits.standing("a") is Standing.HITS
    deficits.charge("a", tokens(30))
    assert deficits.standing("a") is Standing.CLOSED


def test_a_client_first_known_to_be_in_debt_has_no_overdraft_here() -> None:
    """What its debt began with is not known here."""
    deficits = SharedDeficits(quantum=Q, overdraft=30)
    deficits.adopt({"a": tokens(-1)}, {})
    deficits.join("a")

    assert deficits.standing("a") is Standing.CLOSED

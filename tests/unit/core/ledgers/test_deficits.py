"""Deficits: the refill in closed form is the refill of Algorithm 1, one quantum at a time."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairhit.core.ledgers.client_table import OTHER
from fairhit.core.ledgers.deficits import Deficits
from fairhit.core.service import UNITS_PER_TOKEN, Weights
from fairhit.errors import ConfigError, QueueFull

TOKEN = UNITS_PER_TOKEN


def test_a_new_client_has_no_credit_and_one_refill_gives_it_a_quantum():
    """
    Starting above zero would let anyone with many names take a quantum for each (DESIGN 3.2).
    """
    deficits = Deficits(quantum=10)

    assert not deficits.join("new")
    assert deficits.value("new") == 0

    assert deficits.check_refill() == ["new"]
    assert deficits.value("new") == 10 * TOKEN


def test_a_refill_runs_as_many_rounds_as_the_least_indebted_waiting_client_needs():
    """
    Deficits are -25 for a and -95 for b, the quantum 10: a turns positive after 3 rounds, b is then at -65.
    """
    deficits = Deficits(quantum=10)
    for client, debt in (("a", 25), ("b", 95)):
        deficits.join(client)
        deficits.charge(client, debt * TOKEN)

    assert deficits.check_refill() == ["a"]

    assert deficits.value("a") == 5 * TOKEN
    assert deficits.value("b") == -65 * TOKEN


def test_no_client_is_refilled_while_a_waiting_client_has_credit():
    """
    Alg. 1, lines 4-5: else a client out of deficit would be served before one with credit.
    """
    deficits = Deficits(quantum=10)
    deficits.join("rich")
    deficits.check_refill()
    deficits.join("poor")

    assert deficits.check_refill() == []
    deficits.leave("rich")
    assert deficits.check_refill() == ["poor"]


def test_debt_survives_leaving_and_decays_with_the_refills_of_the_others():
    """
    A client that runs up a debt, leaves and comes back still has what the refills left of it.
    """
    deficits = Deficits(quantum=10)
    deficits.join("away")
    deficits.charge("away", 35 * TOKEN)
    deficits.leave("away")
    deficits.join("here")
    for _ in range(2):
        assert deficits.check_refill() == ["here"]
        deficits.charge("here", 10 * TOKEN)

    assert not deficits.join("away")
    assert deficits.value("away") == -15 * TOKEN


def test_idle_clients_are_refilled_until_positive_and_not_further():
    """
    Credit is not hoarded: however many rounds pass, an idle client has at most one quantum.
    """
    deficits = Deficits(quantum=10)
    deficits.join("idle")
    deficits.charge("idle", 3 * TOKEN)
    deficits.leave("idle")
    deficits.join("busy")
    for _ in range(50):
        deficits.check_refill()
        deficits.charge("busy", 10 * TOKEN)

    assert deficits.value("idle") == 7 * TOKEN


def test_weights_scale_the_quantum_exactly():
    """
    A weight of six decimals times the quantum is a whole number of units: nothing is rounded.
    """
    deficits = Deficits(quantum=1, weights=Weights({"gold": "2.000001"}))
    deficits.join("gold")
    deficits.check_refill()

    assert deficits.value("gold") == 200_000_100


@pytest.mark.parametrize("weight", [0, -1, "many", "nan", "inf", 0.0000001, True])
def test_a_wrong_weight_is_one_clear_line(weight):
    """
    An operator's slip is named, with whose weight it is.
    """
    with pytest.raises(ConfigError, match="weight of client 'gold': expected a positive number"):
        Weights({"gold": weight})


def test_a_full_table_forgets_only_who_gains_nothing_by_it():
    """
    Debtors stay, however old; an idle client without debt makes room; with none, the newcomer waits.
    """
    deficits = Deficits(quantum=10, max_clients=2)
    for client, debt in (("debtor", 5), ("even", 0)):
        deficits.join(client)
        deficits.charge(client, debt * TOKEN)
        deficits.leave(client)
    deficits.join("newcomer")

    assert deficits.value("debtor") == -5 * TOKEN
    assert len(deficits) == 2
    deficits.charge("newcomer", TOKEN)
    with pytest.raises(QueueFull, match="too many clients: the table holds 2"):
        deficits.join("one more")


def test_a_million_clients_fit_in_a_gibibyte():
    """
    Measured on a twentieth of them (DESIGN 3.2).
    """
    sample = 50_000
    tracemalloc.start()
    deficits = Deficits(quantum=10)
    for number in range(sample):
        deficits.join(f"client-{number}")
        deficits.charge(f"client-{number}", number * TOKEN)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert used * (1_000_000 / sample) < 2**30


class LoopedRefill:
    """Algorithm 1, lines 3-8, as printed."""

    def __init__(self, quantum):
        self.quantum, self.q, self.waiting = quantum, {}, set()

    def check_refill(self):
        rounds = 0
        while self.waiting and all(self.q[c] <= 0 for c in self.waiting):
            rounds += 1
            for client in self.q:
                if self.q[client] <= 0:
                    self.q[client] += self.quantum
        return rounds


@given(
    quantum=st.integers(1, 7),
    events=st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["wait", "leave", "refill", "charge"]),
            st.integers(0, 40),
        )
    ),
)
def test_lazy_counters_are_the_looped_ones(quantum, events):
    """
    [11] Whatever happens, every q_i is what one quantum at a time would have made it.
    """
    fast, slow = Deficits(quantum=quantum), LoopedRefill(quantum * TOKEN)
    for client, event, amount in events:
        if event == "wait" and client not in slow.waiting:
            slow.q.setdefault(client, 0)
            slow.waiting.add(client)
            assert fast.join(client) == (slow.q[client] > 0)
        elif event == "leave":
            slow.waiting.discard(client)
            fast.leave(client)
        elif event == "charge" and client in slow.q:
            slow.q[client] -= amount * TOKEN
            fast.charge(client, amount * TOKEN)
            assert fast.is_positive(client) == (slow.q[client] > 0)
        elif event == "refill":
            assert bool(fast.check_refill()) == bool(slow.check_refill())
        assert {c: fast.value(c) for c in slow.q} == slow.q


def test_names_that_come_and_go_leave_nothing_in_the_heap():
    """
    While a waiting client has credit there is no refill, so nothing reaches the top of the heap.
    """
    deficits = Deficits(quantum=10, max_clients=10)
    deficits.join("solvent")
    deficits.check_refill()
    for number in range(3_000):
        deficits.join(f"stranger-{number}")
        deficits.leave(f"stranger-{number}")

    assert len(deficits._schedule) < 200


def test_a_client_forgotten_while_it_ran_pays_all_the_same():
    """
    A small table, one client at work and a crowd of strangers: its output is not free.
    """
    deficits = Deficits(quantum=10, max_clients=4)
    deficits.join("runs")
    deficits.check_refill()
    deficits.leave("runs")  # its request runs, nothing more waits
    for number in range(40):
        deficits.join(f"stranger-{number}")
        deficits.leave(f"stranger-{number}")
        deficits.charge("runs", 20 * TOKEN)

    assert deficits.value("runs") <= -700 * TOKEN
    assert len(deficits) <= 5


def test_the_client_that_stands_for_all_others_has_a_place_in_a_full_table():
    """
    An engine that cannot give a stranger a record of its own must not fail for it.
    """
    deficits = Deficits(quantum=10, max_clients=1)
    deficits.join("debtor")
    deficits.charge("debtor", 5 * TOKEN)

    assert not deficits.join(OTHER)


def test_what_is_given_back_may_make_a_waiting_client_positive():
    """
    a was charged 20 for outputs of which half never came; it waits, and has its say again.
    """
    deficits = Deficits(quantum=15)
    deficits.join("a")
    deficits.check_refill()
    deficits.charge("a", 20 * UNITS_PER_TOKEN)

    positive: list[str] = []
    deficits.listen(on_positive=positive.append, on_exhausted=lambda _: None)
    deficits.give_back("a", 4 * UNITS_PER_TOKEN)
    assert deficits.is_dry and not positive
    deficits.give_back("a", 6 * UNITS_PER_TOKEN)
    assert positive == ["a"]
    assert not deficits.is_dry
    assert deficits.value("a") == 5 * UNITS_PER_TOKEN


def test_the_round_of_a_client_that_was_given_back_something_comes_earlier():
    """
    Owing 40 at a quantum of 10, a would have its turn in five rounds; owing 5, in one.
    """
    deficits = Deficits(quantum=10)
    deficits.join("a")
    deficits.charge("a", 40 * UNITS_PER_TOKEN)
    deficits.give_back("a", 35 * UNITS_PER_TOKEN)

    assert deficits.check_refill() == ["a"]
    assert deficits.rounds == 1


def test_nothing_is_given_back_to_who_was_forgotten():
    deficits = Deficits(quantum=10)

    deficits.give_back("a", 1)
    assert deficits.value("a") == 0

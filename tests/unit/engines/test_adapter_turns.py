"""Who gives up a LoRA slot, when, and for whom; no engine is needed for that."""

import random

import pytest

from fairlead.core.service import UNITS_PER_TOKEN, Weights
from fairlead.engines.adapter_turns import AdapterTurns, Taker

A, B, C = (Taker(name, name) for name in "abc")
X_B, X_C = Taker("x", "b"), Taker("x", "c")


def contended(*running: Taker, waiting=(B,), turn_len=100, slots=1, weights=None) -> AdapterTurns:
    """Somebody found no slot, and it was looked once; the running requests are numbered."""
    turns = AdapterTurns(turn_len=turn_len, weights=Weights(weights))
    for taker in waiting:
        turns.wants(taker.client + str(taker.adapter), taker)
    turns.contend()
    look(turns, *running, slots=slots)
    return turns


def look(turns: AdapterTurns, *running: Taker, slots=1) -> None:
    turns.look(slots, {str(at): taker for at, taker in enumerate(running)})


def test_while_nobody_waits_for_a_slot_nothing_is_counted():
    turns = AdapterTurns(turn_len=100)

    turns.wants("0", A)
    turns.admitted("0", A, 1000)
    turns.emitted("0", 1000)

    assert not turns.is_contended and not turns.is_due
    assert not turns._of and not turns._waiting and not turns._taker


def test_who_is_a_turn_ahead_gives_way():
    """At 99 tokens not yet; at 100 adapter a takes nobody in, b does, and c would take b's slot."""
    turns = contended(A)
    turns.emitted("0", 49)  # an output is 2
    look(turns, A)
    assert turns.starved is None

    turns.emitted("0", 1)
    look(turns, A)

    assert turns.starved == B and turns.turns == 1
    assert [turns.forbids(adapter) for adapter in "abc"] == [True, False, True]


def test_it_is_looked_often_enough_in_a_turn_and_not_at_every_step():
    turns = contended(A, turn_len=800)
    assert not turns.is_due

    turns.emitted("0", 49)
    assert not turns.is_due
    turns.emitted("0", 1)
    assert turns.is_due


def test_the_slot_is_kept_until_who_took_it_has_caught_up():
    """It may lose it for a moment, for want of credit say; that is no time for the others to take it."""
    turns = contended(A, waiting=(A, B))
    turns.emitted("0", 50)
    look(turns, A)
    assert [turns.forbids(adapter) for adapter in "ab"] == [True, False]

    turns.admitted("1", B, 99)
    look(turns)
    assert [turns.forbids(adapter) for adapter in "ab"] == [True, False]

    turns.admitted("2", B, 1)
    look(turns)
    assert turns.starved is None and not turns.forbids("a")


def test_beside_the_slot_that_is_kept_others_may_be_taken():
    turns = contended(A, waiting=(B,), slots=1)
    turns.emitted("0", 50)
    look(turns, A)
    assert turns.forbids("c")

    look(turns, A, slots=3)
    assert turns.forbids("a") and not turns.forbids("c")

    look(turns, slots=3)  # it has given way, and may have another slot now
    look(turns, A, slots=3)
    assert not turns.forbids("a")


def test_a_turn_is_over_when_somebody_who_waits_has_received_less():
    """Beside it b keeps pace, so that c would not catch up with a for long."""
    d = Taker("d", "d")
    turns = contended(A, B, waiting=(A, C), slots=2)
    turns.emitted("0", 50)
    look(turns, A, B, slots=2)
    assert turns.starved == C

    turns.wants("d", d)
    turns.admitted("1", C, 20)
    look(turns, B, C, slots=2)

    assert turns.starved is None


def test_an_engine_that_says_it_has_no_slots_is_no_error():
    assert contended(slots=0).starved is None


def test_with_a_free_slot_nobody_gives_way():
    turns = contended(A, slots=2)
    turns.emitted("0", 500)
    look(turns, A, slots=2)

    assert turns.starved is None


def test_the_one_that_received_most_gives_way_to_the_one_that_received_least():
    """Two run; of the two that wait c has run before."""
    d = Taker("d", "d")
    turns = contended(A, B, C, waiting=(d,), slots=3)
    for name, tokens in (("0", 40), ("1", 10), ("2", 5)):
        turns.emitted(name, tokens)
    turns.wants("c", C)
    look(turns, A, B, slots=2)
    assert turns.starved is None

    turns.emitted("0", 10)
    look(turns, A, B, slots=2)

    assert turns.starved == d and turns.forbids("a") and not turns.forbids("b")


def test_who_comes_late_is_owed_nothing_from_before():
    """a and b have had their turns for long; c starts with what the lesser of them has."""
    turns = contended(A, waiting=(B,), turn_len=10_000)
    turns.emitted("0", 3000)
    turns.wants("a", A)
    look(turns, B)
    turns.emitted("0", 2500)
    turns.wants("c", C)
    look(turns, B)

    tokens = {client: units / UNITS_PER_TOKEN for client, units in turns._of_client.items()}
    assert tokens == {"a": 6000, "b": 5000, "c": 5000}


def test_an_aborted_request_is_waited_for_no_more():
    turns = contended(A)
    turns.emitted("0", 50)
    look(turns, A)
    assert turns.forbids("a")

    turns.leaves("bb")
    look(turns, A)

    assert turns.starved is None and not turns.forbids("a") and not turns.is_contended
    assert not turns._waiting and not turns._taker


def test_a_turn_is_longer_for_who_weighs_more():
    """Token by token, none of which is lost to rounding."""
    turns = contended(A, weights={"a": 3})
    for _ in range(149):
        turns.emitted("0", 1)
    look(turns, A)
    assert turns.starved is None

    turns.emitted("0", 1)
    look(turns, A)
    assert turns.starved == B


def test_several_adapters_are_no_larger_share():
    """x has had b; by its c it has waited as long as anybody, but as a client it is ahead of a."""
    turns = contended(X_B, waiting=(X_C, A))
    turns.emitted("0", 50)
    look(turns, X_B)

    assert turns.starved == A


def test_a_clients_own_adapters_take_turns_too():
    turns = contended(X_B, waiting=(X_C,))
    turns.emitted("0", 50)
    look(turns, X_B)

    assert turns.starved == X_C


def test_without_turns_nobody_gives_way():
    turns = AdapterTurns(turn_len=0)
    turns.wants("b", B)
    turns.contend()

    assert not turns.is_contended and not turns.is_due and not turns._waiting


def test_once_nobody_waits_all_is_forgotten():
    turns = contended(A)
    turns.emitted("0", 10)
    turns.leaves("bb")
    look(turns, A)

    assert not turns.is_contended and not turns._of and not turns._of_client and not turns._runs


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slots", [1, 2, 3])
def test_nobody_waits_for_ever_and_all_stay_close(slots, seed):
    """
    Five tenants that always ask, each with requests of its own length, on an engine with few slots and a
    fair policy: their service stays within a turn, what it may be late by, and what drains meanwhile.
    """
    rng = random.Random(seed)
    takers = [Taker(name, name) for name in "abcde"]
    lengths = {taker: rng.randrange(1, 60) for taker in takers}
    turn_len, seats = 200, 6
    turns = AdapterTurns(turn_len=turn_len)
    running: dict[str, tuple[Taker, int]] = {}
    received = dict.fromkeys(takers, 0)
    waiting = {taker: f"first of {taker.client}" for taker in takers}
    for taker, name in waiting.items():
        turns.wants(name, taker)

    def admit(name: str) -> None:
        held = {taker for taker, _ in running.values()}
        for taker in sorted(takers, key=received.__getitem__):
            if taker not in held and len(held) >= slots:
                turns.contend()
            elif not turns.forbids(taker.adapter):
                turns.admitted(waiting[taker], taker, 1)
                received[taker] += 1
                running[waiting[taker]] = taker, lengths[taker]
                waiting[taker] = name
                turns.wants(name, taker)
                return

    for step in range(6000):
        if turns.is_due:
            turns.look(slots, {name: taker for name, (taker, _) in running.items()})
        if len(running) < seats:
            admit(str(step))
        for name, (taker, left) in list(running.items()):
            turns.emitted(name, 1)
            received[taker] += 2
            if left == 1:
                del running[name]
            else:
                running[name] = taker, left - 1

    # Those of one adapter drain while one other after the other is served.
    late = turn_len // 8 + 2 * seats
    drain = seats * (2 * max(lengths.values()) + 1)
    assert max(received.values()) - min(received.values()) <= turn_len + late + 2 * drain
    assert turns.turns > 10


@pytest.mark.parametrize("seed", range(20))
def test_whoever_comes_and_goes_somebody_may_always_be_taken(seed):
    """
    Requests of three clients for three adapters come, run, are aborted; at each moment either an adapter
    runs whose last request will end, or one of those that wait is let in.
    """
    rng = random.Random(seed)
    turns, slots = AdapterTurns(turn_len=40), rng.randrange(1, 3)
    waiting: dict[str, Taker] = {}
    running: dict[str, Taker] = {}
    for step in range(2000):
        for name in [name for name in waiting if rng.random() < 0.02]:
            turns.leaves(name)
            del waiting[name]
        if rng.random() < 0.8 and len(waiting) < 12:
            waiting[str(step)] = taker = Taker(rng.choice("xyz"), rng.choice("abc"))
            turns.wants(str(step), taker)
        if turns.is_due:
            turns.look(slots, running)
        for name, taker in list(waiting.items()):
            held = {each.adapter for each in running.values()}
            if turns.forbids(taker.adapter) or len(running) == 4:
                continue
            if taker.adapter not in held and len(held) >= slots:
                turns.contend()
                continue
            turns.admitted(name, taker, 5)
            running[name] = taker
            del waiting[name]
        assert running or not waiting
        for name in list(running):
            turns.emitted(name, 1)
            if rng.random() < 0.2:
                del running[name]
    assert turns.turns > 3

"""Who gives up a LoRA slot, when, and for whom; no engine is needed for that."""

from fairhit.core.service import Weights
from fairhit.engines.lora_slots import (
    CLIENTS_COMPARED,
    CLIENTS_REMEMBERED,
    IDLE_PASSES_PER_TENURE,
    LoraSlotRotation,
    Taker,
)

A, B, C = (Taker(name, name) for name in "abc")
X_B, X_C = Taker("x", "b"), Taker("x", "c")


def contended(
    *running: Taker, waiting=(B,), tenure_len=100, slots=1, weights=None
) -> LoraSlotRotation:
    """Somebody found no slot, and it was looked once; the running requests are numbered."""
    turns = LoraSlotRotation(tenure_len=tenure_len, weights=Weights(weights))
    for taker in waiting:
        turns.add_waiting(taker.client + str(taker.adapter), taker)
    turns.on_no_slot()
    look(turns, *running, slots=slots)
    return turns


def look(turns: LoraSlotRotation, *running: Taker, slots=1) -> None:
    turns.begin_pass(slots, {str(at): taker for at, taker in enumerate(running)})


def given_to(turns: LoraSlotRotation) -> list[str | None]:
    """Whose slots are kept or emptied for them."""
    return [taker.adapter for taker in turns.reserved]


def test_while_nobody_waits_for_a_slot_nothing_is_counted():
    turns = LoraSlotRotation(tenure_len=100)

    turns.add_waiting("0", A)
    turns.on_admit("0", A, 1000)
    turns.on_output("0", 1000)

    assert not turns.is_contended
    assert not any(
        (
            turns._of_adapter,
            turns._of_client,
            turns._waiting,
            turns._waiting_takers,
            turns._assigned,
        )
    )
    assert not any(turns.forbids(adapter) for adapter in "abc")


def test_after_a_turn_an_adapter_gives_way():
    """At 99 tokens not yet; at 100 adapter a takes nobody in, b does, and c would take b's slot."""
    turns = contended(A, waiting=(A, B))
    turns.on_output("0", 49)  # an output is 2
    look(turns, A)
    assert [turns.forbids(adapter) for adapter in "abc"] == [False, True, True]

    turns.on_output("0", 1)
    look(turns, A)

    assert given_to(turns) == ["b"] and turns.rotations == 1
    assert [turns.forbids(adapter) for adapter in "abc"] == [True, False, True]


def test_a_turn_is_the_adapters_whoever_of_its_users_it_is_for():
    """Each user of a comes once and is gone; none of them received a turn."""
    turns = contended(waiting=(B,), slots=1)
    turns.remove_waiting("bb")  # the slot is a's before b comes
    look(turns)
    turns.add_waiting("late", B)
    turns.on_no_slot()
    for number in range(10):
        name, taker = f"user {number}", Taker(f"user {number}", "a")
        turns.begin_pass(1, {name: taker})
        assert not turns.forbids("a")
        turns.on_output(name, 5)
    turns.begin_pass(1, {"user 9": Taker("user 9", "a")})

    assert turns.forbids("a") and not turns.forbids("b")


def test_who_is_new_to_an_adapter_is_not_owed_what_its_others_received():
    """Another user of a waits for longer than c, which has had nothing."""
    turns = contended(Taker("user 1", "a"), waiting=(Taker("user 2", "a"), B, C))
    turns.on_output("0", 50)
    look(turns, Taker("user 1", "a"))
    turns.on_admit("bb", B, 100)
    turns.begin_pass(1, {"bb": B})

    assert turns.forbids("b") and given_to(turns) == ["c"]


def test_a_slot_is_kept_through_a_turn_for_who_waits():
    """It may run nobody for a moment, for want of credit say; that is no time for the others to take it."""
    turns = contended(A, waiting=(A, B))
    turns.on_output("0", 50)
    turns.add_waiting("b2", B)
    look(turns, A)
    turns.on_admit("1", B, 99)
    look(turns)
    look(turns)
    assert [turns.forbids(adapter) for adapter in "ab"] == [True, False]

    turns.on_admit("2", B, 1)
    look(turns)
    assert [turns.forbids(adapter) for adapter in "ab"] == [False, True]


def test_a_turn_goes_on_until_who_received_less_has_caught_up():
    """What ran when a gave way took 60 tokens more."""
    turns = contended(A, waiting=(A, B))
    turns.on_output("0", 50)
    turns.add_waiting("b2", B)
    look(turns, A)
    turns.on_output("0", 30)
    turns.on_admit("1", B, 159)
    turns.begin_pass(1, {"1": B})
    assert not turns.forbids("b")

    turns.on_output("1", 10)
    turns.begin_pass(1, {"1": B})
    assert turns.forbids("b") and not turns.forbids("a")


def test_two_slots_that_are_empty_at_once_are_not_both_taken_by_others():
    """a and c end in the same step, as b's turn comes; a is offered to the engine before b."""
    turns = contended(A, C, waiting=(A, B, C), slots=2)
    turns.on_output("0", 50)
    look(turns, A, C, slots=2)
    assert given_to(turns) == ["b"]

    look(turns, slots=2)

    assert [turns.forbids(adapter) for adapter in "abc"] == [True, False, False]
    turns.on_admit("2", C, 1)
    assert [turns.forbids(adapter) for adapter in "abc"] == [True, False, False]


def test_a_slot_that_is_found_free_is_given_once():
    turns = contended(A, waiting=(B, C, Taker("d", "d")), slots=3)  # two are free
    assert given_to(turns) == ["b", "c"]
    turns.on_admit("cc", C, 1)

    assert turns.forbids("d") and not turns.forbids("b")


def test_one_caller_after_the_other_loses_the_slot_to_a_crowd_with_each_request():
    """b has received far less, but nobody of it waited while the engine had room."""
    turns = contended(A, waiting=(A, B), tenure_len=1000)
    turns.on_output("0", 500)
    look(turns, A)
    turns.on_admit("bb", B, 10)
    turns.begin_pass(1, {"bb": B})
    assert not turns.forbids("b")  # nor is anybody of a frozen out by more than what runs

    turns.add_waiting("next", B)
    look(turns)

    assert turns.forbids("b") and not turns.forbids("a")


def test_callers_that_overlap_do_not_keep_a_slot_of_which_they_use_little():
    """They have received next to nothing, in as many looks as end a turn."""
    turns = contended(B, waiting=(A,))
    for _ in range(IDLE_PASSES_PER_TENURE - 2):
        look(turns, B)
    assert not turns.forbids("b")

    for _ in range(4):
        look(turns, B)
    assert turns.forbids("b")


def test_beside_the_slot_that_is_kept_others_go_on():
    turns = contended(A, B, waiting=(A, B, C), slots=2)
    turns.on_output("0", 50)
    look(turns, A, B, slots=2)
    assert [turns.forbids(adapter) for adapter in "abcd"] == [True, False, False, True]


def test_who_need_not_give_way_after_all_goes_on():
    """Another adapter's last request ended first, and b has its slot."""
    turns = contended(A, C, waiting=(A, B), slots=2)
    turns.on_output("0", 50)
    look(turns, A, C, slots=2)
    assert turns.forbids("a")

    look(turns, A, slots=2)

    assert not turns.forbids("a") and not turns.forbids("b")


def test_an_engine_that_says_it_has_no_slots_is_no_error():
    assert not contended(A, slots=0).reserved


def test_with_a_free_slot_nobody_gives_way():
    turns = contended(A, slots=2)
    turns.on_output("0", 500)
    look(turns, A, slots=2)

    assert not turns.is_contended and turns.rotations == 0
    assert not any(turns.forbids(adapter) for adapter in "abc")


def test_the_one_that_received_most_gives_way_to_the_one_that_received_least():
    """Three run, all past a turn; of the two that wait d came with what the last one had, and e now."""
    d = Taker("d", "d")
    turns = contended(A, B, C, waiting=(d,), slots=3)
    for name, tokens in (("0", 60), ("1", 70), ("2", 55)):
        turns.on_output(name, tokens)
    look(turns, A, B, C, slots=3)

    assert given_to(turns) == ["d"]
    assert [turns.forbids(adapter) for adapter in "abcd"] == [False, True, False, False]


def test_who_comes_late_is_owed_nothing_from_before():
    """a and b have had their turns; c comes with what b had when it got its slot, not with nothing."""
    turns = contended(A, waiting=(A, B))
    turns.on_output("0", 75)
    turns.add_waiting("b2", B)
    look(turns, A)
    turns.on_admit("1", B, 150)
    turns.begin_pass(1, {"1": B})  # a's again, which had 150
    turns.add_waiting("c", C)
    turns.add_waiting("b3", B)
    turns.begin_pass(1, {"0": A})
    turns.on_output("0", 50)
    turns.begin_pass(1, {"0": A})

    assert turns.forbids("a") and given_to(turns) == ["b"]  # as much as c, and longer here


def test_an_aborted_request_is_waited_for_no_more():
    turns = contended(A, waiting=(B,))
    turns.on_output("0", 50)
    look(turns, A)
    assert turns.forbids("a")

    turns.add_waiting("c", C)
    turns.remove_waiting("bb")
    look(turns, A)
    assert given_to(turns) == ["c"] and turns.forbids("a") and turns.rotations == 1

    turns.remove_waiting("c")
    look(turns, A)
    assert not turns.reserved and not turns.forbids("a") and not turns.is_contended
    assert not turns._waiting and not turns._waiting_takers


def test_a_turn_is_longer_for_who_weighs_more():
    """Token by token, none of which is lost to rounding."""
    turns = contended(A, weights={"a": 3})
    turns.add_waiting("a", A)
    for _ in range(149):
        turns.on_output("0", 1)
    turns._tenure_end["a"] = turns._tenure  # whoever of it waits
    look(turns, A)
    assert not turns.reserved

    turns.on_output("0", 1)
    look(turns, A)
    assert turns.reserved[0] == B


def test_several_adapters_are_no_larger_share():
    """x has had b; its c has waited as long as anybody, but as a client x is ahead of a."""
    turns = contended(X_B, waiting=(X_C, A))
    turns.on_output("0", 50)
    look(turns, X_B)

    assert turns.reserved[0] == A


def test_a_clients_own_adapters_take_turns_too():
    turns = contended(X_B, waiting=(X_C,))
    turns.on_output("0", 50)
    look(turns, X_B)

    assert turns.reserved[0] == X_C


def test_without_turns_nobody_gives_way():
    turns = LoraSlotRotation(tenure_len=0)
    turns.add_waiting("b", B)
    turns.on_no_slot()

    assert not turns.is_contended and not turns._waiting


def test_once_nobody_waits_all_is_forgotten():
    turns = contended(A)
    turns.on_output("0", 10)
    turns.remove_waiting("bb")
    look(turns, A)

    assert not turns.is_contended and not turns.reserved
    assert not any(
        (turns._of_adapter, turns._of_client, turns._tenure_end, turns._assigned, turns._running)
    )
    assert not any(turns.forbids(adapter) for adapter in "abc")


def test_of_many_that_wait_a_few_are_compared_and_of_many_served_the_last_are_known():
    class Counted(dict):
        asked = 0

        def get(self, *args):
            Counted.asked += 1
            return super().get(*args)

    turns = contended(A, waiting=())
    for number in range(3000):
        turns.add_waiting(str(number), Taker(f"user {number}", "b"))
    turns.on_no_slot()
    look(turns, A)
    for number in range(3000):
        turns.on_admit(f"a{number}", Taker(f"other {number}", "a"), 1)
    assert len(turns._of_client) == CLIENTS_REMEMBERED
    turns._of_client = Counted(turns._of_client)

    look(turns, A)

    assert given_to(turns) == ["b"] and 0 < Counted.asked < 4 * CLIENTS_COMPARED

"""The LoRA slot rotation without an engine: which adapter loses its slot, when, and to which."""

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
    """Return a rotation after a request found no slot and one pass began; running requests are numbered."""
    rotation = LoraSlotRotation(tenure_len=tenure_len, weights=Weights(weights))
    for taker in waiting:
        rotation.add_waiting(taker.client + str(taker.adapter), taker)
    rotation.on_no_slot()
    begin_pass(rotation, *running, slots=slots)
    return rotation


def begin_pass(rotation: LoraSlotRotation, *running: Taker, slots=1) -> None:
    rotation.begin_pass(slots, {str(at): taker for at, taker in enumerate(running)})


def reserved_for(rotation: LoraSlotRotation) -> list[str | None]:
    """Return the adapters with a reserved slot."""
    return [taker.adapter for taker in rotation.reserved]


def test_while_no_request_waits_for_a_slot_nothing_is_counted():
    rotation = LoraSlotRotation(tenure_len=100)

    rotation.add_waiting("0", A)
    rotation.on_admit("0", A, 1000)
    rotation.on_output("0", 1000)

    assert not rotation.is_contended
    assert not any(
        (
            rotation._of_adapter,
            rotation._of_client,
            rotation._waiting,
            rotation._waiting_takers,
            rotation._assigned,
        )
    )
    assert not any(rotation.forbids(adapter) for adapter in "abc")


def test_after_a_turn_an_adapter_gives_way():
    """At 99 tokens not yet; at 100 adapter a takes no request in, b does, and c would take b's slot."""
    rotation = contended(A, waiting=(A, B))
    rotation.on_output("0", 49)  # an output is 2
    begin_pass(rotation, A)
    assert [rotation.forbids(adapter) for adapter in "abc"] == [False, True, True]

    rotation.on_output("0", 1)
    begin_pass(rotation, A)

    assert reserved_for(rotation) == ["b"] and rotation.rotations == 1
    assert [rotation.forbids(adapter) for adapter in "abc"] == [True, False, True]


def test_a_turn_is_the_adapters_whichever_of_its_users_it_is_for():
    """Clients of adapter a send one request each, so none of them receives a whole tenure."""
    rotation = contended(waiting=(B,), slots=1)
    rotation.remove_waiting("bb")  # the slot is a's before b comes
    begin_pass(rotation)
    rotation.add_waiting("late", B)
    rotation.on_no_slot()
    for number in range(10):
        name, taker = f"user {number}", Taker(f"user {number}", "a")
        rotation.begin_pass(1, {name: taker})
        assert not rotation.forbids("a")
        rotation.on_output(name, 5)
    rotation.begin_pass(1, {"user 9": Taker("user 9", "a")})

    assert rotation.forbids("a") and not rotation.forbids("b")


def test_a_client_new_to_an_adapter_has_no_credit_for_what_its_others_received():
    """Another user of a waits for longer than c, which has had nothing."""
    rotation = contended(Taker("user 1", "a"), waiting=(Taker("user 2", "a"), B, C))
    rotation.on_output("0", 50)
    begin_pass(rotation, Taker("user 1", "a"))
    rotation.on_admit("bb", B, 100)
    rotation.begin_pass(1, {"bb": B})

    assert rotation.forbids("b") and reserved_for(rotation) == ["c"]


def test_a_slot_is_kept_through_a_turn_for_who_waits():
    """An adapter without a running request for a moment, for want of credit say, keeps its slot."""
    rotation = contended(A, waiting=(A, B))
    rotation.on_output("0", 50)
    rotation.add_waiting("b2", B)
    begin_pass(rotation, A)
    rotation.on_admit("1", B, 99)
    begin_pass(rotation)
    begin_pass(rotation)
    assert [rotation.forbids(adapter) for adapter in "ab"] == [True, False]

    rotation.on_admit("2", B, 1)
    begin_pass(rotation)
    assert [rotation.forbids(adapter) for adapter in "ab"] == [False, True]


def test_a_turn_goes_on_until_who_received_less_has_caught_up():
    """Requests running when a was drained took 60 tokens more."""
    rotation = contended(A, waiting=(A, B))
    rotation.on_output("0", 50)
    rotation.add_waiting("b2", B)
    begin_pass(rotation, A)
    rotation.on_output("0", 30)
    rotation.on_admit("1", B, 159)
    rotation.begin_pass(1, {"1": B})
    assert not rotation.forbids("b")

    rotation.on_output("1", 10)
    rotation.begin_pass(1, {"1": B})
    assert rotation.forbids("b") and not rotation.forbids("a")


def test_two_slots_that_are_empty_at_once_are_not_both_taken_by_others():
    """a and c end in the same step, as b's turn comes; a is offered to the engine before b."""
    rotation = contended(A, C, waiting=(A, B, C), slots=2)
    rotation.on_output("0", 50)
    begin_pass(rotation, A, C, slots=2)
    assert reserved_for(rotation) == ["b"]

    begin_pass(rotation, slots=2)

    assert [rotation.forbids(adapter) for adapter in "abc"] == [True, False, False]
    rotation.on_admit("2", C, 1)
    assert [rotation.forbids(adapter) for adapter in "abc"] == [True, False, False]


def test_a_slot_that_is_found_free_is_given_once():
    rotation = contended(A, waiting=(B, C, Taker("d", "d")), slots=3)  # two are free
    assert reserved_for(rotation) == ["b", "c"]
    rotation.on_admit("cc", C, 1)

    assert rotation.forbids("d") and not rotation.forbids("b")


def test_one_caller_after_the_other_loses_the_slot_to_a_crowd_with_each_request():
    """b has received far less, but no request of it waited while the engine had room."""
    rotation = contended(A, waiting=(A, B), tenure_len=1000)
    rotation.on_output("0", 500)
    begin_pass(rotation, A)
    rotation.on_admit("bb", B, 10)
    rotation.begin_pass(1, {"bb": B})
    assert not rotation.forbids("b")  # nor is anybody of a frozen out by more than what runs

    rotation.add_waiting("next", B)
    begin_pass(rotation)

    assert rotation.forbids("b") and not rotation.forbids("a")


def test_callers_that_overlap_do_not_keep_a_slot_of_which_they_use_little():
    """The adapters received next to nothing, in as many passes as end a tenure."""
    rotation = contended(B, waiting=(A,))
    for _ in range(IDLE_PASSES_PER_TENURE - 2):
        begin_pass(rotation, B)
    assert not rotation.forbids("b")

    for _ in range(4):
        begin_pass(rotation, B)
    assert rotation.forbids("b")


def test_beside_the_slot_that_is_kept_others_go_on():
    rotation = contended(A, B, waiting=(A, B, C), slots=2)
    rotation.on_output("0", 50)
    begin_pass(rotation, A, B, slots=2)
    assert [rotation.forbids(adapter) for adapter in "abcd"] == [True, False, False, True]


def test_who_need_not_give_way_after_all_goes_on():
    """Another adapter's last request ended first, and b has its slot."""
    rotation = contended(A, C, waiting=(A, B), slots=2)
    rotation.on_output("0", 50)
    begin_pass(rotation, A, C, slots=2)
    assert rotation.forbids("a")

    begin_pass(rotation, A, slots=2)

    assert not rotation.forbids("a") and not rotation.forbids("b")


def test_an_engine_that_says_it_has_no_slots_is_no_error():
    assert not contended(A, slots=0).reserved


def test_with_a_free_slot_no_adapter_gives_way():
    rotation = contended(A, slots=2)
    rotation.on_output("0", 500)
    begin_pass(rotation, A, slots=2)

    assert not rotation.is_contended and rotation.rotations == 0
    assert not any(rotation.forbids(adapter) for adapter in "abc")


def test_the_one_that_received_most_gives_way_to_the_one_that_received_least():
    """Three run, all past a turn; of the two that wait d came with what the last one had, and e now."""
    d = Taker("d", "d")
    rotation = contended(A, B, C, waiting=(d,), slots=3)
    for name, tokens in (("0", 60), ("1", 70), ("2", 55)):
        rotation.on_output(name, tokens)
    begin_pass(rotation, A, B, C, slots=3)

    assert reserved_for(rotation) == ["d"]
    assert [rotation.forbids(adapter) for adapter in "abcd"] == [False, True, False, False]


def test_a_late_arrival_has_no_credit_from_before():
    """a and b have had their turns; c comes with what b had when it got its slot, not with nothing."""
    rotation = contended(A, waiting=(A, B))
    rotation.on_output("0", 75)
    rotation.add_waiting("b2", B)
    begin_pass(rotation, A)
    rotation.on_admit("1", B, 150)
    rotation.begin_pass(1, {"1": B})  # a's again, which had 150
    rotation.add_waiting("c", C)
    rotation.add_waiting("b3", B)
    rotation.begin_pass(1, {"0": A})
    rotation.on_output("0", 50)
    rotation.begin_pass(1, {"0": A})

    assert rotation.forbids("a") and reserved_for(rotation) == [
        "b"
    ]  # as much as c, and longer here


def test_an_aborted_request_is_waited_for_no_more():
    rotation = contended(A, waiting=(B,))
    rotation.on_output("0", 50)
    begin_pass(rotation, A)
    assert rotation.forbids("a")

    rotation.add_waiting("c", C)
    rotation.remove_waiting("bb")
    begin_pass(rotation, A)
    assert reserved_for(rotation) == ["c"] and rotation.forbids("a") and rotation.rotations == 1

    rotation.remove_waiting("c")
    begin_pass(rotation, A)
    assert not rotation.reserved and not rotation.forbids("a") and not rotation.is_contended
    assert not rotation._waiting and not rotation._waiting_takers


def test_a_turn_is_longer_for_who_weighs_more():
    """Token by token, none of which is lost to rounding."""
    rotation = contended(A, weights={"a": 3})
    rotation.add_waiting("a", A)
    for _ in range(149):
        rotation.on_output("0", 1)
    rotation._tenure_end["a"] = rotation._tenure  # of its waiting requests
    begin_pass(rotation, A)
    assert not rotation.reserved

    rotation.on_output("0", 1)
    begin_pass(rotation, A)
    assert rotation.reserved[0] == B


def test_several_adapters_are_no_larger_share():
    """x has had b; its c has waited as long as anybody, but as a client x is ahead of a."""
    rotation = contended(X_B, waiting=(X_C, A))
    rotation.on_output("0", 50)
    begin_pass(rotation, X_B)

    assert rotation.reserved[0] == A


def test_a_clients_own_adapters_take_turns_too():
    rotation = contended(X_B, waiting=(X_C,))
    rotation.on_output("0", 50)
    begin_pass(rotation, X_B)

    assert rotation.reserved[0] == X_C


def test_without_turns_no_adapter_gives_way():
    rotation = LoraSlotRotation(tenure_len=0)
    rotation.add_waiting("b", B)
    rotation.on_no_slot()

    assert not rotation.is_contended and not rotation._waiting


def test_once_no_request_waits_all_is_forgotten():
    rotation = contended(A)
    rotation.on_output("0", 10)
    rotation.remove_waiting("bb")
    begin_pass(rotation, A)

    assert not rotation.is_contended and not rotation.reserved
    assert not any(
        (
            rotation._of_adapter,
            rotation._of_client,
            rotation._tenure_end,
            rotation._assigned,
            rotation._running,
        )
    )
    assert not any(rotation.forbids(adapter) for adapter in "abc")


def test_of_many_that_wait_a_few_are_compared_and_of_many_served_the_last_are_known():
    class Counted(dict):
        asked = 0

        def get(self, *args):
            Counted.asked += 1
            return super().get(*args)

    rotation = contended(A, waiting=())
    for number in range(3000):
        rotation.add_waiting(str(number), Taker(f"user {number}", "b"))
    rotation.on_no_slot()
    begin_pass(rotation, A)
    for number in range(3000):
        rotation.on_admit(f"a{number}", Taker(f"other {number}", "a"), 1)
    assert len(rotation._of_client) == CLIENTS_REMEMBERED
    rotation._of_client = Counted(rotation._of_client)

    begin_pass(rotation, A)

    assert reserved_for(rotation) == ["b"] and 0 < Counted.asked < 4 * CLIENTS_COMPARED

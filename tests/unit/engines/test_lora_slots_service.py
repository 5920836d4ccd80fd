"""
The service that the LoRA slot rotation compares: what counts, whose tenure is extended, what is remembered.
"""

from tests.unit.engines.test_lora_slots import (
    X_B,
    X_C,
    A,
    B,
    C,
    begin_pass,
    contended,
    reserved_for,
)

from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.engines.lora_slots import (
    CLIENTS_REMEMBERED,
    IDLE_PASSES_PER_TENURE,
    LoraSlotRotation,
    Taker,
)

D, E = Taker("d", "d"), Taker("e", "e")


def had(rotation: LoraSlotRotation, adapters=(), clients=()) -> None:
    """Set the service that adapters and clients received before."""
    rotation._of_adapter |= {
        name: tokens * UNITS_PER_TOKEN for name, tokens in dict(adapters).items()
    }
    rotation._of_client |= {
        name: tokens * UNITS_PER_TOKEN for name, tokens in dict(clients).items()
    }


# -- a turn ---------------------------------------------------------------------------------------


def test_a_turn_goes_on_where_it_was_left():
    """a left its slot with 60 of 100 used. Back it has 40, not 100: else pauses make an endless turn."""
    rotation = contended(A, waiting=(B, C))
    rotation.on_output("0", 30)
    begin_pass(rotation)
    rotation.on_admit("bb", B, 80)
    rotation.add_waiting("a2", A)
    rotation.begin_pass(1, {"bb": B})
    begin_pass(rotation)
    rotation.on_admit("cc", C, 90)
    rotation.add_waiting("b2", B)
    rotation.begin_pass(1, {"cc": C})
    rotation.add_waiting("c2", C)
    begin_pass(rotation)
    assert not rotation.forbids("a")

    rotation.on_admit("a2", A, 1)
    rotation.add_waiting("a3", A)
    rotation.begin_pass(1, {"a2": A})
    assert not rotation.forbids("a")
    rotation.on_output("a2", 20)
    rotation.begin_pass(1, {"a2": A})
    assert rotation.forbids("a")


def test_who_leaves_seats_empty_gives_way_though_it_has_less():
    rotation = contended(B, waiting=(A,))
    had(rotation, {"a": 50}, {"a": 50})
    for _ in range(IDLE_PASSES_PER_TENURE + 4):
        begin_pass(rotation, B)

    assert rotation.forbids("b")


def test_a_slot_once_not_asked_for_is_not_kept_again():
    """A request of b waits again by the next pass; none waited at the pass before."""
    rotation = contended(A, waiting=(A, B), tenure_len=1000)
    rotation.on_output("0", 500)
    begin_pass(rotation, A)
    rotation.on_admit("bb", B, 10)
    rotation.begin_pass(1, {"bb": B})
    rotation.add_waiting("next", B)
    rotation.begin_pass(1, {"bb": B})
    begin_pass(rotation)

    assert rotation.forbids("b") and not rotation.forbids("a")


def test_with_fewer_slots_another_gives_way():
    rotation = contended(A, B, C, waiting=(A, B, C, D), slots=3)
    for name, outputs in (("0", 60), ("1", 55), ("2", 52)):
        rotation.on_output(name, outputs)
    begin_pass(rotation, A, B, C, slots=3)
    assert [rotation.forbids(adapter) for adapter in "abcd"] == [True, False, False, False]

    rotation.begin_pass(2, {"1": B, "2": C})
    assert rotation.forbids("b") and not rotation.forbids("c") and reserved_for(rotation) == ["d"]


def test_as_many_give_way_as_wait_without_a_slot():
    """Of three whose turn is over the two that received most; the third goes on: no adapter is left."""
    rotation = contended(A, B, C, waiting=(A, B, C, D, E), slots=3)
    for name, outputs in (("0", 52), ("1", 60), ("2", 55)):
        rotation.on_output(name, outputs)
    begin_pass(rotation, A, B, C, slots=3)

    assert reserved_for(rotation) == ["d", "e"] and rotation.rotations == 2
    assert [rotation.forbids(adapter) for adapter in "abcdef"] == [
        False,
        True,
        True,
        False,
        False,
        True,
    ]


def test_who_gives_way_later_does_not_wait_for_who_does_already():
    """b gives way while a's last requests still run."""
    rotation = contended(A, B, waiting=(A, B, D, E), slots=2)
    rotation.on_output("0", 50)
    begin_pass(rotation, A, B, slots=2)
    assert [rotation.forbids(adapter) for adapter in "ab"] == [True, False]

    rotation.on_output("1", 50)
    begin_pass(rotation, A, B, slots=2)
    assert [rotation.forbids(adapter) for adapter in "ab"] == [True, True]
    assert reserved_for(rotation) == ["d", "e"] and rotation.rotations == 2


def test_an_adapter_gives_way_to_one():
    """However often the engine looks while a's last request runs, its slot is d's; e waits."""
    rotation = contended(A, waiting=(A, D, E))
    rotation.on_output("0", 50)
    for _ in range(3):
        begin_pass(rotation, A)

    assert reserved_for(rotation) == ["d"] and rotation.forbids("e") and rotation.rotations == 1


def test_once_fewer_wait_fewer_give_way():
    """The less served of two adapters keeps its slot."""
    rotation = contended(A, B, waiting=(A, B, D, E), slots=2)
    rotation.on_output("0", 50)
    rotation.on_output("1", 60)
    begin_pass(rotation, A, B, slots=2)
    assert rotation.forbids("a") and rotation.forbids("b")

    rotation.remove_waiting("ee")
    begin_pass(rotation, A, B, slots=2)
    assert [rotation.forbids(adapter) for adapter in "ab"] == [False, True]
    assert reserved_for(rotation) == ["d"] and rotation.rotations == 2


# -- who gives way, and to whom -------------------------------------------------------------------


def test_a_client_of_several_adapters_gives_way_first():
    """By its adapters alone a has received more: 150 to 100. x has had 200 through another one."""
    rotation = contended(X_B, A, waiting=(D,), slots=2)
    rotation.on_output("0", 50)
    rotation.on_output("1", 75)
    had(rotation, clients={"x": 300})
    begin_pass(rotation, X_B, A, slots=2)

    assert rotation.forbids("b") and not rotation.forbids("a")


def test_an_adapter_of_which_one_user_is_rich_does_not_give_way_for_him():
    """His other runs there, too, and had nothing elsewhere: 100 through a, less than what b received."""
    x_a, y_a = Taker("x", "a"), Taker("y", "a")
    rotation = contended(x_a, y_a, B, waiting=(D,), slots=2)
    rotation.on_output("1", 50)
    rotation.on_output("2", 75)
    had(rotation, clients={"x": 300})
    begin_pass(rotation, x_a, y_a, B, slots=2)

    assert rotation.forbids("b") and not rotation.forbids("a")


def test_of_an_adapter_that_runs_no_request_those_that_wait_are_its_users():
    rotation = contended(A, X_B, waiting=(A, X_B, D), slots=2)
    rotation.on_output("0", 75)
    rotation.on_output("1", 60)
    had(rotation, clients={"x": 300})
    begin_pass(rotation, A, slots=2)

    assert rotation.forbids("b") and not rotation.forbids("a")


def test_who_had_enough_elsewhere_waits_until_the_others_have_caught_up():
    """x's c has had nothing, but x has: 300 through b."""
    rotation = contended(A, waiting=(A, X_C))
    had(rotation, clients={"x": 300})
    rotation.on_output("0", 60)
    begin_pass(rotation, A)
    assert not rotation.forbids("a")

    rotation.on_output("0", 90)
    begin_pass(rotation, A)
    assert rotation.forbids("a") and rotation.reserved[0] == X_C


def test_an_adapter_of_many_users_is_not_poor():
    """Ten users of a had ten tokens each; that a's next has had nothing is no reason to wait for it."""
    rotation = contended(Taker("user 0", "a"), waiting=(Taker("user 9", "a"), B))
    had(rotation, clients={"b": 50})
    for number in range(10):
        name, taker = f"user {number}", Taker(f"user {number}", "a")
        rotation.begin_pass(1, {name: taker})
        rotation.on_output(name, 5)
    rotation.begin_pass(1, {"user 9": Taker("user 9", "a")})

    assert rotation.forbids("a")


def test_of_an_adapters_users_the_poorest_speaks():
    """y, who came first, has had 90 and z nothing: z's adapter has had less than c."""
    rotation = contended(D, waiting=(D, Taker("y", "b"), Taker("z", "b"), C))
    had(rotation, clients={"y": 90, "c": 50})
    rotation.on_output("0", 50)
    begin_pass(rotation, D)

    assert rotation.reserved and rotation.reserved[0].adapter == "b"


def test_of_a_clients_adapters_the_less_used_comes_first():
    rotation = contended(D, waiting=(D, X_B, X_C))
    had(rotation, {"b": 100}, {"x": 100})
    rotation.on_output("0", 75)
    begin_pass(rotation, D)

    assert rotation.reserved[0] == X_C


# -- from where they count ------------------------------------------------------------------------


def test_who_is_new_has_had_what_the_last_one_had_that_got_a_slot():
    """150: b, as it gave way. So a new user of a has, and an adapter that finds a free slot."""
    rotation = contended(A, waiting=(A, B))
    rotation._baseline = 150 * UNITS_PER_TOKEN
    rotation.on_admit("new user", Taker("new", "a"), 10)
    rotation.on_admit("new adapter", C, 20)

    assert rotation._of_client["new"] == 160 * UNITS_PER_TOKEN
    assert rotation._of_adapter["c"] == rotation._of_client["c"] == 170 * UNITS_PER_TOKEN


def test_the_level_never_falls():
    """b, which gets the slot that c left, has had 10: that is no measure for who comes new, c had 150."""
    rotation = contended(A, C, waiting=(A, B, E), slots=2)
    rotation._baseline = 150 * UNITS_PER_TOKEN
    had(rotation, {"b": 10}, {"b": 10})
    begin_pass(rotation, A, slots=2)

    assert reserved_for(rotation) == ["b"] and rotation._baseline == 150 * UNITS_PER_TOKEN


# -- what is remembered ---------------------------------------------------------------------------


def test_who_is_forgotten_begins_a_turn_anew():
    """a left 40 before its turn was over; c got a slot with 80. Back with 80, a has a whole turn."""
    rotation = contended(A, waiting=(B, C))
    rotation.on_output("0", 30)
    begin_pass(rotation)
    had(rotation, {"c": 80}, {"c": 80})
    rotation.on_admit("bb", B, 100)
    rotation.begin_pass(1, {"bb": B})
    assert reserved_for(rotation) == ["c"]
    assert rotation._tenure_end.keys() == rotation._of_adapter.keys() == {"b", "c"}

    rotation.add_waiting("a2", A)
    begin_pass(rotation)
    rotation.remove_waiting("cc")
    begin_pass(rotation)
    rotation.add_waiting("b2", B)
    rotation.on_admit("a2", A, 30)
    rotation.begin_pass(1, {"a2": A})

    assert not rotation.forbids("a")


def test_who_runs_waits_no_more_and_who_ran_is_not_remembered():
    rotation = contended(A, waiting=(B, C))
    rotation.add_waiting("0", A)
    begin_pass(rotation, A)
    assert "a" not in rotation._waiting and set(rotation._running) == {"0"}

    rotation.begin_pass(1, {"9": A})
    assert set(rotation._running) == {"9"}


def test_the_last_served_are_remembered():
    rotation = contended(A, waiting=(A, B))
    rotation.on_admit("first", Taker("first", "a"), 1)
    for number in range(CLIENTS_REMEMBERED - 1):
        rotation.on_admit(str(number), Taker(str(number), "a"), 1)
    rotation.on_admit("again", Taker("first", "a"), 1)
    rotation.on_admit("new", Taker("new", "a"), 1)

    assert "first" in rotation._of_client and "0" not in rotation._of_client


def test_a_request_that_waits_for_another_adapter_now_waits_for_one():
    rotation = LoraSlotRotation(tenure_len=100)
    rotation.add_waiting("0", X_B)
    rotation.add_waiting("0", X_C)
    assert rotation._waiting.keys() == {"c"}

    rotation.remove_waiting("0")
    assert not rotation._waiting and not rotation._waiting_takers


def test_who_gave_way_before_all_found_a_slot_is_free_when_slots_are_few_again():
    rotation = contended(A, waiting=(A, B))
    rotation.on_output("0", 50)
    begin_pass(rotation, A)
    assert rotation.forbids("a")
    rotation.remove_waiting("bb")
    begin_pass(rotation, A)

    rotation.add_waiting("late", B)
    rotation.on_no_slot()
    rotation.on_admit("1", A, 1)

    assert not rotation.forbids("a")

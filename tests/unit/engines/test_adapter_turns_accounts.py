"""What turns at LoRA slots go by: who received what, whose turn goes on, what is remembered of whom."""

from tests.unit.engines.test_adapter_turns import X_B, X_C, A, B, C, contended, given_to, look

from fairhit.core.service import UNITS_PER_TOKEN
from fairhit.engines.lora_slots import (
    CLIENTS_REMEMBERED,
    IDLE_PASSES_PER_TENURE,
    LoraSlotRotation,
    Taker,
)

D, E = Taker("d", "d"), Taker("e", "e")


def had(turns: LoraSlotRotation, adapters=(), clients=()) -> None:
    """They received so many tokens before, without the requests that it took."""
    turns._of_adapter |= {name: tokens * UNITS_PER_TOKEN for name, tokens in dict(adapters).items()}
    turns._of_client |= {name: tokens * UNITS_PER_TOKEN for name, tokens in dict(clients).items()}


# -- a turn ---------------------------------------------------------------------------------------


def test_a_turn_goes_on_where_it_was_left():
    """a left its slot with 60 of 100 used. Back it has 40, not 100: else pauses make an endless turn."""
    turns = contended(A, waiting=(B, C))
    turns.on_output("0", 30)
    look(turns)
    turns.on_admit("bb", B, 80)
    turns.add_waiting("a2", A)
    turns.begin_pass(1, {"bb": B})
    look(turns)
    turns.on_admit("cc", C, 90)
    turns.add_waiting("b2", B)
    turns.begin_pass(1, {"cc": C})
    turns.add_waiting("c2", C)
    look(turns)
    assert not turns.forbids("a")

    turns.on_admit("a2", A, 1)
    turns.add_waiting("a3", A)
    turns.begin_pass(1, {"a2": A})
    assert not turns.forbids("a")
    turns.on_output("a2", 20)
    turns.begin_pass(1, {"a2": A})
    assert turns.forbids("a")


def test_who_leaves_seats_empty_gives_way_though_it_has_less():
    turns = contended(B, waiting=(A,))
    had(turns, {"a": 50}, {"a": 50})
    for _ in range(IDLE_PASSES_PER_TENURE + 4):
        look(turns, B)

    assert turns.forbids("b")


def test_a_slot_once_not_asked_for_is_not_kept_again():
    """Somebody of b waits again by the next look; the look before nobody did."""
    turns = contended(A, waiting=(A, B), tenure_len=1000)
    turns.on_output("0", 500)
    look(turns, A)
    turns.on_admit("bb", B, 10)
    turns.begin_pass(1, {"bb": B})
    turns.add_waiting("next", B)
    turns.begin_pass(1, {"bb": B})
    look(turns)

    assert turns.forbids("b") and not turns.forbids("a")


def test_with_fewer_slots_another_gives_way():
    turns = contended(A, B, C, waiting=(A, B, C, D), slots=3)
    for name, outputs in (("0", 60), ("1", 55), ("2", 52)):
        turns.on_output(name, outputs)
    look(turns, A, B, C, slots=3)
    assert [turns.forbids(adapter) for adapter in "abcd"] == [True, False, False, False]

    turns.begin_pass(2, {"1": B, "2": C})
    assert turns.forbids("b") and not turns.forbids("c") and given_to(turns) == ["d"]


def test_as_many_give_way_as_wait_without_a_slot():
    """Of three whose turn is over the two that received most; the third goes on: nobody is left."""
    turns = contended(A, B, C, waiting=(A, B, C, D, E), slots=3)
    for name, outputs in (("0", 52), ("1", 60), ("2", 55)):
        turns.on_output(name, outputs)
    look(turns, A, B, C, slots=3)

    assert given_to(turns) == ["d", "e"] and turns.rotations == 2
    assert [turns.forbids(adapter) for adapter in "abcdef"] == [
        False,
        True,
        True,
        False,
        False,
        True,
    ]


def test_who_gives_way_later_does_not_wait_for_who_does_already():
    """b gives way while a's last requests still run."""
    turns = contended(A, B, waiting=(A, B, D, E), slots=2)
    turns.on_output("0", 50)
    look(turns, A, B, slots=2)
    assert [turns.forbids(adapter) for adapter in "ab"] == [True, False]

    turns.on_output("1", 50)
    look(turns, A, B, slots=2)
    assert [turns.forbids(adapter) for adapter in "ab"] == [True, True]
    assert given_to(turns) == ["d", "e"] and turns.rotations == 2


def test_an_adapter_gives_way_to_one():
    """However often the engine looks while a's last request runs, its slot is d's; e waits."""
    turns = contended(A, waiting=(A, D, E))
    turns.on_output("0", 50)
    for _ in range(3):
        look(turns, A)

    assert given_to(turns) == ["d"] and turns.forbids("e") and turns.rotations == 1


def test_once_fewer_wait_fewer_give_way():
    """Who received less of the two goes on."""
    turns = contended(A, B, waiting=(A, B, D, E), slots=2)
    turns.on_output("0", 50)
    turns.on_output("1", 60)
    look(turns, A, B, slots=2)
    assert turns.forbids("a") and turns.forbids("b")

    turns.remove_waiting("ee")
    look(turns, A, B, slots=2)
    assert [turns.forbids(adapter) for adapter in "ab"] == [False, True]
    assert given_to(turns) == ["d"] and turns.rotations == 2


# -- who gives way, and to whom -------------------------------------------------------------------


def test_a_client_of_several_adapters_gives_way_first():
    """By its adapters alone a has received more: 150 to 100. x has had 200 through another one."""
    turns = contended(X_B, A, waiting=(D,), slots=2)
    turns.on_output("0", 50)
    turns.on_output("1", 75)
    had(turns, clients={"x": 300})
    look(turns, X_B, A, slots=2)

    assert turns.forbids("b") and not turns.forbids("a")


def test_an_adapter_of_which_one_user_is_rich_does_not_give_way_for_him():
    """His other runs there, too, and had nothing elsewhere: 100 through a, less than what b received."""
    x_a, y_a = Taker("x", "a"), Taker("y", "a")
    turns = contended(x_a, y_a, B, waiting=(D,), slots=2)
    turns.on_output("1", 50)
    turns.on_output("2", 75)
    had(turns, clients={"x": 300})
    look(turns, x_a, y_a, B, slots=2)

    assert turns.forbids("b") and not turns.forbids("a")


def test_of_an_adapter_that_runs_nobody_those_that_wait_are_its_users():
    turns = contended(A, X_B, waiting=(A, X_B, D), slots=2)
    turns.on_output("0", 75)
    turns.on_output("1", 60)
    had(turns, clients={"x": 300})
    look(turns, A, slots=2)

    assert turns.forbids("b") and not turns.forbids("a")


def test_who_had_enough_elsewhere_waits_until_the_others_have_caught_up():
    """x's c has had nothing, but x has: 300 through b."""
    turns = contended(A, waiting=(A, X_C))
    had(turns, clients={"x": 300})
    turns.on_output("0", 60)
    look(turns, A)
    assert not turns.forbids("a")

    turns.on_output("0", 90)
    look(turns, A)
    assert turns.forbids("a") and turns.reserved[0] == X_C


def test_an_adapter_of_many_users_is_not_poor():
    """Ten users of a had ten tokens each; that a's next has had nothing is no reason to wait for it."""
    turns = contended(Taker("user 0", "a"), waiting=(Taker("user 9", "a"), B))
    had(turns, clients={"b": 50})
    for number in range(10):
        name, taker = f"user {number}", Taker(f"user {number}", "a")
        turns.begin_pass(1, {name: taker})
        turns.on_output(name, 5)
    turns.begin_pass(1, {"user 9": Taker("user 9", "a")})

    assert turns.forbids("a")


def test_of_an_adapters_users_the_poorest_speaks():
    """y, who came first, has had 90 and z nothing: z's adapter has had less than c."""
    turns = contended(D, waiting=(D, Taker("y", "b"), Taker("z", "b"), C))
    had(turns, clients={"y": 90, "c": 50})
    turns.on_output("0", 50)
    look(turns, D)

    assert turns.reserved and turns.reserved[0].adapter == "b"


def test_of_a_clients_adapters_the_less_used_comes_first():
    turns = contended(D, waiting=(D, X_B, X_C))
    had(turns, {"b": 100}, {"x": 100})
    turns.on_output("0", 75)
    look(turns, D)

    assert turns.reserved[0] == X_C


# -- from where they count ------------------------------------------------------------------------


def test_who_is_new_has_had_what_the_last_one_had_that_got_a_slot():
    """150: b, as it gave way. So a new user of a has, and an adapter that finds a free slot."""
    turns = contended(A, waiting=(A, B))
    turns._baseline = 150 * UNITS_PER_TOKEN
    turns.on_admit("new user", Taker("new", "a"), 10)
    turns.on_admit("new adapter", C, 20)

    assert turns._of_client["new"] == 160 * UNITS_PER_TOKEN
    assert turns._of_adapter["c"] == turns._of_client["c"] == 170 * UNITS_PER_TOKEN


def test_the_level_never_falls():
    """b, which gets the slot that c left, has had 10: that is no measure for who comes new, c had 150."""
    turns = contended(A, C, waiting=(A, B, E), slots=2)
    turns._baseline = 150 * UNITS_PER_TOKEN
    had(turns, {"b": 10}, {"b": 10})
    look(turns, A, slots=2)

    assert given_to(turns) == ["b"] and turns._baseline == 150 * UNITS_PER_TOKEN


# -- what is remembered ---------------------------------------------------------------------------


def test_who_is_forgotten_begins_a_turn_anew():
    """a left 40 before its turn was over; c got a slot with 80. Back with 80, a has a whole turn."""
    turns = contended(A, waiting=(B, C))
    turns.on_output("0", 30)
    look(turns)
    had(turns, {"c": 80}, {"c": 80})
    turns.on_admit("bb", B, 100)
    turns.begin_pass(1, {"bb": B})
    assert given_to(turns) == ["c"]
    assert turns._tenure_end.keys() == turns._of_adapter.keys() == {"b", "c"}

    turns.add_waiting("a2", A)
    look(turns)
    turns.remove_waiting("cc")
    look(turns)
    turns.add_waiting("b2", B)
    turns.on_admit("a2", A, 30)
    turns.begin_pass(1, {"a2": A})

    assert not turns.forbids("a")


def test_who_runs_waits_no_more_and_who_ran_is_not_remembered():
    turns = contended(A, waiting=(B, C))
    turns.add_waiting("0", A)
    look(turns, A)
    assert "a" not in turns._waiting and set(turns._running) == {"0"}

    turns.begin_pass(1, {"9": A})
    assert set(turns._running) == {"9"}


def test_the_last_served_are_remembered():
    turns = contended(A, waiting=(A, B))
    turns.on_admit("first", Taker("first", "a"), 1)
    for number in range(CLIENTS_REMEMBERED - 1):
        turns.on_admit(str(number), Taker(str(number), "a"), 1)
    turns.on_admit("again", Taker("first", "a"), 1)
    turns.on_admit("new", Taker("new", "a"), 1)

    assert "first" in turns._of_client and "0" not in turns._of_client


def test_a_request_that_waits_for_another_adapter_now_waits_for_one():
    turns = LoraSlotRotation(tenure_len=100)
    turns.add_waiting("0", X_B)
    turns.add_waiting("0", X_C)
    assert turns._waiting.keys() == {"c"}

    turns.remove_waiting("0")
    assert not turns._waiting and not turns._waiting_takers


def test_who_gave_way_before_all_found_a_slot_is_free_when_slots_are_few_again():
    turns = contended(A, waiting=(A, B))
    turns.on_output("0", 50)
    look(turns, A)
    assert turns.forbids("a")
    turns.remove_waiting("bb")
    look(turns, A)

    turns.add_waiting("late", B)
    turns.on_no_slot()
    turns.on_admit("1", A, 1)

    assert not turns.forbids("a")

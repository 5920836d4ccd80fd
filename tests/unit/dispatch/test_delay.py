"""Delay scheduling: which tickets are held for the engine that has their prompt cached, and how long."""

import pytest
from tests.properties.engines import STEP_US, TEXT, World

from fairhit.dispatch import MAX_HOLD_US, QueueRules, Ticket, TicketState
from fairhit.routers.d2lpm import D2LPM

LONG = 2 * TEXT  # bytes of a prompt, half of it shared by those of a topic
MATCHED = 384  # tokens in the whole chunks of that half
HELD, OTHER = "w0", "w1"
CLIENT = "d"  # idle engines are taken in the rotation of its name: w0 first


def world_of(slots: tuple[int, ...] = (1, 1), text_len: int = LONG, **rules: object) -> World:
    """Engines that run one request, and may have one in flight."""
    given = {"max_engine_requests": 1, **rules}
    return World(*slots, rules=QueueRules(**given), streams=True, text_len=text_len)  # type: ignore[arg-type]


def ask(world: World, client: str = CLIENT, topic: int = 7, output_len: int = 30) -> Ticket:
    return world.ask(client, output_len=output_len, topic=topic)


def busy_holder(world: World, output_len: int = 30) -> Ticket:
    """A request of topic 7 that runs in `w0`, which has its prompt cached from then on."""
    first = ask(world, output_len=output_len)
    assert first.worker == HELD
    world.step(HELD)
    return first


def steps(world: World, name: str, count: int) -> None:
    for _ in range(count):
        world.step(name)
        world.check()


def test_a_request_is_held_for_the_busy_engine_that_has_its_prompt() -> None:
    """The other engine is idle, and takes a request of another topic meanwhile."""
    world = world_of()
    busy_holder(world)
    held, cold = ask(world), ask(world, topic=8)

    assert (held.worker, held.held) == ("", HELD)
    assert cold.worker == OTHER
    steps(world, HELD, 29)
    assert (held.worker, held.matched_len) == (HELD, MATCHED)


def test_when_the_hold_is_over_the_idle_engine_takes_it() -> None:
    """Half a millisecond for each token that the other engine holds."""
    world = world_of()
    busy_holder(world, output_len=100)
    held = ask(world)
    ((at, _),) = world.held
    steps(world, HELD, at - world.steps - 1)
    assert not held.worker

    steps(world, HELD, 1)
    assert (held.worker, held.held) == (OTHER, "")
    assert at == 1 + MATCHED * 500 // STEP_US


def test_a_hold_has_a_longest_time() -> None:
    waits: list[int] = []
    for longest_us in (30_000, MAX_HOLD_US):
        world = world_of(max_hold_us=longest_us)
        world.dispatcher.queue._on_hold = lambda _, wait_us: waits.append(wait_us)
        busy_holder(world)
        ask(world)

    assert waits[0] == 30_000 < waits[1] < MAX_HOLD_US


@pytest.mark.parametrize(
    ("text_len", "rules"),
    [
        (TEXT, {}),
        (LONG, {"max_hold_us": 0}),
        (LONG, {"scheduler": "vtc"}),
    ],
    ids=["half of that is too little", "switched off", "accounts of each lane"],
)
def test_nothing_is_held(text_len: int, rules: dict[str, object]) -> None:
    world = world_of(text_len=text_len, **rules)
    busy_holder(world)
    ticket = ask(world)

    assert (ticket.worker, ticket.held, world.held) == (OTHER, None, [])


def busier(world: World, tokens: int) -> None:
    """Let the engine that holds topic 7 have `tokens` more in flight than the other one, which is idle."""
    router = world.dispatcher.router
    assert isinstance(router, D2LPM)
    router.load.order.change(HELD, tokens - router.load.tokens(HELD))


@pytest.mark.parametrize("limit", [1, 2], ids=["the holder is full", "both have capacity"])
def test_a_match_is_worth_eight_times_its_tokens_of_backlog(limit: int) -> None:
    """Beyond that the idle engine takes the request, though the other one has its prompt."""
    worth = 8 * MATCHED
    for tokens, is_kept in ((worth, True), (worth + 1, False)):
        world = world_of(max_engine_requests=limit)
        busy_holder(world)
        busier(world, tokens)
        ticket = ask(world)

        assert (HELD in {ticket.worker, ticket.held}) is is_kept, tokens
        assert is_kept or ticket.worker == OTHER


def test_of_two_engines_with_the_match_it_is_held_for_one_that_is_worth_it() -> None:
    """Both have as much capacity left; the first of them has too long a backlog."""
    world = world_of(slots=(1, 1, 1))
    busy_holder(world, output_len=1000)
    second = ask(world, output_len=1000)
    world.dispatcher.hold_over(second)
    world.step(second.worker)
    busier(world, 8 * MATCHED + 1)
    third = ask(world)

    assert second.worker != HELD
    assert (third.worker, third.held) == ("", second.worker)


def test_no_more_are_held_for_an_engine_than_it_runs_at_once() -> None:
    world = world_of()
    busy_holder(world)
    first, second = ask(world), ask(world)

    assert (first.worker, second.worker) == ("", OTHER)


def test_a_request_is_held_once() -> None:
    """It fails at the engine that took it after the hold, and is sent on at once."""
    world = world_of(slots=(1, 1, 1))
    busy_holder(world, output_len=1000)
    held = ask(world)
    world.dispatcher.hold_over(held)
    (last,) = {"w1", "w2"} - {held.worker}
    world.fail(held)

    assert (held.worker, len(world.held)) == (last, 1)
    world.dispatcher.hold_over(held)
    assert held.worker == last


@pytest.mark.parametrize("what", ["down", "drain", "models"])
def test_who_is_held_for_an_engine_that_goes_may_be_sent_elsewhere(what: str) -> None:
    world = world_of()
    busy_holder(world)
    held = world.ask(CLIENT, output_len=9, topic=7, model="n")
    assert held.held == HELD
    if what == "down":
        world.down(HELD)
    elif what == "drain":
        world.dispatcher.set_accepting(HELD, accepts=False)
    else:
        world.up(HELD, "m")

    assert (held.worker, held.held) == (OTHER, "")
    world.check()


def test_a_held_request_may_be_cancelled() -> None:
    world = world_of()
    busy_holder(world)
    held = ask(world)
    world.leave(held)
    world.dispatcher.hold_over(held)

    assert held.state is TicketState.ENDED
    assert not len(world.dispatcher.queue)
    world.check()


def test_of_several_lanes_proposals_the_engine_takes_the_longest_match() -> None:
    """One is held for it; the other, of a client with more credit, may go anywhere and is not cached."""
    world = world_of(quantum=100_000)
    (
        ask(world, topic=1, output_len=1),
        ask(world, topic=2, output_len=10_000),
    )  # w1 is busy from now on
    for client in ("b", "a", "a"):
        world.step(HELD)
        ask(world, client, output_len=1)
    world.step(HELD)
    busy_holder(world, output_len=2)
    cold, warm = ask(world, "b", topic=8), ask(world, "a")
    warm.held = HELD
    world.dispatcher.queue._change_lane(warm)
    assert world.dispatcher.queue.credit("b") > world.dispatcher.queue.credit("a") > 0
    steps(world, HELD, 1)

    assert (warm.worker, cold.worker) == (HELD, "")

"""A limit on the requests in flight at all engines: the others wait in the fair queue, none starves."""

from collections import Counter

import pytest
from tests.properties.engines import World

from fairhit.dispatch import QueueRules, Ticket, TicketState
from fairhit.errors import QueueFull


def limited(*slots: int, max_sent: int, queue_size: int = 512) -> World:
    rules = QueueRules(queue_size=queue_size, quantum=100, max_engine_requests=8)
    return World(*slots, rules=rules, max_sent=max_sent)


def ask(world: World, client: str, *, model: str | None = None) -> Ticket:
    return world.ask(client, output_len=2, topic=world.number, model=model)


def running(world: World) -> list[Ticket]:
    return [each for each in world.open_tickets() if each.state is not TicketState.QUEUED]


def test_no_more_are_sent_than_may_be_at_all_engines_together():
    """
    Two engines with room for eight each, and a limit of three: the rest waits, and moves up.
    """
    world = limited(8, 8, max_sent=3)
    for _ in range(20):
        ask(world, "a")
        world.check()
        assert len(running(world)) <= 3

    most = 0
    while world.open_tickets():
        for name in world.engines:
            world.step(name)
            world.check()
            most = max(most, len(running(world)))
    assert most == 3
    assert set(world.ends.values()) == {1}


def test_what_waits_for_the_limit_has_the_fair_queues_order():
    """
    A flood of one client came first: another's few requests do not wait for the end of it.
    """
    world = limited(8, 8, max_sent=2)
    flood = [ask(world, "a") for _ in range(40)]
    few = [ask(world, "b") for _ in range(4)]

    while any(each.state is not TicketState.ENDED for each in few):
        for name in world.engines:
            world.step(name)

    assert sum(each.state is TicketState.ENDED for each in flood) <= 10


def test_an_engines_backlog_does_not_keep_the_limit_from_another_model():
    """
    A slot that becomes free would go to the engine that has just finished a request: of the two models
    the one with more requests would have all slots for as long as its requests arrive.
    """
    world = limited(8, 8, max_sent=1)
    world.up("w0", "m")
    world.up("w1", "n")
    for _ in range(30):
        ask(world, "a", model="m")
    for _ in range(3):
        ask(world, "a", model="n")

    ended: Counter[str | None] = Counter()
    for _ in range(40):
        for name in world.engines:
            world.step(name)
            world.check()
    for ticket in world.outputs:
        ended[ticket.model] += ticket.state is TicketState.ENDED

    assert ended["n"] == 3, ended
    assert ended["m"] >= 3, ended


def test_where_nothing_may_wait_one_too_many_is_refused_and_no_other():
    world = limited(8, max_sent=2, queue_size=0)
    ask(world, "a")
    ask(world, "b")

    with pytest.raises(QueueFull, match="too many requests are in flight"):
        ask(world, "c")
    assert not len(world.dispatcher.queue)

    for _ in range(2):
        world.step("w0")
    assert ask(world, "c").state is TicketState.WAITING


def test_where_nothing_may_wait_a_request_without_room_is_refused_and_leaves_no_trace():
    world = World(1, rules=QueueRules(queue_size=0, max_engine_requests=1))
    first = ask(world, "a")
    charged = world.dispatcher.router.load.tokens("w0")
    for _ in range(3):
        with pytest.raises(QueueFull, match="no engine has free capacity, and no request may wait"):
            ask(world, "b")
        world.check()

    assert world.dispatcher.router.load.tokens("w0") == charged
    assert first.state is TicketState.WAITING


def test_a_limit_that_is_raised_or_lifted_sends_what_waits_for_it():
    world = limited(8, 8, max_sent=1)
    for _ in range(6):
        ask(world, "a")
    world.dispatcher.change(max_in_flight=10**6, weights=None, max_sent=4)
    world.check()
    assert len(running(world)) == 4

    world.dispatcher.change(max_in_flight=10**6, weights=None, max_sent=None)
    world.check()
    assert len(running(world)) == 6


def test_without_a_queue_the_limit_refuses():
    """With `--queue engine` no request waits at the gateway."""
    from tests.unit.dispatch.test_dispatcher import dispatcher, send

    made = dispatcher("w", max_sent=2)
    send(made)
    ticket = send(made)
    with pytest.raises(QueueFull, match="too many requests are in flight"):
        send(made)

    made.finished(ticket, None, ran_us=1)
    send(made)

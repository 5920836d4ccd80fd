"""A request with a routing key waits for its own engine, whatever capacity other engines have."""

from tests.properties.engines import World

from fairhit.dispatch import LedgerSharing, QueueRules, Ticket, TicketState
from fairhit.routers.sticky import Sticky


def sticky(*slots: int, window: int = 1) -> World:
    return World(*slots, rules=QueueRules(quantum=100, max_engine_requests=window), router=Sticky())


def ask(world: World, client: str = "a", key: str = "k") -> Ticket:
    return world.ask(client, output_len=2, topic=world.number, key=key)


def test_an_idle_engine_takes_no_request_of_a_session_that_is_elsewhere():
    world = sticky(1, 1, 1)
    tickets = [ask(world) for _ in range(5)]
    world.check()
    homes = set()
    while world.open_tickets():
        homes.update(each.worker for each in tickets if each.state is TicketState.WAITING)
        for name in world.engines:
            world.step(name)
            world.check()

    assert len(homes) == 1


def test_requests_without_a_key_go_where_there_is_room():
    world = sticky(1, 1, 1)
    home = ask(world).worker
    ask(world)
    others = {ask(world, key="").worker for _ in range(2)}
    world.check()

    assert others == set(world.engines) - {home}


def test_at_one_engine_sessions_share_fairly():
    """A flood on one session does not starve another client at the same engine."""
    world = sticky(1)
    flood = [ask(world, "a", "of-a") for _ in range(30)]
    few = [ask(world, "b", "of-b") for _ in range(3)]
    while any(each.state is not TicketState.ENDED for each in few):
        world.step("w0")
        world.check()

    assert sum(each.state is TicketState.ENDED for each in flood) <= 8


def test_what_waits_for_an_engine_that_is_lost_or_drained_goes_elsewhere():
    for end in ("down", "drain"):
        world = sticky(1, 1)
        tickets = [ask(world) for _ in range(4)]
        home = tickets[0].worker
        if end == "down":
            world.down(home)
        else:
            world.dispatcher.set_accepting(home, accepts=False)
        world.check()

        (other,) = set(world.engines) - {home}
        assert {each.pinned for each in tickets[1:]} == {other}
        assert [each.worker for each in tickets[1:]] == [other, "", ""]
        assert ask(world).pinned == other


def test_a_client_pinned_to_an_engine_is_reported_as_waiting_for_that_engine_only():
    """Otherwise a slot elsewhere would be kept at other gateways for a client that never arrives."""
    world = World(1, 1, rules=QueueRules(max_engine_requests=1, shared=True), router=Sticky())
    home = ask(world).worker
    ask(world, "b")
    for _ in range(2):
        ask(world, "c", key="")
    report = LedgerSharing(world.dispatcher).report()

    assert report is not None
    assert report.waiting == {(home,): ["b"], (): ["c"]}

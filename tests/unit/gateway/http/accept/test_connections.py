"""Whose connection it is, and how long its caller has not been reading."""

import random
from typing import Any
from unittest.mock import Mock

import pytest

from fairhit.gateway.http.accept.connections import RESERVE, TICK_GROUPS, Connections, owner_of
from fairhit.gateway.http.client_connection import ClientConnection, SlowReaderTimer


def enter(connections: Connections[Any], connection: Mock, peer: str = "10.0.0.1") -> bool:
    """Whether it may ask for anything."""
    assert connections.enter(connection, peer)
    return connections.add(connection)


def came(connections: Connections[Any], number: int, peer: str, *, asks: bool = True) -> list[Mock]:
    """So many from `peer`, none of them between two requests."""
    made = [Mock(ClientConnection, is_spare=False, is_slow=False) for _ in range(number)]
    for one in made:
        assert enter(connections, one, peer)
        if asks:
            connections.on_request(one)
    return made


def turned_away(*made: Mock) -> list[bool]:
    return [one.turn_away.called for one in made]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::9", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2", True),
        ("a socket's path", "another", False),
    ],
)
def test_an_owner_has_one_address_or_half_of_one(one: str, other: str, same: bool) -> None:
    """A caller with an address of IPv6 has all that begin with its first 64 bits."""
    assert (owner_of(one) == owner_of(other)) == same


def test_each_has_its_turn_once_a_round_while_others_come_and_go() -> None:
    """The first within a round of its coming; a list made anew each round would shift them."""
    connections: Connections[Any] = Connections(limit=lambda: 1000)
    rng, last, had = random.Random(1), dict[Mock, int](), set[Mock]()
    for step in range(20 * TICK_GROUPS):
        for connection in [Mock(ClientConnection) for _ in range(rng.randrange(4))]:
            enter(connections, connection)
            last[connection] = step
        for connection in rng.sample(list(last), k=min(len(last), rng.randrange(3))):
            connections.discard(connection)
            del last[connection]
        for connection in connections.tick_group(step % TICK_GROUPS):
            assert step - last[connection] == TICK_GROUPS or connection not in had
            last[connection] = step
            had.add(connection)
        assert step - min(last.values(), default=step) <= TICK_GROUPS

    assert had & last.keys()


def test_no_turn_is_long_whichever_connection_leaves() -> None:
    """A caller that closes what it has but of one turn could gather ten thousand in that one."""
    connections: Connections[Any] = Connections(limit=lambda: 1000)
    for _ in range(5):
        for _ in range(1000 - len(connections)):
            enter(connections, Mock(ClientConnection))
        stay = connections.tick_group(5)
        for connection in connections:
            if connection not in stay:
                connections.discard(connection)

    assert len(connections) <= 1000 / TICK_GROUPS + 1


def test_a_trickle_is_no_reading() -> None:
    timer = SlowReaderTimer()

    assert timer.seconds(100_000, 10.0) == 0
    assert timer.seconds(99_000, 15.0) == 5
    assert timer.seconds(100_000 - (16 << 10), 16.0) == 0
    assert timer.seconds(90_000, 20.0) == 4  # more came meanwhile
    timer.reset()
    assert timer.seconds(5, 99.0) == 0


class Clock:
    """The connections' own."""

    now = 0.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("fairhit.gateway.http.accept.connections.monotonic", lambda: made.now)
    return made


def test_at_the_limit_the_oldest_that_has_not_asked_is_closed_first(clock: Clock) -> None:
    """One that has only just come may be about to ask: before it one between two requests is closed."""
    connections: Connections[Any] = Connections(limit=lambda: 5)
    first, second = came(connections, 2, "10.0.0.1", asks=False)
    busy, idle = came(connections, 2, "10.0.0.2")
    idle.is_spare = True
    clock.now = 10.0
    (fresh,) = came(connections, 1, "10.0.0.2", asks=False)
    all_of_them = (first, second, busy, idle, fresh)

    came(connections, 1, "10.0.0.3")
    assert turned_away(*all_of_them) == [True, False, False, False, False]
    came(connections, 1, "10.0.0.3")
    assert turned_away(*all_of_them) == [True, True, False, False, False]
    came(connections, 1, "10.0.0.3")
    assert turned_away(*all_of_them) == [True, True, False, True, False]
    came(connections, 1, "10.0.0.3")
    assert turned_away(*all_of_them) == [True, True, False, True, True]

    assert connections.states() == {"new": 0, "active": 5, "reserve": 0, "closing": 4}
    away = {"new": 3, "idle": 1, "slow": 0, "limit": 0, "address": 0, "descriptors": 0}
    assert connections.turned_away == away


def test_who_asks_for_nothing_that_is_admitted_has_not_asked(clock: Clock) -> None:
    """However often it asks; its first request that is admitted makes it one that has."""
    connections: Connections[Any] = Connections(limit=lambda: 2)
    (probing,) = came(connections, 1, "10.0.0.1", asks=False)
    probing.is_admitted = False
    for _ in range(3):
        connections.on_request(probing)
    assert connections.states()["new"] == 1
    probing.is_admitted = True
    connections.on_request(probing)
    assert (connections.states()["new"], connections.states()["active"]) == (0, 1)


def test_beyond_the_limit_probes_find_a_place_whatever_else_arrives() -> None:
    """All have a request under way: who comes may ask for /health, and gives way to who comes after."""
    connections: Connections[Any] = Connections(limit=lambda: 3)
    busy = came(connections, 3, "10.0.0.1")
    more = [Mock(ClientConnection) for _ in range(RESERVE + 5)]

    assert not any(enter(connections, one) for one in more)
    assert turned_away(*more) == [True] * 5 + [False] * RESERVE
    assert turned_away(*busy) == [False] * 3
    for one in (*busy, *more):
        connections.discard(one)
    assert not any(connections.states().values())
    assert (connections.total, connections._of_address) == (0, {})


def test_who_has_just_come_is_not_closed_for_the_next_before_it_can_ask(clock: Clock) -> None:
    """A flood of whole heads without bodies closed each probe that had found a place before it asked."""
    connections: Connections[Any] = Connections(limit=lambda: 16)
    came(connections, 15, "10.0.0.1")
    (probe,) = came(connections, 1, "10.0.0.2", asks=False)

    assert not enter(connections, Mock(ClientConnection), "10.0.0.1"), "no place but in the reserve"
    assert turned_away(probe) == [False]
    clock.now += 3.0
    assert enter(connections, Mock(ClientConnection), "10.0.0.1")
    assert turned_away(probe) == [True], "it has had its time"


def test_there_are_never_many_more_than_the_limit_however_slowly_they_leave() -> None:
    connections: Connections[Any] = Connections(limit=lambda: 10)
    came(connections, 10, "10.0.0.1")
    for _ in range(500):
        one = Mock(ClientConnection)
        if connections.enter(one, "10.0.0.2", lambda: None):
            connections.add(one)
            one.abort.side_effect = lambda one=one: connections.discard(one)

    assert connections.total <= 10 + 2 * RESERVE


def test_in_the_reserve_who_has_been_answered_is_closed_before_who_has_yet_to_ask() -> None:
    """A crowd that is refused and stays would else push out the probe that has just connected."""
    connections: Connections[Any] = Connections(limit=lambda: 3)
    came(connections, 3, "10.0.0.1")
    probe = Mock(ClientConnection)
    assert not enter(connections, probe)
    crowd = [Mock(ClientConnection) for _ in range(3 * RESERVE)]
    for one in crowd:
        assert not enter(connections, one)
        connections.on_request(one)
        one.abort.side_effect = lambda one=one: connections.discard(one)

    assert turned_away(probe, *crowd) == [False] * (1 + len(crowd))
    assert not probe.abort.called
    assert connections.states()["reserve"] == 1


def test_all_that_come_in_one_turn_of_the_loop_find_a_place() -> None:
    """What is aborted is closed in the next turn only: each arrival aborts another one."""
    connections: Connections[Any] = Connections(limit=lambda: 10)
    leaving = [Mock(ClientConnection) for _ in range(10 + RESERVE)]
    for one in leaving:
        assert enter(connections, one, "10.0.0.1")
    in_one_turn = [Mock(ClientConnection) for _ in range(16)]

    assert all(enter(connections, one, "10.0.0.2") for one in in_one_turn)
    assert sum(one.abort.called for one in leaving) == 16


def test_one_address_that_asks_nothing_leaves_a_quarter_of_the_places(clock: Clock) -> None:
    connections: Connections[Any] = Connections(limit=lambda: 40)
    silent = came(connections, 30, "10.0.0.1", asks=False)
    clock.now = 10.0
    silent += came(connections, 2, "10.0.0.1", asks=False)
    assert turned_away(*silent) == [True, True] + [False] * 30
    others = came(connections, 10, "10.0.0.2", asks=False)
    assert turned_away(*silent, *others) == [True, True] + [False] * 40


def test_a_proxy_may_have_all_places(clock: Clock) -> None:
    """Its connections have asked, or are about to: it opens many at once."""
    connections: Connections[Any] = Connections(limit=lambda: 40)
    asking = came(connections, 28, "10.0.0.1")
    clock.now = 10.0
    at_once = came(connections, 12, "10.0.0.1", asks=False)
    assert turned_away(*asking, *at_once) == [False] * 40


def test_an_address_with_a_limit_of_its_own_has_no_more() -> None:
    connections: Connections[Any] = Connections(limit=lambda: 40, address_limit=lambda: 2)
    first, second = came(connections, 2, "10.0.0.1")
    assert not enter(connections, Mock(ClientConnection), "10.0.0.1")
    assert enter(connections, Mock(ClientConnection), "10.0.0.2")
    connections.discard(first)
    assert enter(connections, Mock(ClientConnection), "10.0.0.1")
    assert connections.turned_away["address"] == 1
    assert turned_away(second) == [False]


def test_the_limit_is_said_at_once_and_then_once_a_minute(
    caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    connections: Connections[Any] = Connections(limit=lambda: 1)
    came(connections, 1, "10.0.0.1")
    for moment in (5.0, 6.0, 64.9, 65.0):
        clock.now = moment
        enter(connections, Mock(ClientConnection))

    assert ["limit 1 (--max-connections)" in line for line in caplog.messages] == [True, True]
    assert "(3 times since the last line)" in caplog.messages[1]

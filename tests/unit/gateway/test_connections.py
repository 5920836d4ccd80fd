"""Whose connection it is, and how long somebody has not been reading."""

import random
from unittest.mock import Mock

import pytest

from fairlead.gateway.caller import CallerConnection
from fairlead.gateway.connections import TURNS, Connections, owner_of
from fairlead.gateway.unread import Unread


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
    """Whoever has an address of IPv6 has all that begin with its first 64 bits."""
    assert (owner_of(one) == owner_of(other)) == same


def test_each_has_its_turn_once_a_round_while_others_come_and_go() -> None:
    """The first within a round of its coming; a list made anew each round would shift them."""
    connections = Connections(limit=lambda: 1000, address_limit=lambda: None)
    rng, last, had = random.Random(1), dict[Mock, int](), set[Mock]()
    for step in range(20 * TURNS):
        for connection in [Mock(CallerConnection) for _ in range(rng.randrange(4))]:
            connections.add(connection)
            last[connection] = step
        for connection in rng.sample(list(last), k=min(len(last), rng.randrange(3))):
            connections.discard(connection)
            del last[connection]
        for connection in connections.at(step % TURNS):
            assert step - last[connection] == TURNS or connection not in had
            last[connection] = step
            had.add(connection)
        assert step - min(last.values(), default=step) <= TURNS

    assert had & last.keys()


def test_no_turn_is_long_whoever_leaves() -> None:
    """A caller that closes what it has but of one turn could gather ten thousand in that one."""
    connections = Connections(limit=lambda: 1000, address_limit=lambda: None)
    for _ in range(5):
        for _ in range(1000 - len(connections)):
            connections.add(Mock(CallerConnection))
        stay = connections.at(5)
        for connection in connections:
            if connection not in stay:
                connections.discard(connection)

    assert len(connections) <= 1000 / TURNS + 1


def test_a_trickle_is_no_reading() -> None:
    unread = Unread()

    assert unread.for_s(100_000, 10.0) == 0
    assert unread.for_s(99_000, 15.0) == 5
    assert unread.for_s(100_000 - (16 << 10), 16.0) == 0
    assert unread.for_s(90_000, 20.0) == 4  # more came meanwhile
    unread.forget()
    assert unread.for_s(5, 99.0) == 0

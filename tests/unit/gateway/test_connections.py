"""Whose connection it is, and how long somebody has not been reading."""

from itertools import chain
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


def test_each_has_one_turn_in_a_round_while_others_come_and_go() -> None:
    """Those that leave have none any more; those that come have theirs in the next round."""
    connections = Connections(limit=lambda: 1000, address_limit=lambda: None)
    stay, leave, late = ([Mock(CallerConnection) for _ in range(50)] for _ in range(3))
    for connection in (*stay, *leave):
        connections.add(connection)
    first = connections.at(0)
    for connection in leave:
        connections.discard(connection)
    for connection in late:
        connections.add(connection)
    rest = [connection for turn in range(1, TURNS) for connection in connections.at(turn)]
    second = [list(map(id, connections.at(turn))) for turn in range(TURNS)]

    assert set(stay) <= {*first, *rest} and not {*leave, *late} & {*rest}
    assert len(first) + len(rest) == len({*first, *rest})
    assert sorted(chain(*second)) == sorted(map(id, stay + late))
    assert max(map(len, second)) == 4  # of 100 in 32 turns


def test_a_trickle_is_no_reading() -> None:
    unread = Unread()

    assert unread.for_s(100_000, 10.0) == 0
    assert unread.for_s(99_000, 15.0) == 5
    assert unread.for_s(100_000 - (16 << 10), 16.0) == 0
    assert unread.for_s(90_000, 20.0) == 4  # more came meanwhile
    unread.forget()
    assert unread.for_s(5, 99.0) == 0

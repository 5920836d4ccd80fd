"""Whose connection it is, and how long somebody has not been reading."""

import pytest

from fairlead.gateway.connections import owner_of
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


def test_a_trickle_is_no_reading() -> None:
    unread = Unread()

    assert unread.for_s(100_000, 10.0) == 0
    assert unread.for_s(99_000, 15.0) == 5
    assert unread.for_s(100_000 - (16 << 10), 16.0) == 0
    assert unread.for_s(90_000, 20.0) == 4  # more came meanwhile
    unread.forget()
    assert unread.for_s(5, 99.0) == 0

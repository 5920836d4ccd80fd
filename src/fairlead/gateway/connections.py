"""The callers' connections: how many there may be, how many of one address, and whose turn it is."""

from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import NamedTuple

from fairlead.gateway.caller import CallerConnection

# Whoever has one address of IPv6 has this many of its bits to choose from.
_OWN_BITS = 64
# Parts of a second: all at once, ten thousand would hold up every answer for ten milliseconds.
TURNS = 32


class _Place(NamedTuple):
    """Where an open connection is counted: by whose it is, where that matters, and in its turn."""

    address: str | None
    turn: dict[CallerConnection, None]


class Connections:
    """Those that are open. `limit` is for all together, `address_limit` for one address, None for none.

    Both are asked anew for each connection, and count those that have yet to shake hands.
    """

    def __init__(
        self, *, limit: Callable[[], int], address_limit: Callable[[], int | None]
    ) -> None:
        self._limit = limit
        self._address_limit = address_limit
        self._open: dict[CallerConnection, _Place] = {}
        self._entering: dict[CallerConnection, str | None] = {}  # shaking hands, by whose it is
        self._of_address: dict[str, int] = {}
        self._turns = tuple(dict[CallerConnection, None]() for _ in range(TURNS))

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[CallerConnection]:
        return iter(self._open.copy())

    def at(self, turn: int) -> list[CallerConnection]:
        """Those of whom it is the turn: each has the same one of TURNS, from 0 on, as long as it is open.

        O(connections / TURNS).
        """
        return list(self._turns[turn])

    def enter(self, connection: CallerConnection, peer: str) -> bool:
        """It may shake hands, and is counted from now on; False: there are too many already. O(1)."""
        if len(self._open) + len(self._entering) >= self._limit():
            return False
        most, address = self._address_limit(), None
        if most is not None:
            address = owner_of(peer)
            if self._of_address.get(address, 0) >= most:
                return False
            self._of_address[address] = self._of_address.get(address, 0) + 1
        self._entering[connection] = address
        return True

    def add(self, connection: CallerConnection) -> bool:
        """It is open; whether it may be. O(TURNS)."""
        self._entered(connection)
        most = self._address_limit()
        address = None
        if most is not None and (peer := connection.peer()) is not None:
            address = owner_of(peer)
            self._of_address[address] = self._of_address.get(address, 0) + 1
        turn = min(self._turns, key=len)  # so that none grows, whoever leaves the others
        turn[connection] = None
        self._open[connection] = _Place(address, turn)
        of_address = self._of_address[address] if address is not None else 0
        count = len(self._open) + len(self._entering)
        return count <= self._limit() and (most is None or of_address <= most)

    def discard(self, connection: CallerConnection) -> None:
        """It is closed, if it was open or about to be. O(1)."""
        self._entered(connection)
        place = self._open.pop(connection, None)
        if place is not None:
            del place.turn[connection]
            self._forget(place.address)

    def _entered(self, connection: CallerConnection) -> None:
        """It is no more among those that shake hands."""
        if connection in self._entering:
            self._forget(self._entering.pop(connection))

    def _forget(self, address: str | None) -> None:
        if address is None:
            return
        self._of_address[address] -= 1
        assert self._of_address[address] >= 0
        if not self._of_address[address]:
            del self._of_address[address]


def owner_of(peer: str) -> str:
    """What one caller cannot change at will: an address of IPv4, the first half of one of IPv6."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:  # as a socket for both shows IPv4
        return str(address.ipv4_mapped)
    return f"{int(address) >> _OWN_BITS:x}/{_OWN_BITS}"

"""The callers' connections: how many may be open, how many of one address, and which close for others.

A connection counts from the moment it is accepted. At the limit a new one is taken all the same, and
the oldest that has not asked for anything yet is closed for it, or else one between two requests, or
one whose request arrives slowly.
Where every connection has a request under way, a new one is kept in a small reserve: there it may ask
whether the gateway is well, and anything else is answered 503.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from time import monotonic
from typing import NamedTuple

from fairhit.errors import GatewayFull
from fairhit.gateway.http.client_connection import CallerConnection
from fairhit.gateway.observability.rate_limited_log import Rarely

_log = logging.getLogger(__name__)

# Whoever has one address of IPv6 has this many of its bits to choose from.
_OWN_BITS = 64
# Parts of a second: all at once, ten thousand would hold up every answer for ten milliseconds.
TURNS = 32
# Connections beyond the limit, at most; each is asked within a round trip, or is closed for the next.
RESERVE = 64
# Without a limit for one address: where it has this share of the places, in quarters, its own oldest
# connection that has not asked is closed for its next. A proxy's connections have asked.
_ADDRESS_QUARTERS = 3
# What a caller that means to ask has sent its head within, on any network; a proxy may open many at once.
_TO_ASK_S = 2.0
# So many that have just come are left the time to ask where nothing else can close: a part of the
# places, and no more than there are beyond the limit for whoever comes meanwhile.
_FRESH_SHARE = 8
# Kept connections that are looked at, to find one between two requests.
_LOOKED_AT = 64

# Why connections are closed: for another that came, before their first request, after one, while one
# arrives slowly; or why they are answered 503.
_REASONS = ("new", "idle", "slow", "limit", "address", "descriptors")
_FULL = "this gateway has too many connections"


class _Unasked(NamedTuple):
    """Whose a connection is that has not asked, and since when it is there."""

    address: str
    since_s: float


class Connections:
    """Those that are open or shaking hands. `limit` is for all together, `address_limit` for one
    address, None for three quarters of `limit`, of which only those that have not asked are closed.

    Both limits are read anew for each connection. Each is in one of four tables: `_unasked`, oldest
    first; `_asked`, from which one may be chosen; `_reserve`, beyond the limit, oldest first; and
    `_leaving`, told to go and not closed yet. Only the first two count towards the limits.
    """

    def __init__(
        self,
        *,
        limit: Callable[[], int],
        address_limit: Callable[[], int | None] = lambda: None,
        setting: str = "--max-connections",
    ) -> None:
        self._limit = limit
        self._address_limit = address_limit
        self._setting = setting
        self._open: dict[CallerConnection, dict[CallerConnection, None]] = {}  # and its turn
        self._entering: dict[CallerConnection, Callable[[], object]] = {}  # and what ends it
        self._unasked: OrderedDict[CallerConnection, _Unasked] = OrderedDict()
        self._asked: OrderedDict[CallerConnection, str] = OrderedDict()
        self._reserve: OrderedDict[CallerConnection, str] = OrderedDict()
        self._leaving: OrderedDict[CallerConnection, str] = OrderedDict()
        self._of_address: dict[str, int] = {}
        self._unasked_of: dict[str, OrderedDict[CallerConnection, float]] = {}
        self._turns = tuple(dict[CallerConnection, None]() for _ in range(TURNS))
        self._said = Rarely(_log)
        self.turned_away = dict.fromkeys(_REASONS, 0)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[CallerConnection]:
        return iter(self._open.copy())

    @property
    def total(self) -> int:
        """How many there are, with those that shake hands."""
        return len(self._open) + len(self._entering)

    def states(self) -> dict[str, int]:
        """How many there are of each kind. O(1)."""
        return {
            "new": len(self._unasked),
            "active": len(self._asked),
            "reserve": len(self._reserve),
            "closing": len(self._leaving),
        }

    def at(self, turn: int) -> list[CallerConnection]:
        """Those of whom it is the turn: each has the same one of TURNS, from 0 on, as long as it is open.

        O(connections / TURNS).
        """
        return list(self._turns[turn])

    def enter(
        self, connection: CallerConnection, peer: str, leave: Callable[[], object] = lambda: None
    ) -> bool:
        """Count one that was accepted, and have another close where there are too many; False: close it.

        `leave` ends its handshake, where it has one. O(1).
        """
        limit, address = self._limit(), owner_of(peer)
        if self.total >= limit + 2 * RESERVE:  # those told to go are slower than those that come
            self._count("limit", limit)
            self._abort_oldest()
            return False
        self._entering[connection] = leave
        now = monotonic()
        if self._makes_way(limit, address, now):
            self._unasked[connection] = _Unasked(address, now)
            self._unasked_of.setdefault(address, OrderedDict())[connection] = now
            self._of_address[address] = self._of_address.get(address, 0) + 1
        else:
            if len(self._reserve) >= RESERVE:
                self._dismiss(next(iter(self._reserve)))
            self._reserve[connection] = address
        if self.total > limit + RESERVE:
            self._abort_oldest()
        return True

    def add(self, connection: CallerConnection) -> bool:
        """Note that one that was counted is open; False: it is beyond the limit. O(TURNS)."""
        self._entering.pop(connection, None)
        turn = min(self._turns, key=len)  # so that none grows, whoever leaves the others
        turn[connection] = None
        self._open[connection] = turn
        if connection in self._leaving:  # told to go before it could be told so
            connection.turn_away(GatewayFull(_FULL))
        return connection not in self._reserve

    def asked(self, connection: CallerConnection) -> None:
        """Note that a request has begun to arrive, at least with its whole head. O(1).

        Until one is admitted the connection has not asked: /health without end, or what is refused for
        want of a key, keeps no place from others.
        """
        if connection in self._unasked:
            if connection.is_admitted:
                address = self._unasked.pop(connection).address
                self._asked[connection] = address
                self._forget_unasked(connection, address)
        elif connection in self._reserve:  # it is answered now, once: its place is the next one's
            self._leaving[connection] = self._reserve.pop(connection)

    def discard(self, connection: CallerConnection) -> None:
        """Forget one that is closed, if it was counted. O(1)."""
        self._entering.pop(connection, None)
        turn = self._open.pop(connection, None)
        if turn is not None:
            del turn[connection]
        self._settle(connection)
        self._leaving.pop(connection, None)

    def close_one(self) -> bool:
        """Have one close that has no request under way, for its place or its descriptor. O(1).

        The oldest that has not asked, if it has had time to; else one between two requests, or whose
        request arrives slowly; else the oldest that has not asked, unless those are few: each would be
        closed by the next arrival before it could ask, a health check among them.
        """
        oldest = next(iter(self._unasked.items()), None)
        if oldest is not None and monotonic() - oldest[1].since_s > _TO_ASK_S:
            self._close_unasked(oldest[0])
            return True
        for _ in range(min(_LOOKED_AT, len(self._asked))):
            connection = next(iter(self._asked))
            if connection.is_spare or connection.is_slow:
                self.turned_away["idle" if connection.is_spare else "slow"] += 1
                self._dismiss(connection)
                return True
            self._asked.move_to_end(connection)
        if oldest is None or len(self._unasked) <= min(RESERVE, self._limit() // _FRESH_SHARE):
            return False
        self._close_unasked(oldest[0])
        return True

    def _makes_way(self, limit: int, address: str, now: float) -> bool:
        """Whether one more of `address` has a place, after another has been told to go if need be."""
        most, own = self._address_limit(), self._of_address.get(address, 0)
        if own >= (limit * _ADDRESS_QUARTERS // 4 if most is None else most):
            oldest = next(iter(self._unasked_of.get(address, {}).items()), None)
            if oldest is not None and (most is not None or now - oldest[1] > _TO_ASK_S):
                self._close_unasked(oldest[0])
            elif most is not None:
                self._count("address", limit)
                return False
        if len(self._unasked) + len(self._asked) < limit:
            return True
        if self.close_one():
            self._say(limit)
            return True
        self._count("limit", limit)
        return False

    def _close_unasked(self, connection: CallerConnection) -> None:
        self.turned_away["new"] += 1
        self._dismiss(connection)

    def _count(self, reason: str, limit: int) -> None:
        self.turned_away[reason] += 1
        self._say(limit)

    def _say(self, limit: int) -> None:
        self._said.warning(
            monotonic(),
            "%d connections are open, limit %d (%s): idle ones are closed for new ones, or new ones "
            "are answered 503; metric fairhit_connections_shed_total",
            self.total, limit, self._setting,
        )  # fmt: skip

    def _dismiss(self, connection: CallerConnection) -> None:
        """Tell it to go; until it is closed it is among those that leave."""
        self._leaving[connection] = self._settle(connection)
        if connection in self._entering:
            self._entering[connection]()
        else:
            connection.turn_away(GatewayFull(_FULL))

    def _abort_oldest(self) -> None:
        """Close now the one that was told to go first, whatever of its answer has not gone out."""
        oldest = next((one for one in self._leaving if one in self._open), None)
        if oldest is not None:
            del self._leaving[oldest]  # it is closed in the next turn: others are next in this one
            oldest.abort()

    def _settle(self, connection: CallerConnection) -> str:
        """Take it from the tables of those that stay; its address."""
        unasked = self._unasked.pop(connection, None)
        if unasked is not None:
            address = unasked.address
            self._forget_unasked(connection, address)
        elif connection in self._asked:
            address = self._asked.pop(connection)
        else:
            return self._reserve.pop(connection, "")
        self._of_address[address] -= 1
        assert self._of_address[address] >= 0
        if not self._of_address[address]:
            del self._of_address[address]
        return address

    def _forget_unasked(self, connection: CallerConnection, address: str) -> None:
        own = self._unasked_of[address]
        del own[connection]
        if not own:
            del self._unasked_of[address]


def owner_of(peer: str) -> str:
    """What one caller cannot change at will: an address of IPv4, the first half of one of IPv6."""
    if ":" not in peer:  # as the system writes it
        return peer
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if address.version == 6 and address.ipv4_mapped is not None:  # as a socket for both shows IPv4
        return str(address.ipv4_mapped)
    return f"{int(address) >> _OWN_BITS:x}/{_OWN_BITS}"

"""Client connections: how many may be open, how many from one address, and which are closed for others.

A connection counts from the moment it is accepted. At the limit a new one is accepted all the same, and
another is closed for it: the oldest new connection, without an admitted request yet, or else one between
two requests, or one whose request arrives slowly. If every connection has a request under way, the
arriving one is put into a small reserve: there it may ask for health or metrics, and every other request
is answered 503.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from time import monotonic
from typing import Generic, NamedTuple, Protocol, TypeVar

from fairhit.errors import FairhitError, GatewayFull
from fairhit.gateway.observability.rate_limited_log import RateLimitedLog

_log = logging.getLogger(__name__)

# Bits of an IPv6 address that its owner does not choose.
_NETWORK_BITS = 64
# Parts of a second in which connections are ticked: all at once, ten thousand would block the event loop
# for ten milliseconds.
TICK_GROUPS = 32
# Connections beyond the limit, at most; each sends its request within a round trip, or is closed for the
# next.
RESERVE = 64
# Without a limit for one address: an address with this share of the slots, in quarters, has its own oldest
# new connection closed for its next. The connections of a proxy are not new for long.
_ADDRESS_QUARTERS = 3
# A client that means to send a request has sent its head within this time, on any network.
_GRACE_S = 2.0
# So many new connections are left their grace where nothing else can be closed: a part of the slots, and
# no more than the reserve holds for those that arrive meanwhile.
_FRESH_SHARE = 8
# Active connections that are checked, at most, to find one between two requests.
_MAX_CHECKED = 64

# Why connections are closed for others, or answered 503: before their first request, between two, while
# one arrives slowly; for a limit; for want of file descriptors.
_REASONS = ("new", "idle", "slow", "limit", "address", "descriptors")
_FULL = "this gateway has too many connections"


class Closable(Protocol):
    """A client connection as the table of connections uses it."""

    @property
    def is_admitted(self) -> bool:
        """True once a request to an engine was admitted on this connection."""
        ...

    @property
    def is_spare(self) -> bool:
        """True between two requests, and after the last response."""
        ...

    @property
    def is_slow(self) -> bool:
        """True if the request has been arriving for longer than allowed while all slots are taken."""
        ...

    def turn_away(self, error: FairhitError) -> None:
        """Close to free the slot; respond with `error` if a request is arriving."""
        ...

    def abort(self) -> None:
        """Close now, whatever is in the write buffer."""
        ...


Connection = TypeVar("Connection", bound=Closable)


class _Arrival(NamedTuple):
    """Address and time of arrival of a connection without an admitted request."""

    address: str
    since_s: float


class Connections(Generic[Connection]):
    """Connections that are open or in their TLS handshake.

    `limit` is for all together, `address_limit` for one address; None: three quarters of `limit`, of which
    only new connections are closed. Both are called for each arriving connection, since they change.
    A connection is in one of four tables: `_new`, oldest first; `_active`; `_reserve`, beyond the limit,
    oldest first; `_closing`, until it is closed. Only the first two count towards the limits.
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
        self._open: dict[Connection, dict[Connection, None]] = {}  # and its tick group
        self._handshaking: dict[Connection, Callable[[], object]] = {}  # and what cancels it
        self._new: OrderedDict[Connection, _Arrival] = OrderedDict()
        self._active: OrderedDict[Connection, str] = OrderedDict()
        self._reserve: OrderedDict[Connection, str] = OrderedDict()
        self._closing: OrderedDict[Connection, str] = OrderedDict()
        self._of_address: dict[str, int] = {}
        self._new_of_address: dict[str, OrderedDict[Connection, float]] = {}
        self._tick_groups = tuple(dict[Connection, None]() for _ in range(TICK_GROUPS))
        self._warnings = RateLimitedLog(_log)
        self.turned_away = dict.fromkeys(_REASONS, 0)

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._open.copy())

    @property
    def total(self) -> int:
        """Number of connections, those in their handshake included."""
        return len(self._open) + len(self._handshaking)

    def states(self) -> dict[str, int]:
        """Number of connections by state. O(1)."""
        return {
            "new": len(self._new),
            "active": len(self._active),
            "reserve": len(self._reserve),
            "closing": len(self._closing),
        }

    def tick_group(self, number: int) -> list[Connection]:
        """Open connections of one of the TICK_GROUPS groups; the group of a connection does not change.

        O(connections / TICK_GROUPS).
        """
        return list(self._tick_groups[number])

    def enter(
        self, connection: Connection, peer: str, cancel: Callable[[], object] = lambda: None
    ) -> bool:
        """Count an accepted connection, and close another one if there are too many; False: close it.

        `cancel` ends its handshake, if it has one. O(1).
        """
        limit, address = self._limit(), owner_of(peer)
        if self.total >= limit + 2 * RESERVE:  # closing connections are slower than arriving ones
            self._count("limit", limit)
            self._abort_oldest()
            return False
        self._handshaking[connection] = cancel
        now = monotonic()
        if self._has_slot(limit, address, now):
            self._new[connection] = _Arrival(address, now)
            self._new_of_address.setdefault(address, OrderedDict())[connection] = now
            self._of_address[address] = self._of_address.get(address, 0) + 1
        else:
            if len(self._reserve) >= RESERVE:
                self._turn_away(next(iter(self._reserve)))
            self._reserve[connection] = address
        if self.total > limit + RESERVE:
            self._abort_oldest()
        return True

    def add(self, connection: Connection) -> bool:
        """Note that a counted connection is open; False if it is beyond the limit. O(TICK_GROUPS)."""
        self._handshaking.pop(connection, None)
        group = min(self._tick_groups, key=len)  # so that none grows, whichever connections close
        group[connection] = None
        self._open[connection] = group
        if connection in self._closing:  # turned away during its handshake
            connection.turn_away(GatewayFull(_FULL))
        return connection not in self._reserve

    def on_request(self, connection: Connection) -> None:
        """Note that the head of a request has been received. O(1).

        A connection stays new until a request to an engine is admitted: requests for /health without end,
        or without a valid key, take no slot from others.
        """
        if connection in self._new:
            if connection.is_admitted:
                address = self._new.pop(connection).address
                self._active[connection] = address
                self._forget_arrival(connection, address)
        elif connection in self._reserve:  # it is answered now, once: its slot is free for the next
            self._closing[connection] = self._reserve.pop(connection)

    def discard(self, connection: Connection) -> None:
        """Forget a closed connection, if it was counted. O(1)."""
        self._handshaking.pop(connection, None)
        group = self._open.pop(connection, None)
        if group is not None:
            del group[connection]
        self._remove(connection)
        self._closing.pop(connection, None)

    def close_one(self) -> bool:
        """Close one connection to free its slot or its descriptor; False if none can be. O(1).

        The oldest new connection after its grace; else one between two requests, or with a slow request;
        else the oldest new one, unless there are few: each would be closed by the next arrival before
        it could send its request, health checks included.
        """
        oldest = next(iter(self._new.items()), None)
        if oldest is not None and monotonic() - oldest[1].since_s > _GRACE_S:
            self._close_arrival(oldest[0])
            return True
        for _ in range(min(_MAX_CHECKED, len(self._active))):
            connection = next(iter(self._active))
            if connection.is_spare or connection.is_slow:
                self.turned_away["idle" if connection.is_spare else "slow"] += 1
                self._turn_away(connection)
                return True
            self._active.move_to_end(connection)
        if oldest is None or len(self._new) <= min(RESERVE, self._limit() // _FRESH_SHARE):
            return False
        self._close_arrival(oldest[0])
        return True

    def _has_slot(self, limit: int, address: str, now: float) -> bool:
        """True if there is a slot for one more connection of `address`, if need be that of another."""
        most, own = self._address_limit(), self._of_address.get(address, 0)
        if own >= (limit * _ADDRESS_QUARTERS // 4 if most is None else most):
            oldest = next(iter(self._new_of_address.get(address, {}).items()), None)
            if oldest is not None and (most is not None or now - oldest[1] > _GRACE_S):
                self._close_arrival(oldest[0])
            elif most is not None:
                self._count("address", limit)
                return False
        if len(self._new) + len(self._active) < limit:
            return True
        if self.close_one():
            self._warn(limit)
            return True
        self._count("limit", limit)
        return False

    def _close_arrival(self, connection: Connection) -> None:
        self.turned_away["new"] += 1
        self._turn_away(connection)

    def _count(self, reason: str, limit: int) -> None:
        self.turned_away[reason] += 1
        self._warn(limit)

    def _warn(self, limit: int) -> None:
        self._warnings.warning(
            monotonic(),
            "%d connections are open, limit %d (%s): idle ones are closed for new ones, or new ones "
            "are answered 503; metric fairhit_connections_shed_total",
            self.total, limit, self._setting,
        )  # fmt: skip

    def _turn_away(self, connection: Connection) -> None:
        """Have a connection close; it is in `_closing` until it is closed."""
        self._closing[connection] = self._remove(connection)
        if connection in self._handshaking:
            self._handshaking[connection]()
        else:
            connection.turn_away(GatewayFull(_FULL))

    def _abort_oldest(self) -> None:
        """Close the connection that was turned away first, whatever is in its write buffer."""
        oldest = next((one for one in self._closing if one in self._open), None)
        if oldest is not None:
            # It is closed in the next iteration of the event loop: others are the oldest in this one.
            del self._closing[oldest]
            oldest.abort()

    def _remove(self, connection: Connection) -> str:
        """Remove a connection from the tables but `_closing`; returns its address."""
        new = self._new.pop(connection, None)
        if new is not None:
            address = new.address
            self._forget_arrival(connection, address)
        elif connection in self._active:
            address = self._active.pop(connection)
        else:
            return self._reserve.pop(connection, "")
        self._of_address[address] -= 1
        assert self._of_address[address] >= 0
        if not self._of_address[address]:
            del self._of_address[address]
        return address

    def _forget_arrival(self, connection: Connection, address: str) -> None:
        own = self._new_of_address[address]
        del own[connection]
        if not own:
            del self._new_of_address[address]


def owner_of(peer: str) -> str:
    """The part of an address that its owner cannot change: all of IPv4, the first half of IPv6."""
    if ":" not in peer:  # as the system writes IPv4
        return peer
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if address.version == 6 and address.ipv4_mapped is not None:  # as a socket for both shows IPv4
        return str(address.ipv4_mapped)
    return f"{int(address) >> _NETWORK_BITS:x}/{_NETWORK_BITS}"

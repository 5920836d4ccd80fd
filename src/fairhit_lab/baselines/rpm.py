"""Requests per minute (RPM): first come, first served, behind a limit for each client (VTC, section 5.1).

The limit counts requests and not what they cost, so it either wastes an idle engine or does not
protect a busy one; the papers compare with it. It is per client over the *whole cluster*: the
host asks `RateLimit` once for each request, before it is routed, and the engines run plain FCFS.
"""

from collections import deque

from fairhit.core.request import ClientId
from fairhit.errors import ConfigError
from fairhit.policies.fcfs import FCFS

RPM_MODES = ("reject", "delay")

# Records examined for each request in `delay`: more than one, so that old ones are removed faster than
# new ones are added.
_SWEEP = 2


class RPM(FCFS):
    """FCFS over the requests that the cluster's `RateLimit` accepted."""


class RateLimit:
    """At most `limit` requests of one client in a window of `window_us` microseconds.

    `reject` turns away a client that has `limit` accepted requests in the trailing window (t - W, t], as
    the VTC artifact does; `delay` holds the excess until the next of the fixed windows [kW, (k+1)W)
    that has capacity left, as the VTC paper says. Memory: the accepted requests of one window (`reject`), the
    clients of the last windows (`delay`). Raises ConfigError for settings that make no sense.
    """

    def __init__(
        self, *, limit: int = 30, window_us: int = 60_000_000, mode: str = "reject"
    ) -> None:
        if limit < 1:
            raise ConfigError(f"rpm limit: expected at least 1 request, got {limit!r}")
        if window_us < 1:
            raise ConfigError(f"rpm window: expected at least a microsecond, got {window_us!r} us")
        if mode not in RPM_MODES:
            raise ConfigError(f"rpm mode: expected one of {', '.join(RPM_MODES)}, got {mode!r}")
        self._limit = limit
        self._window_us = window_us
        self._delays = mode == "delay"
        self._now_us = 0
        self._accepted: deque[tuple[int, ClientId]] = deque()  # in (t - W, t], oldest first
        self._count: dict[ClientId, int] = {}
        self._window: dict[ClientId, tuple[int, int]] = {}  # the last k used, requests in it

    def start_us(self, client: ClientId, now_us: int) -> int | None:
        """Return when the request that arrives now may start; None if it is rejected. O(1) amortised.

        The request counts: call once for each, in order of time. A rejected request does not count.
        """
        assert now_us >= self._now_us, (now_us, self._now_us)
        self._now_us = now_us
        return self._slot(client, now_us) if self._delays else self._admission(client, now_us)

    def __len__(self) -> int:
        """Return the number of clients with a record."""
        return len(self._window if self._delays else self._count)

    def _admission(self, client: ClientId, now_us: int) -> int | None:
        """Return now or None, in mode `reject`."""
        while self._accepted and self._accepted[0][0] <= now_us - self._window_us:
            old = self._accepted.popleft()[1]
            self._count[old] -= 1
            if not self._count[old]:
                del self._count[old]
        used = self._count.get(client, 0)
        if used == self._limit:
            return None
        self._count[client] = used + 1
        self._accepted.append((now_us, client))
        return now_us

    def _slot(self, client: ClientId, now_us: int) -> int:
        """Return now, or the start of the first window with capacity left, in mode `delay`."""
        current = now_us // self._window_us
        self._sweep(current)
        window, used = max(self._window.get(client, (current, 0)), (current, 0))
        if used == self._limit:
            window, used = window + 1, 0
        self._window[client] = (window, used + 1)
        return max(now_us, window * self._window_us)

    def _sweep(self, current: int) -> None:
        """Drop records of past windows, a few at a time."""
        for _ in range(min(_SWEEP, len(self._window))):
            client = next(iter(self._window))
            record = self._window.pop(client)
            if record[0] >= current:  # to the end: the next sweep examines others
                self._window[client] = record

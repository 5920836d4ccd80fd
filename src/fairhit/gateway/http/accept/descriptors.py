"""File descriptors of this process, shared by connections to clients and to engines.

A request takes two, the client's connection and the engine's. Some are reserved for files, probes and name
resolution, so that the gateway itself never lacks one.
"""

import errno
import logging
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from fairhit.errors import ConfigError
from fairhit.gateway.observability.rate_limited_log import RateLimitedLog

_log = logging.getLogger(__name__)

# For listening, files, names and probes; fewer where the limit is low.
_RESERVE = 1024
# With fewer the gateway would refuse nearly every connection.
_LEAST = 128


def raise_limit() -> int:
    """Raise the limit as far as this process may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _number(hard)


def limit() -> int:
    """Limit of open files of this process."""
    return _number(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def shortage(max_connections: int, number: int) -> str | None:
    """Warning that `number` descriptors are too few for `max_connections`; None if they suffice.

    Raises ConfigError if the gateway could not serve with them.
    """
    if number < _LEAST:
        raise ConfigError(
            f"this process may open {number} files, and the gateway needs {_LEAST} at least, for "
            f"--max-connections {max_connections} up to {_needed(max_connections)}: "
            "raise the limit (ulimit -n, LimitNOFILE)"
        )
    if number >= _needed(max_connections):
        return None
    return (
        f"--max-connections {max_connections} may take {_needed(max_connections)} file descriptors, "
        f"and this process may open {number}: connections are limited so that it does not run out; "
        "raise the limit (ulimit -n, LimitNOFILE) or lower --max-connections"
    )


class Descriptors:
    """Shares `number` descriptors between connections of clients and connections to engines.

    `clients` returns the number of the former; `close_one` closes one of them without a request, and
    `close_idle` one to an engine.
    """

    def __init__(
        self,
        number: int,
        *,
        clients: Callable[[], int] = lambda: 0,
        close_one: Callable[[], bool] = lambda: False,
        close_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        self._number = number - min(_RESERVE, number // 4)
        self._clients = clients
        self._close_one = close_one
        self._close_idle = close_idle
        self._warnings = RateLimitedLog(_log)
        self.engines = 0  # connections to engines, open or being made

    def client_slots(self, max_connections: int) -> int:
        """Slots for connections of clients now, `max_connections` at most.

        If one more is too many, an idle connection to an engine is closed for it. O(engines) then.
        """
        left = self._number - self.engines
        if left < max_connections and self._clients() >= left and self._close_idle():
            left += 1
        return max(1, min(max_connections, left))

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Count a connection to an engine while it is made. Raises OSError (EMFILE) if none is left."""
        if self._clients() + self.engines >= self._number and not self.free_one():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.engines += 1
        try:
            yield
        finally:
            self.give_back()

    def ran_out(self, error: OSError) -> None:
        """Log that a connection could not be accepted or made, at most once a minute."""
        self._warnings.warning(
            monotonic(),
            "this process has too few file descriptors, ports or memory for its connections (%s): "
            "clients are answered 503",
            error.strerror,
        )

    def free_one(self) -> bool:
        """Close a connection without a request; False if there is none. O(engines)."""
        return self._close_idle() or self._close_one()

    def give_back(self) -> None:
        """Stop counting a connection to an engine."""
        self.engines -= 1
        assert self.engines >= 0


def _needed(max_connections: int) -> int:
    return 2 * max_connections + _RESERVE


def _number(number: int) -> int:
    """The limit as a number; without one, a number that no process reaches."""
    return 1 << 30 if number == resource.RLIM_INFINITY else number

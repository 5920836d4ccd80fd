"""The file descriptors of this process: how many there may be, and how many connections may have of them.

A request takes two, the caller's connection and the engine's. Some are kept in reserve for files,
probes and names, so that what the gateway does for itself never lacks one.
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

# For listening, files, names and probes; less where there are few.
_RESERVE = 1024
# With fewer the gateway would refuse nearly everybody.
_LEAST = 128


def raise_limit() -> int:
    """Raise the limit as far as this process may, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return _number(hard)


def limit() -> int:
    """How many this process may have open."""
    return _number(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def shortage(max_connections: int, number: int) -> str | None:
    """A line that says what `number` descriptors are too few for; None where they are enough.

    Raises ConfigError where the gateway could not serve with them.
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
    """Shares `number` descriptors between connections of callers and connections to engines.

    `callers` says how many the former have, `close_one` has one of them close that has no request,
    `close_idle` one to an engine that has none.
    """

    def __init__(
        self,
        number: int,
        *,
        callers: Callable[[], int] = lambda: 0,
        close_one: Callable[[], bool] = lambda: False,
        close_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        self._number = number - min(_RESERVE, number // 4)
        self._callers = callers
        self._close_one = close_one
        self._close_idle = close_idle
        self._said = RateLimitedLog(_log)
        self.engines = 0  # connections to engines, open or being made

    def places(self, max_connections: int) -> int:
        """How many connections callers may have now, if `max_connections` is what they may have at most.

        Where one more is too many, one to an engine that is idle is closed for it. O(engines) then.
        """
        left = self._number - self.engines
        if left < max_connections and self._callers() >= left and self._close_idle():
            left += 1
        return max(1, min(max_connections, left))

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one more connection to an engine meanwhile. Raises OSError (EMFILE) where none is left."""
        if self._callers() + self.engines >= self._number and not self.free_one():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        self.engines += 1
        try:
            yield
        finally:
            self.give_back()

    def ran_out(self, error: OSError) -> None:
        """Say in the log that a connection could not be taken or made, at most once a minute."""
        self._said.warning(
            monotonic(),
            "this process has too few file descriptors, ports or memory for its connections (%s): "
            "callers are answered 503",
            error.strerror,
        )

    def free_one(self) -> bool:
        """Have a connection close that has no request under way; whether there was one. O(engines)."""
        return self._close_idle() or self._close_one()

    def give_back(self) -> None:
        """Note that one to an engine is closed."""
        self.engines -= 1
        assert self.engines >= 0


def _needed(max_connections: int) -> int:
    return 2 * max_connections + _RESERVE


def _number(number: int) -> int:
    """The same, where there is a limit; else what no process reaches."""
    return 1 << 30 if number == resource.RLIM_INFINITY else number

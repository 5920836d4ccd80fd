"""A supervisor with children that serve no requests: they print what they receive.

Run as `python -m tests.e2e.sharing.supervisor STORY`.
"""

import errno
import logging
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from fairhit.gateway.process import supervisor as crew
from fairhit.gateway.process.supervisor import (
    ENDING,
    READY,
    ChildContext,
    OperatorChange,
    Supervisor,
)
from fairhit.gateway.process.systemd import SystemdNotifier
from fairhit.gateway.settings import GatewaySettings


def serve(child: ChildContext) -> None:
    """Ready after STARTING_S; from then on each message, and each SIGHUP, is a line."""
    say(f"{os.getpid()} starts")
    time.sleep(float(os.environ.get("STARTING_S", "0")))
    signal.signal(signal.SIGHUP, lambda *_: say(f"{os.getpid()} reads its settings again"))
    if ending_s := os.environ.get("ENDING_S"):
        signal.signal(signal.SIGTERM, lambda *_: end(child, float(ending_s)))
    signal.signal(signal.SIGUSR1, lambda *_: change(child))
    child.channel.send(READY)
    say(f"{os.getpid()} serves")
    time.sleep(0.3)  # not all that the parent says fits into what is between them
    while message := child.channel.recv(65536):
        say(f"{os.getpid()} receives {OperatorChange.decode(message).subject}")


def change(child: ChildContext) -> None:
    """A thousand engines come, and the first of them goes."""
    for number in (*range(1000), 0):
        child.channel.send(OperatorChange(os.getpid(), f"engine {number}", "POST", "", "").encode())


def end(child: ChildContext, ending_s: float) -> None:
    """Report a shutdown of `ending_s` seconds, and take as long."""
    child.channel.send(ENDING + str(ending_s).encode())
    time.sleep(ending_s)
    say(f"{os.getpid()} ends")
    sys.exit(0)


def say(line: str) -> None:
    """Print with a single write, so that lines stay whole."""
    os.write(2, f"{line}\n".encode())


def ends_come_together() -> None:
    """Let `select` return what happened within 0.3 s at once, signals first."""

    class Late(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> Any:
            time.sleep(0.3)
            return sorted(super().select(timeout), key=lambda seen: seen[0].data is not None)

    selectors.DefaultSelector = Late  # type: ignore[misc]


def short_grace_time() -> None:
    """Shorten the time beyond the settings' after which children are killed."""
    crew._GRACE_S = 2.0


def forks_fail(*which: int) -> Callable[[], None]:
    """The ones with these numbers, from 0."""

    def prepare() -> None:
        fork, count = os.fork, iter(range(1000))

        def failing() -> int:
            if next(count) in which:
                raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            return fork()

        os.fork = failing

    return prepare


STORIES: dict[str, Callable[[], None]] = {
    "plain": lambda: None,
    "ends-come-together": ends_come_together,
    "short-grace-time": short_grace_time,
    "the-second-fork-fails": forks_fail(1),
    "the-third-fork-fails": forks_fail(2),
}


def main() -> int:
    """The parent's status, or a process's."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    STORIES[sys.argv[1]]()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = GatewaySettings(processes=2, port=port, shutdown_timeout_secs=0)
    outcome = Supervisor(settings, SystemdNotifier()).run()
    if isinstance(outcome, int):
        return outcome
    serve(outcome)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the gateway tells the service manager that started it: ready, reloading, stopping, alive.

systemd's protocol, sd_notify(3): lines NAME=VALUE in one datagram to the socket that NOTIFY_SOCKET names.
Without that variable nothing is said, so nothing here needs systemd.
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Notices:
    """Each notice is one datagram, sent without waiting. One that is lost is not our failure."""

    address: str = ""  # a path, or `@name` in the abstract namespace; empty: nobody listens
    watchdog_s: float = 0  # without a word for so long we are killed; 0: nobody watches

    def ready(self) -> None:
        """It listens, or the settings have been read again."""
        self._send("READY=1")

    def reloading(self) -> None:
        """The settings are being read again; `ready` says when that is done."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """It ends by its own will or because it was told to."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """It moves."""
        if self.watchdog_s:
            self._send("WATCHDOG=1")

    async def watch(self) -> None:
        """Say that the event loop moves, twice in the time allowed, as the manual page asks."""
        while self.watchdog_s:
            self.alive()
            await asyncio.sleep(self.watchdog_s / 2)

    def _send(self, state: str) -> None:
        if not self.address:
            return
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            sender.setblocking(False)
            try:
                sender.sendto(state.encode(), address)
            except OSError:  # nobody listens any more, or the socket is full
                return


def from_environment(environment: Mapping[str, str], *, pid: int | None = None) -> Notices:
    """What the service manager asked of the process `pid`, ours if not given."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):  # e.g. vsock, of a virtual machine's manager
        return Notices()
    own = str(os.getpid() if pid is None else pid)
    limit_us = environment.get("WATCHDOG_USEC", "")
    watched = limit_us.isdecimal() and environment.get("WATCHDOG_PID", own) == own
    return Notices(address=address, watchdog_s=int(limit_us) / 1e6 if watched else 0)

"""Notifications to systemd: ready, reloading, stopping, alive.

The protocol is sd_notify(3): lines NAME=VALUE in one datagram to the socket that NOTIFY_SOCKET names.
Without that variable nothing is sent, and nothing here needs systemd.
"""

import asyncio
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemdNotifier:
    """Sends each notification as one datagram, without waiting; failures are ignored."""

    address: str = ""  # a path, or `@name` in the abstract namespace; empty: no service manager
    watchdog_s: float = 0  # without a notification for so long systemd kills us; 0: no watchdog

    def ready(self) -> None:
        """Report that the gateway listens, or that a reload is done."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Report that a reload begins; `ready` ends it."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the shutdown begins."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Reset systemd's watchdog, if it is used."""
        if self.watchdog_s:
            self._send("WATCHDOG=1")

    async def watch(self) -> None:
        """Reset the watchdog from the event loop, twice per interval as sd_watchdog_enabled(3) asks."""
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
            except OSError:  # no receiver any more, or a full socket
                return


def from_environment(environment: Mapping[str, str], *, pid: int | None = None) -> SystemdNotifier:
    """Notifier configured by systemd's variables for process `pid`, by default this one."""
    address = environment.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):  # e.g. vsock, of a virtual machine's manager
        return SystemdNotifier()
    own = str(os.getpid() if pid is None else pid)
    limit_us = environment.get("WATCHDOG_USEC", "")
    watched = limit_us.isdecimal() and environment.get("WATCHDOG_PID", own) == own
    return SystemdNotifier(address=address, watchdog_s=int(limit_us) / 1e6 if watched else 0)

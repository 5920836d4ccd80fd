"""Notices to the service manager, received by a real datagram socket."""

import asyncio
import socket
import time

import pytest

from fairhit.gateway.process.systemd import SystemdNotifier, from_environment


@pytest.fixture
def systemd(tmp_path):
    """The socket on which systemd listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(5)
        yield listening


def test_each_state_is_one_datagram(systemd):
    notifier = from_environment({"NOTIFY_SOCKET": systemd.getsockname()})
    before_us = time.monotonic_ns() // 1000

    notifier.ready()
    notifier.reloading()
    notifier.stopping()

    assert systemd.recv(100) == b"READY=1"
    state, since = systemd.recv(100).decode().split("\n")
    assert state == "RELOADING=1"
    name, _, value = since.partition("=")
    assert name == "MONOTONIC_USEC"
    assert before_us <= int(value) <= time.monotonic_ns() // 1000
    assert systemd.recv(100) == b"STOPPING=1"


def test_an_abstract_address():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")  # the kernel chooses a free abstract name
        listening.settimeout(5)
        name = listening.getsockname()[1:].decode()

        from_environment({"NOTIFY_SOCKET": f"@{name}"}).ready()

        assert listening.recv(100) == b"READY=1"


def test_the_watchdog_is_reset_until_shutdown(systemd):
    notifier = from_environment({"NOTIFY_SOCKET": systemd.getsockname(), "WATCHDOG_USEC": "20000"})

    async def live():
        systemd.setblocking(False)
        watching = asyncio.create_task(notifier.watch())
        async with asyncio.timeout(30):
            heard = [await asyncio.get_running_loop().sock_recv(systemd, 100) for _ in range(3)]
        watching.cancel()
        return heard

    assert asyncio.run(live()) == [b"WATCHDOG=1"] * 3


def test_without_a_watchdog_there_is_nothing_to_say(systemd):
    asyncio.run(SystemdNotifier(address=systemd.getsockname()).watch())

    systemd.setblocking(False)
    with pytest.raises(BlockingIOError):
        systemd.recv(100)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, SystemdNotifier()),
        ({"WATCHDOG_USEC": "30000000"}, SystemdNotifier()),
        ({"NOTIFY_SOCKET": "vsock:2:1234"}, SystemdNotifier()),
        ({"NOTIFY_SOCKET": "/run/n"}, SystemdNotifier(address="/run/n")),
        (
            {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"},
            SystemdNotifier(address="/run/n", watchdog_s=30),
        ),
        (  # meant for our parent, whose environment we have
            {"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "6"},
            SystemdNotifier(address="/run/n"),
        ),
        ({"NOTIFY_SOCKET": "/run/n", "WATCHDOG_USEC": "soon"}, SystemdNotifier(address="/run/n")),
    ],
)
def test_what_the_environment_asks_for(environment, expected):
    assert from_environment(environment, pid=7) == expected


def test_a_listener_that_went_away_stops_nothing(tmp_path):
    SystemdNotifier(address=str(tmp_path / "gone")).ready()
    SystemdNotifier().ready()

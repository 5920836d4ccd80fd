"""TLS: who connects and does not shake hands counts like who does, and is not waited for for long."""

import asyncio
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairhit.gateway.http.accept import accept_loop as handshakes
from tests.e2e.gateway.scripts import good
from tests.e2e.gateway.test_listening import ask_tls, certified
from tests.e2e.gateway.world import Connection, World, eventually, play

# A record that announces a ClientHello, and no more of it.
HALF = b"\x16\x03\x01\x02\x00\x01"


@contextmanager
def nothing_left(world: World) -> Iterator[None]:
    yield
    connections = world.gateway.connections
    assert (connections._handshaking, connections._of_address) == ({}, {})


async def closed(connection: Connection) -> None:
    async with asyncio.timeout(20):
        assert await connection.closed()


async def half(world: World, number: int) -> list[Connection]:
    """So many that begin to shake hands, all of them noticed."""
    begun = [await world.connect() for _ in range(number)]
    for one in begun:
        one.writer.write(HALF)
    await eventually(lambda: len(world.gateway.connections._handshaking) == number)
    return begun


@pytest.mark.parametrize("limits", [{"max_connections": 3}, {"max_address_connections": 3}])
def test_who_has_yet_to_shake_hands_takes_a_place(tmp_path: Path, limits: dict[str, int]) -> None:
    """And gives it up for who comes after; nothing is left of it, the file descriptor included."""
    certificate, key = certified(tmp_path, "gateway")

    async def story(world: World) -> None:
        port = world.gateway.port
        with nothing_left(world):
            before = len(os.listdir("/proc/self/fd"))
            begun = await half(world, 3)
            assert (await ask_tls(port, certificate, "/health"))[0].status == 200
            await closed(begun[0])
            assert (await ask_tls(port, certificate, "/health"))[0].status == 200

            begun[1].reset()
            begun[2].writer.write(b"no TLS at all\r\n" * 100)
            await closed(begun[2])
            await eventually(lambda: not world.gateway.connections._handshaking)
            await eventually(lambda: not len(world.gateway.connections))
            for one in begun:
                one.reset()
            await eventually(lambda: len(os.listdir("/proc/self/fd")) <= before)

    # No request asks the engine for its load meanwhile, which would take descriptors, too.
    play(story, good, tls_cert_path=certificate, tls_key_path=key, queue="engine", **limits)


def test_a_crowd_that_does_not_shake_hands_keeps_no_caller_out(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "gateway")

    async def story(world: World) -> None:
        with nothing_left(world):
            crowd = [await world.connect() for _ in range(40)]
            assert (await ask_tls(world.gateway.port, certificate, "/health"))[0].status == 200
            for one in crowd:
                one.reset()
            await eventually(lambda: not world.gateway.connections.total)

    play(story, good, tls_cert_path=certificate, tls_key_path=key, max_connections=8)


def test_a_handshake_is_not_waited_for_as_long_as_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = certified(tmp_path, "gateway")
    monkeypatch.setattr(handshakes, "_HANDSHAKE_S", 0.3)

    async def story(world: World) -> None:
        with nothing_left(world):
            (one,) = await half(world, 1)
            await closed(one)
            await eventually(lambda: not world.gateway.connections._handshaking)

    play(story, good, tls_cert_path=certificate, tls_key_path=key, client_timeout_secs=600)


def test_who_has_connected_when_the_gateway_stops_is_served(tmp_path: Path) -> None:
    """Some of them accepted by then, the others not yet; none has shaken hands."""
    certificate, key = certified(tmp_path, "gateway")
    context = ssl.create_default_context(cafile=certificate)

    async def ask(connected: socket.socket) -> int:
        reader, writer = await asyncio.open_connection(
            sock=connected, ssl=context, server_hostname="127.0.0.1"
        )
        connection = Connection(reader, writer)
        connection.send("/health", b"")
        try:
            return (await connection.reply()).status
        finally:
            writer.close()

    async def story(world: World) -> None:
        address = ("127.0.0.1", world.gateway.port)
        accepted = [socket.create_connection(address) for _ in range(3)]
        await eventually(lambda: len(world.gateway.connections._handshaking) == 3)
        connected = [socket.create_connection(address) for _ in range(5)]
        stopping = asyncio.create_task(world.gateway.stop())
        await asyncio.sleep(0)
        asking = [asyncio.create_task(ask(one)) for one in (*accepted, *connected)]
        assert [await one for one in asking] == [200] * 8
        await stopping

    play(story, good, tls_cert_path=certificate, tls_key_path=key, shutdown_timeout_secs=10)

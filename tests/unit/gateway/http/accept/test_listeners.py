"""What is listened on, and how it ends."""

import asyncio
import socket
from typing import Any, cast

import uvloop

from fairhit.gateway.http.accept import listeners
from fairhit.gateway.settings import GatewaySettings


class Unlimited:
    """A table of connections without limits."""

    def enter(self, *_: object) -> bool:
        return True

    def discard(self, connection: object) -> None:
        """It counts no connection."""


class Met(asyncio.Protocol):
    """Notes who came in and what was said."""

    def __init__(self, heard: list[bytes]) -> None:
        self._heard = heard

    def data_received(self, data: bytes) -> None:
        self._heard.append(data)


def test_who_has_connected_when_it_closes_is_let_in_and_heard() -> None:
    """They stand in the system's queue: closing would reset them, who believe they have asked."""

    async def story() -> None:
        heard: list[bytes] = []
        door = listeners.Listeners(GatewaySettings(port=0))
        made = cast("Any", lambda: Met(heard))
        port, _ = await door.open(made, lambda: b"", cast("Any", Unlimited()))
        callers = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]  # no loop turns
        for number, caller in enumerate(callers):
            caller.sendall(b"%d" % number)
        await door.close()

        assert sorted(heard) == [b"0", b"1", b"2", b"3", b"4"]
        for caller in callers:
            caller.close()

    uvloop.run(story())


def test_an_address_that_is_closed_takes_no_connection() -> None:
    async def story() -> None:
        door = listeners.Listeners(GatewaySettings(port=0))
        port, _ = await door.open(
            cast("Any", lambda: Met([])), lambda: b"", cast("Any", Unlimited())
        )
        await door.close()
        with socket.socket() as late:
            assert late.connect_ex(("127.0.0.1", port)) != 0

    uvloop.run(story())

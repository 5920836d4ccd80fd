"""A bug in one part must not stop the clock of the others."""

import asyncio
import logging
from typing import Any

import pytest

from fairhit.gateway.http.client_connection import ClientConnection
from fairhit.gateway.proxy.incoming_request import IncomingRequest
from tests.e2e.gateway.scripts import hang
from tests.e2e.gateway.world import World, eventually, play


class Broken(Exception):
    """An error that no code expects."""


def fails(*_: Any) -> None:
    raise Broken("here")


def test_time_limits_hold_although_every_other_part_of_a_second_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(world: World) -> None:
        gateway = world.gateway
        gateway.pool.tick = fails  # type: ignore[method-assign]
        gateway._observability.tick = fails  # type: ignore[method-assign]
        await world.connect()  # the first in turn
        await eventually(lambda: len(gateway.connections) == 1)
        for connection in gateway.connections:
            connection.tick = fails  # type: ignore[method-assign]
        slow = await world.connect()
        slow.writer.write(b"POST / HT")
        assert (await slow.reply()).status == 408

    with caplog.at_level(logging.ERROR, "fairhit"):
        play(story, hang, client_timeout_secs=0.2)
    assert "fails: Broken: here" in caplog.messages


def test_engines_are_asked_for_their_load_after_a_tick_that_failed() -> None:
    async def story(world: World) -> None:
        loads, asked = world.gateway._load_monitor, asyncio.Event()
        is_due = loads._is_due

        def fails_once(*args: Any) -> bool:
            loads._is_due = lambda *args: asked.set() or is_due(*args)  # type: ignore[method-assign]
            raise Broken

        loads._is_due = fails_once  # type: ignore[method-assign]
        await eventually(asked.is_set)

    play(story, hang, load_interval_secs=0.01)


def test_a_caller_whose_work_cannot_begin_is_notified(caplog: pytest.LogCaptureFixture) -> None:
    """What had to come first was done; what stood for it must not stay in its place."""

    async def story(world: World) -> None:
        gateway = world.gateway
        made: list[ClientConnection] = []

        class Before:
            deadline = 1e9
            on_disconnect = tick = stop = pause = resume = fails

        def handle(connection: ClientConnection, request: IncomingRequest) -> Any:
            made.append(connection)
            return Before()

        gateway.handle = handle  # type: ignore[method-assign]
        caller = await world.connect()
        caller.send("/v1/completions", b"{}")
        await eventually(lambda: bool(made))
        made[0].proceed(fails)  # type: ignore[arg-type]
        reply = await caller.reply()
        assert (reply.status, reply.error()["message"]) == (500, "internal error")
        caller.send("/v1/completions", b"{}")
        await eventually(lambda: len(made) == 2)  # it is served on

    play(story, hang)
    (line,) = [one for one in caplog.messages if one.startswith("a request: Broken at ")]
    assert "test_time_goes_on.py:" in line

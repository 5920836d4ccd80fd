"""A child applies operators' changes in the supervisor's order, and reports its state."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from fairhit.errors import NotFound
from fairhit.gateway.admin.control import Control
from fairhit.gateway.process.child import SupervisorLink
from fairhit.gateway.process.supervisor import ENDING, READY, ChildContext, OperatorChange
from fairhit.gateway.proxy.incoming_request import IncomingRequest, RequestHead
from fairhit.gateway.settings import GatewaySettings

OURS, THEIRS = "http://ours:1", "http://theirs:1"


class Recorded(Control):
    """Changes nothing, and knows what was to be changed."""

    def __init__(self) -> None:
        self.repeated: list[str] = []

    def repeat(self, request: IncomingRequest) -> None:
        self.repeated.append(request.body.decode())
        if request.head.method == b"DELETE":
            raise NotFound("there is no engine")


class World:
    """A process that has joined, and its parent's end of the channel."""

    def __init__(self) -> None:
        self.parent, channel = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        context = ChildContext(0, channel, 0, GatewaySettings(), False, 0)
        self.control, self.channel = Recorded(), channel
        self.link = SupervisorLink(context, self.control, lambda: None)
        self.link.join()
        assert self.parent.recv(100) == READY

    def make(self, body: str) -> bytes:
        """Make an operator's change here; the message that the parent receives."""
        request = IncomingRequest(RequestHead())
        request.head.method, request.head.target = b"POST", b"/workers"
        request.body = body.encode()
        self.control.on_change(request, OURS)
        return self.parent.recv(10_000)

    async def receive(self, *messages: bytes) -> None:
        for message in messages:
            self.parent.send(message)
            for _ in range(3):  # the loop sees the message, reads it, and applies it
                await asyncio.sleep(0)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self.channel)
        self.parent.close()
        self.channel.close()


def story(run: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        world = World()
        try:
            await run(world)
        finally:
            world.close()

    asyncio.run(whole())


def of_another(body: str, method: str = "POST") -> bytes:
    return OperatorChange(os.getpid() + 1, THEIRS, method, "/workers", body).encode()


def test_an_own_change_is_applied_once() -> None:
    async def run(world: World) -> None:
        own = world.make("own")
        assert OperatorChange.decode(own) == (os.getpid(), OURS, "POST", "/workers", "own")
        await world.receive(own, of_another("other"))
        assert world.control.repeated == ["other"]

    story(run)


def test_an_own_change_is_applied_again_after_one_that_reached_the_parent_first() -> None:
    async def run(world: World) -> None:
        first = world.make("first")
        await world.receive(of_another("other"))
        second = world.make("second")
        await world.receive(first, second)
        assert world.control.repeated == ["other", "first", "second"]
        await world.receive(world.make("third"))
        assert world.control.repeated == ["other", "first", "second"]

    story(run)


def test_removing_an_unknown_engine_is_no_error(caplog: Any) -> None:
    async def run(world: World) -> None:
        await world.receive(of_another("gone", "DELETE"))
        assert world.control.repeated == ["gone"]
        assert caplog.text == ""

    story(run)


def test_a_child_reports_how_long_its_shutdown_may_take() -> None:
    async def run(world: World) -> None:
        world.link.announce_end(2.5)
        assert world.parent.recv(100) == ENDING + b"2.5"

    story(run)


def test_reloaded_settings_withdraw_changes_once_the_child_has_joined() -> None:
    async def run(world: World) -> None:
        world.link.supersede([OURS])
        assert OperatorChange.decode(world.parent.recv(100)) == (os.getpid(), OURS, "", "", "")
        context = ChildContext(0, world.channel, 0, GatewaySettings(), True, 0)
        SupervisorLink(context, world.control, lambda: None).supersede([OURS])
        world.link.announce_end(1)
        assert world.parent.recv(100).startswith(ENDING)

    story(run)

"""Bodies are kept while they may have to be sent (again), and all of them together have a limit."""

import asyncio

from tests.e2e.gateway.scripts import (
    Received,
    begin_stream,
    chat,
    chunk,
    events,
    good,
    hang,
    whole,
)
from tests.e2e.gateway.world import CHAT, World, eventually, play

LARGE = "x" * 100_000


async def half(received: Received) -> None:
    """It begins a stream, and thinks long about the rest."""
    begin_stream(received)
    chunk(received, events(usage=False)[1])
    await asyncio.sleep(30)


def test_what_waits_for_an_engine_is_bounded_by_bytes_too() -> None:
    """One is with the engine, one waits here; a third would be too much until one of them leaves."""
    body = chat(user=LARGE)

    async def story(world: World) -> None:
        body_budget = world.gateway.body_budget
        body_budget.limit = 250_000
        with_engine, queued = await world.connect(), await world.connect()
        with_engine.send(CHAT, body)
        await eventually(lambda: len(world.received()) == 1)
        queued.send(CHAT, body)
        await eventually(lambda: body_budget.length == 2 * len(body))
        assert len(world.received()) == 1

        refused = await world.ask(body=body)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert refused.error()["message"] == "too many bytes of requests are waiting"

        queued.reset()
        await eventually(lambda: body_budget.length == len(body))
        third = await world.connect()
        third.send(CHAT, body)
        await eventually(lambda: body_budget.length == 2 * len(body))
        with_engine.reset()
        await eventually(lambda: len(world.received()) == 2)
        third.reset()
        await eventually(lambda: body_budget.length == 0)

    play(story, hang, queue="gateway", max_engine_requests=1)


def test_a_stream_that_has_begun_keeps_no_body() -> None:
    """It cannot be asked of another engine any more."""

    async def story(world: World) -> None:
        caller = await world.connect()
        caller.send(CHAT, chat(stream=True, user=LARGE))
        await caller.reader.readuntil(b"\r\n\r\n")
        assert world.gateway.body_budget.length == 0
        caller.reset()

    play(story, half)


def test_a_connection_that_is_kept_keeps_no_body() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        for path in (CHAT, "/no/such/path", CHAT):
            caller.send(path, chat(user=LARGE))
            await caller.reply()
            assert world.gateway.body_budget.length == 0

    play(story, good)


def test_a_body_is_kept_until_no_other_engine_can_be_asked() -> None:
    lengths: list[int] = []

    async def story(world: World) -> None:
        async def fails_once(received: Received) -> None:
            lengths.append(world.gateway.body_budget.length)
            if len(lengths) == 1:
                whole(received, 503, b"{}")
            else:
                await good(received)

        for engine in world.engines:
            engine.script = fails_once
        body = chat(user=LARGE)
        assert (await world.ask(body=body)).status == 200
        assert lengths == [len(body)] * 2
        assert [one.json()["user"] for one in world.received()] == [LARGE] * 2

    play(story, good, good)

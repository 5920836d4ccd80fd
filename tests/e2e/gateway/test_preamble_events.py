"""Engines that greet a stream before they have taken its request in, as vLLM and SGLang do responses."""

import asyncio
import json

from tests.e2e.gateway.path_scripts import PATHS, STREAMS, named
from tests.e2e.gateway.scripts import Received, begin_stream, chunk
from tests.e2e.gateway.world import NO_KEPT_CONNECTION, World, eventually, play, turns

PATH = "/v1/responses"
BODY = json.dumps({"model": "m", "stream": True, **PATHS[PATH]}).encode()
CREATED = STREAMS[PATH][0]
PROGRESS = named("response.in_progress", response={"id": "r", "output": [], "usage": None})
WHOLE = b"".join([CREATED, PROGRESS, *STREAMS[PATH][1:]])


async def greet(received: Received) -> None:
    begin_stream(received)
    chunk(received, CREATED)
    await asyncio.sleep(0.01)
    chunk(received, PROGRESS)


async def greet_and_hang(received: Received) -> None:
    await greet(received)
    await asyncio.Event().wait()


async def greet_and_go(received: Received) -> None:
    await greet(received)
    await asyncio.sleep(0.01)
    received.writer.close()


async def greet_and_end(received: Received) -> None:
    await greet(received)
    chunk(received, b"")


async def greet_and_answer(received: Received) -> None:
    await greet(received)
    await asyncio.sleep(0.01)
    for event in STREAMS[PATH][1:]:
        chunk(received, event)
    chunk(received, b"")


def test_a_preamble_event_is_passed_on_to_the_byte() -> None:
    async def story(world: World) -> None:
        reply = await world.ask(PATH, BODY)
        assert (reply.status, reply.body) == (200, WHOLE)
        assert world.spent() == 18 + 2 * 3

    play(story, greet_and_answer)


def test_an_engine_that_only_greets_in_time_is_not_waited_for() -> None:
    async def story(world: World) -> None:
        reply = await world.ask(PATH, BODY)
        assert (reply.status, reply.body) == (200, WHOLE)
        assert [len(engine.received) for engine in world.engines] == [1, 1]
        await eventually(world.engines[0].left.is_set)

    play(
        story, greet_and_hang, greet_and_answer, policy="round-robin",
        client_timeout_secs=0.1, first_byte_timeout_secs=1,
    )  # fmt: skip


def test_an_engine_that_greets_and_is_gone_is_replaced() -> None:
    async def story(world: World) -> None:
        reply = await world.ask(PATH, BODY)
        assert (reply.status, reply.body) == (200, WHOLE)
        assert world.gateway.dispatcher.retries == 1

    for gone in (greet_and_go, greet_and_end):
        play(story, gone, greet_and_answer, policy="round-robin", **NO_KEPT_CONNECTION)


def test_preamble_events_make_no_room() -> None:
    """The engine has begun none of them: what it has is its queue, and the others wait here."""
    greeted = 0

    async def greet_them(received: Received) -> None:
        nonlocal greeted
        await greet(received)
        greeted += 1
        await asyncio.Event().wait()

    async def story(world: World) -> None:
        callers = [await world.connect() for _ in range(30)]
        for caller in callers:
            caller.send(PATH, BODY)
        dispatcher = world.gateway.dispatcher
        await eventually(lambda: dispatcher.ledger.in_flight("anonymous") == 30)
        await eventually(lambda: greeted >= 2)
        await turns()
        assert (len(world.received()), len(dispatcher.queue)) == (2, 28)
        for caller in callers:
            caller.reset()
        await eventually(lambda: not world.gateway.exchanges)
        assert 0 < world.spent() <= 3 * len(callers), "prompts that were sent, and no outputs"

    play(story, greet_them)

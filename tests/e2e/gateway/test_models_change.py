"""An operator says that an engine has another model than it had; what waits for it heeds that."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.e2e.gateway.operators import operate
from tests.e2e.gateway.scripts import Received, chat, good
from tests.e2e.gateway.world import CHAT, Connection, World, eventually, play

# One at a time at each engine, and a few bound to each: the rest waits unbound.
ONE_AT_A_TIME = {"queue": "gateway", "max_engine_requests": 1, "disable_retries": True}
WAITING = 12


def play_held(
    story: Callable[[World, Callable[[], None]], Coroutine[Any, Any, None]],
) -> None:
    """Two engines with model "a", which answer their first requests when the story says so."""
    go_on = asyncio.Event()

    async def held(received: Received) -> None:
        if received.json().get("user") == "first":
            await go_on.wait()
        await good(received)

    play(
        lambda world: story(world, go_on.set), held, held,
        static_models=("a", "a"), **ONE_AT_A_TIME,
    )  # fmt: skip


async def crowd(world: World) -> list[Connection]:
    """Start a request for "a" at both engines, and more than they may run, which wait."""
    callers = []
    for number in range(len(world.engines) + WAITING):
        caller = await world.connect()
        first = number < len(world.engines)
        caller.send(CHAT, chat(model="a", user="first" if first else "later"))
        if first:
            await eventually(lambda wanted=number + 1: len(world.received()) == wanted)
        callers.append(caller)
    queueing = world.gateway.dispatcher.queue
    await eventually(lambda: len(queueing) == WAITING)
    return callers


async def rename(world: World, number: int) -> None:
    engine = {"url": world.engines[number].url, "model": "b"}
    assert (await operate(world, "POST", "/workers", engine)).status == 200


def test_what_waits_for_a_model_goes_to_who_still_has_it() -> None:
    async def story(world: World, go_on: Callable[[], None]) -> None:
        callers = await crowd(world)
        await rename(world, 0)
        go_on()
        statuses = [(await caller.reply()).status for caller in callers]

        assert statuses == [200] * len(callers)
        assert [len(engine.received) for engine in world.engines] == [1, 1 + WAITING]
        assert (await world.ask(body=chat(model="b"))).status == 200
        assert len(world.engines[0].received) == 2

    play_held(story)


def test_requests_that_wait_for_a_removed_model_are_refused() -> None:
    async def story(world: World, go_on: Callable[[], None]) -> None:
        callers = await crowd(world)
        await rename(world, 0)
        await rename(world, 1)
        go_on()
        statuses = [(await caller.reply()).status for caller in callers]

        assert statuses == [200, 200] + [404] * WAITING
        assert len(world.received()) == 2
        assert (await world.ask(body=chat(model="a"))).status == 404

    play_held(story)
